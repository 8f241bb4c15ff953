"""The supervisor's side of the page with the keys of session tickets.

All workers read it. It outlives them, and in an upgrade the new program inherits it, as
a descriptor whose number is in its environment: a client's session is resumed by any
worker of either program. A new key every PERIOD_S, made by the program that serves,
unless a file has the keys (`ticket_keys_file`): then hosts with the same file resume
each other's sessions, and the file's author makes new keys.
"""

import asyncio
import os
from typing import TYPE_CHECKING

from cutthrough.supervisor.inherited_page import open_page

if TYPE_CHECKING:
    from cutthrough.net.tls.ticket_keys import TicketKeys

VARIABLE = "CUTTHROUGH_TICKETS"
# A session lives two hours, and its key must live as long: this is three keys' time
PERIOD_S = 4 * 3600


class TicketsPage:
    """The page, from `open` to `close`."""

    def __init__(self) -> None:
        self.fd = -1
        self._keys: TicketKeys | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._shared: tuple[bytes, ...] = ()
        self._serves = False

    def open(self) -> None:
        """Takes the previous program's page, or makes one. Raises OSError."""
        # Imported here, so that importing the supervisor loads no compiled module
        from cutthrough.net.tls.ticket_keys import TicketKeys, create

        self.fd, self._keys = open_page(
            VARIABLE, "cutthrough-tickets", TicketKeys, create,
            "cannot read the previous program's ticket keys: "
            "no session of TLS is resumed")

    def begin(self) -> None:
        """This program serves: from now on it makes the keys."""
        assert self._keys is not None
        self.end()
        self._serves = True
        if self._shared:
            self._keys.put(self._shared)
            return
        if self._keys.age >= PERIOD_S:
            self._keys.rotate()
        self._timer = asyncio.get_running_loop().call_later(
            max(1.0, PERIOD_S - self._keys.age), self.begin)

    def use(self, keys: tuple[bytes, ...]) -> None:
        """Has these keys of a file in force while the program serves, 80 octets each,
        the newest first; (): there is no file."""
        changed, self._shared = keys != self._shared, keys
        if changed and self._serves:
            self.begin()

    def end(self) -> None:
        """Stops the making of keys: the program does not serve any more, or another
        program does. Idempotent."""
        self._serves = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self.end()
        self._keys = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
