"""The program on a terminal."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence

from tests.support.proxy import ROOT, clean_environment


def on_terminal(words: Sequence[str], columns: int = 80, *,
                keys: Sequence[tuple[bytes, bytes]] = (), **more: str
                ) -> tuple[int, str]:
    """Runs the program on a terminal of this width and 24 lines; returns its status and
    output. `keys`: what is pressed as soon as a text has come since the key before."""
    theirs, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = clean_environment(**{"TERM": "xterm", "LC_ALL": "C.UTF-8", **more})
    environ.pop("COLUMNS", None)
    with open(theirs, "r+b", buffering=0) as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "cutthrough", *words], cwd=ROOT, stdin=ours,
            stdout=ours, stderr=ours, env=environ)
        os.close(ours)
        output, since, left = b"", 0, [*keys]
        with contextlib.suppress(OSError):   # EIO: the program has ended
            while select.select([screen], [], [], 60)[0]:
                data = screen.read(4096)
                output += data
                if left and left[0][0] in output[since:]:
                    since = len(output)
                    screen.write(left.pop(0)[1])
        if process.poll() is None and left:
            process.kill()
        return process.wait(60), output.decode()
