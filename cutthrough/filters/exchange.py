"""The session's services for an exchange's filters, and how they read and write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

PIECE = 32768           # bytes written at a time


class Sluice(Protocol):
    """One body, on its way through here."""

    def take(self) -> bytes | None:
        """The next bytes; b"": the end; None: none have come yet."""

    def trailers(self) -> bytes:
        """The fields behind the body, by lines, when it has been read to its end."""

    def wait(self, waiter: "asyncio.Future[None]") -> None:
        """Sets the result if `take` or `write` may go on."""

    def write(self, data: bytes) -> bool:
        """Sends framed bytes. True: the peer is slow, wait before the next."""

    def finish(self) -> None:
        """The last byte was written."""


class Exchange(Protocol):
    """The session's services for its filters; none after its end."""

    def go_on(self, head: bytes | None, shown: bytes | None = None) -> None:
        """Sends the request on, with another head if one is given. `shown`: the head
        that log and captures have in its place (R82)."""

    def establish(self, head: bytes | None) -> None:
        """Goes on to open the tunnel, with this head of its 200 if one is given."""

    def hold(self, ms: int) -> None:
        """Makes the exchange wait so long: the deadlines of its connection do not end
        it."""

    def note_held(self, us: int) -> None:
        """A function has waited for so long, in which the message did not go on."""

    def note_changed(self, is_up: bool) -> None:
        """The request, or the response, has another head or body than it came with."""

    def refuse(self, label: str, text: str) -> None:
        """Ends it with this outcome. `text`: for the reply and the log."""

    def answer(self, head: bytes) -> Sluice:
        """Begins an answer of our own; the origin is not needed any more."""

    def pass_response(self, head: bytes | None) -> None:
        """Sends the response on, with another head if one is given."""

    def collect(self) -> Sluice:
        """The response's body comes here; nothing is sent yet."""

    def send_head(self, head: bytes) -> None:
        """The head before a body that was collected."""

    def send_request(self, head: bytes, shown: bytes | None = None) -> None:
        """The same, upwards; `shown` as of `go_on`."""

    def hide_request_body(self) -> None:
        """No capture has it (R82)."""

    def note_added(self, secrets: bytes, mask: Callable[[bytes], bytes]) -> None:
        """Notes the values that filters have added, by lines: no record has an echo of
        them (R82). `mask` is for heads that no filter gets, and keeps the length."""

    def send_continue(self) -> None:
        """100, if the client waits for one."""


class Ended(Exception):
    """The exchange was refused or answered: nothing more is to be done."""


async def read(sluice: Sluice) -> AsyncIterator[bytes]:
    """The body as it comes, without its framing."""
    while True:
        piece = sluice.take()
        if piece is None:
            waiter = asyncio.get_running_loop().create_future()
            sluice.wait(waiter)
            await waiter
        elif piece:
            yield piece
        else:
            return


async def write(sluice: Sluice, data: bytes, chunked: bool = False) -> None:
    for at in range(0, len(data), PIECE):
        piece = data[at:at + PIECE]
        if sluice.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece):
            waiter = asyncio.get_running_loop().create_future()
            sluice.wait(waiter)
            await waiter
