"""The supervisor's side of the page on which all workers cache verified credentials.

The page outlives every worker, so a replacement finds the credentials that its
predecessor verified. In an upgrade the new program inherits it, as a descriptor whose
number is in its environment. Versions before this one pass no page on; after such an
upgrade the page is empty.
"""

import os
from typing import TYPE_CHECKING

from cutthrough.supervisor.inherited_page import open_page

if TYPE_CHECKING:
    from cutthrough.policy.known import Known

VARIABLE = "CUTTHROUGH_CREDENTIALS"


class CredentialsPage:
    """The page, from `open` to `close`."""

    def __init__(self) -> None:
        self.fd = -1
        self._known: Known | None = None

    def open(self) -> None:
        """Takes the previous program's page, or makes one. Raises OSError."""
        # Imported here, so that importing the supervisor loads no compiled module
        from cutthrough.policy.known import Known, create

        self.fd, self._known = open_page(
            VARIABLE, "cutthrough-credentials", Known, create,
            "cannot read the previous program's verified credentials: "
            "each is verified again")

    def reap(self, pid: int) -> None:
        """Frees the hashes that this worker, now gone, was computing for others."""
        if self._known is not None:
            self._known.reap(pid)

    def close(self) -> None:
        self._known = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
