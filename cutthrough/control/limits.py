"""The page on which all workers together keep count of what is limited, as its owner,
the supervisor, sees it.

A child is a holder on it, by the number of its counters page: a slot may have several
children at a time, and each keeps its own account until it is reaped.
"""

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutthrough.policy.ledger import Ledger

# Holders for each worker of the start: a reload may bring more workers, and each has an
# old one beside it until that has drained
HOLDERS, MORE_HOLDERS = 3, 16


class Limits:
    """The page, from `open` to `close`."""

    def __init__(self) -> None:
        self.fd = -1
        self._holders = 0
        self._ledger: Ledger | None = None

    def open(self, workers: int) -> None:
        """Makes the page. Raises OSError."""
        # Here: whoever only imports the supervisor loads nothing compiled
        from cutthrough.policy.ledger import Ledger
        from cutthrough.policy.rows import create

        self._holders = HOLDERS * workers + MORE_HOLDERS
        self.fd = os.memfd_create("cutthrough-limits", os.MFD_CLOEXEC)
        self._ledger = Ledger(create(self._holders, self.fd))

    def check(self, holder: int) -> None:
        """Raises OSError where the page has no place for so many holders."""
        if holder >= self._holders:
            raise OSError(errno.ENOSPC, f"the limits' page has {self._holders} places; "
                          "restart the program for more workers")

    def reap(self, holder: int) -> None:
        """This child is gone: what it held is everybody's again."""
        if self._ledger is not None:
            self._ledger.reap(holder)

    def close(self) -> None:
        self._ledger = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
