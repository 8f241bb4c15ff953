"""The supervisor's side of the page on which all workers cache verified credentials.

The page outlives every worker, so a replacement finds the credentials that its
predecessor verified. In an upgrade the new program inherits it, as a descriptor whose
number is in its environment. Versions before this one pass no page on; after such an
upgrade the page is empty. If hosts share credentials (shared_credentials.py), the page
has their key, for its life.
"""

import mmap
import os
from typing import TYPE_CHECKING

from cutthrough.config.config import Config
from cutthrough.supervisor.inherited_page import open_page

if TYPE_CHECKING:
    from cutthrough.policy.known import Known
    from cutthrough.supervisor.shared_credentials import SharedCredentials

VARIABLE = "CUTTHROUGH_CREDENTIALS"


class CredentialsPage:
    """The page, from `open` to `close`."""

    def __init__(self) -> None:
        self.fd = -1
        self._known: Known | None = None
        self._shared: SharedCredentials | None = None

    def open(self, secret: str) -> None:
        """Takes the previous program's page, or makes one. `secret`: what hosts share;
        "": nothing. Raises OSError."""
        # Imported here, so that importing the supervisor loads no compiled module
        from cutthrough.policy.known import Known, create

        key = b""
        if secret:
            from cutthrough.supervisor.shared_credentials import page_key

            key = page_key(secret)

        def view(memory: mmap.mmap) -> Known:
            known = Known(memory)
            if key and not known.has_key(key):
                raise ValueError("the page has another key")
            return known

        self.fd, self._known = open_page(
            VARIABLE, "cutthrough-credentials", view,
            lambda fd: create(fd, secret=key),
            "cannot use the previous program's verified credentials: "
            "each is verified again")

    def share(self, config: Config) -> None:
        """Exchanges credentials with other hosts, as this configuration says."""
        if self._known is None or not (config.share_credentials or self._shared):
            return
        if self._shared is None:
            from cutthrough.supervisor.shared_credentials import SharedCredentials

            self._shared = SharedCredentials()
        self._shared.commit(config, self._known)

    async def leave(self) -> None:
        """Ends the exchange."""
        if self._shared is not None:
            await self._shared.leave()

    def reap(self, pid: int) -> None:
        """Frees the hashes that this worker, now gone, was computing for others."""
        if self._known is not None:
            self._known.reap(pid)

    def close(self) -> None:
        self._known = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
