"""Files that are written whole or not at all: keys, states, exports.

A full disk fails in the middle, and a program may be killed there. Then the path has
what it had before, and after a failure nothing else is left.
"""

import os
import secrets
from pathlib import Path


def write_file(path: Path, data: bytes, *, over: bool = False, mode: int = 0o600
               ) -> None:
    """Makes a file; readable by its owner alone, until it is whole. `over`: in place of
    one that is there. Raises OSError with the path; FileExistsError: it is there."""
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if mode != 0o600:
                os.fchmod(fd, mode)
        if over:
            new.replace(path)
        else:
            os.link(new, path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None    # not a name of our own
        raise
    finally:
        new.unlink(missing_ok=True)
