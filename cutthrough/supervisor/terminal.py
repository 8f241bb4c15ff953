"""The terminal of a program that somebody looks at there.

The kernel sends SIGHUP when a terminal is closed, as an operator does to have the files
read again. `cutthrough inspect` without a command ends then, as other programs of a
terminal do: it keeps all that passes, and with --system all of a desktop. Any other
program reloads; nohup is obeyed.
"""

import errno
import os
import signal

from cutthrough.config.settings import ANNOUNCED


class Terminal:
    """`belongs`: whether this program ends with its terminal. Made before SIGHUP has a
    handler."""

    def __init__(self) -> None:
        self.belongs = (
            ANNOUNCED in os.environ and not is_closed()
            and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)

    @property
    def has_ended(self) -> bool:
        return self.belongs and is_closed()


def is_closed() -> bool:
    """Or there is none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        return error.errno == errno.ENXIO
    return False
