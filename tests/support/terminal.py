"""The program on a terminal."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from tests.support.proxy import ROOT, clean_environment


def on_terminal(words, columns=80, **more):
    """Runs the program on a terminal of this width; returns its status and output."""
    theirs, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "cutthrough", *words], cwd=ROOT, stdout=ours,
            stderr=ours, env=clean_environment(**{"TERM": "xterm", **more}))
        os.close(ours)
        output = b""
        with contextlib.suppress(OSError):   # EIO: the program has ended
            while data := screen.read(4096):
                output += data
        return process.wait(60), output.decode()
