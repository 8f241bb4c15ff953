"""Directories of tests that are not fixtures' `tmp_path`, none of which stays in /tmp.

What is made by tempfile, here and in children, goes below pytest's own directory and
ends with the run; if the run is killed, pytest removes that directory at a later one.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: Of a path, and of the process that it waits for
KEEPER = 'tail -f --pid="$1" /dev/null; rm -rf -- "$0"'
#: Where other accounts may enter
SHARED = "/tmp"


@contextlib.contextmanager
def temporary_files_below(base: Path) -> Iterator[None]:
    """Changes where tempfile, and children that read TMPDIR, make files."""
    folder, before = base / "tmp", os.environ.get("TMPDIR")
    folder.mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = None
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before
        shutil.rmtree(folder, ignore_errors=True)


class SharedFolder:
    """A directory that other accounts may enter, unlike those of pytest. `close`
    removes it; so does a process of its own when this one has been killed."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=SHARED))
        # A session of its own: Ctrl-C is for the tests, which close it. No pipe, whose
        # end here would be open behind the test that needs the directory first
        self._keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, self.path, str(os.getpid())], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, start_new_session=True)

    def close(self) -> None:
        os.killpg(self._keeper.pid, signal.SIGTERM)
        self._keeper.wait()
        shutil.rmtree(self.path)
