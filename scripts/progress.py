"""How far a build is, on the terminal of who waits for it."""

import os
import threading


class Progress:
    """One changing line on a terminal, else a line for each quarter, on standard error.

    pip shows the output of a build only if it fails: on a terminal the line follows
    pip's own, behind its cursor. Nothing is written if `total` is 0.
    """

    def __init__(self, what: str, total: int, shown: bool) -> None:
        self.what, self.total = what, total
        pip = terminal_of_pip()
        self.shown = (shown or pip is not None) and total > 0
        self.fd = os.dup(2) if pip is None else pip   # 2 itself is captured meanwhile
        self.live = os.isatty(self.fd)
        self.before, self.after = ("\r\x1b[K", "") if pip is None else (
            "\x1b7   ", "\x1b[K\x1b8")
        self.done, self.quarter = 0, 0
        self.lock = threading.Lock()                  # compilers run in threads
        if self.shown:
            self.show(f"{what} 0 of {total}")

    def show(self, line: str) -> None:
        if self.live:
            os.write(self.fd, f"{self.before}{line}{self.after}".encode())
        elif line:
            os.write(self.fd, f"{line}\n".encode())

    def step(self) -> None:
        with self.lock:
            self.done += 1
            quarter = 4 * self.done // max(1, self.total)
            if self.shown and (self.live or quarter != self.quarter):
                self.quarter = quarter
                self.show(f"{self.what} {self.done} of {self.total}")

    def end(self) -> None:
        with self.lock:
            if self.shown:
                self.show("")
            self.shown = False
            os.close(self.fd)


def terminal_of_pip() -> int | None:
    """A new descriptor of the terminal that pip writes to, if pip builds us."""
    if "PIP_BUILD_TRACKER" not in os.environ or os.isatty(2):
        return None
    try:
        fd = os.open(f"/proc/{os.getppid()}/fd/1", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return None
    if os.isatty(fd):
        return fd
    os.close(fd)
    return None
