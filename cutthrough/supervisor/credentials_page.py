"""The page on which all workers together know who was right, as its owner, the
supervisor, sees it.

It outlives every worker: the next one finds there what that one has verified. The
program that follows in an upgrade inherits it, as a descriptor whose number stands in
its environment. A version before this one passes no page on, and the program that
follows it begins with nobody verified.
"""

import mmap
import os
from typing import TYPE_CHECKING

from cutthrough.log.stderr import say

if TYPE_CHECKING:
    from cutthrough.policy.known import Known

VARIABLE = "CUTTHROUGH_CREDENTIALS"


class CredentialsPage:
    """The page, from `open` to `close`."""

    def __init__(self) -> None:
        self.fd = -1
        self._known: Known | None = None

    def open(self) -> None:
        """Takes the page of the program before us, or makes one. Raises OSError."""
        # Here: whoever only imports the supervisor loads nothing compiled
        from cutthrough.policy.known import Known, create

        text = os.environ.pop(VARIABLE, "")
        if text.isdigit():
            self.fd = int(text)
            try:
                os.set_inheritable(self.fd, False)
                self._known = Known(mmap.mmap(self.fd, 0))
            except (OSError, ValueError):    # of a version with another page
                say("cannot read the previous program's verified credentials: "
                    "each is verified again")
                self.close()
        if self._known is None:
            self.fd = os.memfd_create("cutthrough-credentials", os.MFD_CLOEXEC)
            self._known = Known(create(self.fd))

    def reap(self, pid: int) -> None:
        """This worker is gone: others may compute what it did."""
        if self._known is not None:
            self._known.reap(pid)

    def close(self) -> None:
        self._known = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
