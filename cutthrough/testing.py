"""Filters without a network: the messages that origin and client would get.

    from cutthrough import testing

    played = testing.play(AddHeader(), url="http://example.com/")
    assert played.request.headers["X-Team"] == "blue"
    assert played.response.status == 200

The same code drives the filters as in a worker. Not done here: policy, rewriting of
heads, and the order of events on a wire.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from cutthrough.filters.chains import Arrival, Filters
from cutthrough.filters.flow import Facts, Flow, HeaderItems, Headers, headers_of
from cutthrough.filters.run import Run
from cutthrough.filters.stage import make_stage

__all__ = ["Answer", "Message", "Played", "play", "play_async"]


class Answer(NamedTuple):
    """The origin's response."""

    status: int = 200
    headers: HeaderItems = ()
    body: bytes = b""
    chunked: bool = False


class Message(NamedTuple):
    """A request as the origin gets it, or a response as the client does."""

    first: str                          # the first line
    headers: Headers
    body: bytes                         # without its framing

    @property
    def status(self) -> int:
        return int(self.first.split(" ")[1])

    @property
    def method(self) -> str:
        return self.first.split(" ")[0]

    @property
    def url(self) -> str:
        return self.first.split(" ")[1]


class Played(NamedTuple):
    """One exchange after its end."""

    outcome: str                        # the log's reason; "ok"
    text: str                           # of a refusal: the filter, and its reason
    request: Message | None             # None: the origin is not asked
    response: Message | None            # None: the proxy's own refusal
    flow: Flow


def play(*filters: object, method: str = "GET", url: str = "http://example.com/",
         headers: HeaderItems = (), body: bytes = b"", answer: Answer | None = None,
         user: str = "user", groups: tuple[str, ...] = (), budget: float = 10.0,
         on_fault: Literal["refuse", "pass"] = "refuse", max_body: int = 1 << 20,
         pieces: int = 4096) -> Played:
    """Plays one exchange through these filters, in order. `answer`: 200 and no body if
    None. `pieces`: bytes of a body that come at a time. With the method CONNECT `url`
    is `host:port`, and the response is that of the tunnel."""
    return asyncio.run(play_async(
        *filters, method=method, url=url, headers=headers, body=body, answer=answer,
        user=user, groups=groups, budget=budget, on_fault=on_fault, max_body=max_body,
        pieces=pieces))


async def play_async(
        *filters: object, method: str = "GET", url: str = "http://example.com/",
        headers: HeaderItems = (), body: bytes = b"", answer: Answer | None = None,
        user: str = "user", groups: tuple[str, ...] = (), budget: float = 10.0,
        on_fault: Literal["refuse", "pass"] = "refuse", max_body: int = 1 << 20,
        pieces: int = 4096) -> Played:
    """As `play`, inside a running event loop."""
    stages = {f"{type(filter).__name__}-{n}": make_stage(
        f"{type(filter).__name__}-{n}", filter, budget, on_fault, max_body)
        for n, filter in enumerate(filters)}
    fields = Headers(headers)
    facts = Facts(user, groups, "192.0.2.1", "1", "test")
    if method == "CONNECT":
        host, _, port = url.rpartition(":")
        exchange = _Exchange(_head("CONNECT / HTTP/1.1", fields, url), url, b"",
                             Answer(), pieces)
        exchange.run = Filters(stages).begin_connect(
            exchange, tuple(stages), exchange.head, host, int(port), facts)
        return await _play(exchange)
    parts = urlsplit(url)
    if body:
        fields["Content-Length"] = str(len(body))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    exchange = _Exchange(_head(f"{method} {path} HTTP/1.1", fields, parts.netloc), url,
                         body, answer or Answer(), pieces)
    exchange.run = Filters(stages).begin(
        exchange, tuple(stages), Arrival(
            exchange.head, parts.hostname or "",
            parts.port or (443 if parts.scheme == "https" else 80), parts.scheme),
        facts)
    return await _play(exchange)


async def _play(exchange: "_Exchange") -> Played:
    exchange.run.start()
    await exchange.done.wait()
    for task in exchange.waiting:
        task.cancel()
    exchange.run.end(exchange.outcome)
    while exchange.run.tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*exchange.run.tasks, return_exceptions=True)
    if exchange.wrong is not None:
        raise exchange.wrong
    return Played(exchange.outcome, exchange.text, exchange.request, exchange.response,
                  exchange.run.flow)


def _head(first: str, fields: Headers, host: str = "") -> bytes:
    lines = [first, *([f"Host: {host}"] if host else []),
             *(f"{name}: {value}" for name, value in fields), "Via: 1.1 test", "", ""]
    return "\r\n".join(lines).encode("latin-1")


class _Sluice:
    """A body in memory."""

    def __init__(self, body: bytes, pieces: int) -> None:
        self.left = [body[at:at + pieces] for at in range(0, len(body), pieces)]
        self.written = bytearray()
        self.finished = asyncio.Event()
        self._turn = False

    def take(self) -> bytes | None:
        self._turn = not self._turn
        if self._turn and self.left:
            return None                 # it comes later, as on a wire
        return self.left.pop(0) if self.left else b""

    def trailers(self) -> bytes:
        return b""

    def wait(self, waiter: "asyncio.Future[None]") -> None:
        asyncio.get_running_loop().call_soon(
            lambda: None if waiter.done() else waiter.set_result(None))

    def write(self, data: bytes) -> bool:
        self.written += data
        return True

    def finish(self) -> None:
        self.finished.set()


class _Exchange:
    """The session's part."""

    run: Run

    def __init__(self, head: bytes, url: str, body: bytes, answer: Answer,
                 pieces: int) -> None:
        self.head, self.url, self.body, self.reply = head, url, body, answer
        self.pieces = pieces
        self.done = asyncio.Event()
        self.outcome, self.text = "ok", ""
        self.wrong: AssertionError | None = None
        self.request: Message | None = None
        self.response: Message | None = None
        self._up: _Sluice | None = None
        self._down: _Sluice | None = None
        self._head_down = b""
        self.waiting: set[asyncio.Task[None]] = set()

    def go_on(self, head: bytes | None, shown: bytes | None = None) -> None:
        first, _, rest = self.head.partition(b"\r\n")
        sent = head or b" ".join(
            (first.split(b" ")[0], self.url.encode(), b"HTTP/1.1")) + b"\r\n" + rest
        self.request = _message(sent, self.body)
        if self.run.wants_upload and self.body:
            self._up = _Sluice(self.body, self.pieces)
            self.run.on_upload(self._up)
            self._then(self._up, self._respond)
        else:
            self._respond()

    def establish(self, head: bytes | None) -> None:
        self.request = _message(
            self.head.replace(b" / ", f" {self.url} ".encode(), 1), b"")
        self.response = _message(
            head or b"HTTP/1.1 200 Connection established\r\n\r\n", b"")
        self.done.set()

    def hold(self, ms: int) -> None:
        pass

    def note_held(self, us: int) -> None:
        pass

    def note_changed(self, is_up: bool) -> None:
        pass

    def refuse(self, label: str, text: str) -> None:
        self.outcome, self.text = label, text
        self.done.set()

    def answer(self, head: bytes) -> _Sluice:
        self.outcome = "filter_answered"
        return self._begin_down(b"", head)

    def pass_response(self, head: bytes | None) -> None:
        self.response = _message(head or self._head_down, self.reply.body)
        self.done.set()

    def collect(self) -> _Sluice:
        return self._begin_down(self.reply.body, b"")

    def send_head(self, head: bytes) -> None:
        self._head_down = head

    def send_request(self, head: bytes, shown: bytes | None = None) -> None:
        self.request = _message(head, b"")

    def note_added(self, secrets: bytes, mask: Callable[[bytes], bytes]) -> None:
        """Nothing is recorded, and all heads go to the filters."""

    def hide_request_body(self) -> None:
        pass

    def send_continue(self) -> None:
        pass

    def _respond(self) -> None:
        if self._up is not None and self.request is not None:
            self.request = _framed(self.request, bytes(self._up.written))
        fields = Headers(self.reply.headers)
        if self.reply.chunked:
            fields["Transfer-Encoding"] = "chunked"
        elif self.reply.body:
            fields["Content-Length"] = str(len(self.reply.body))
        self._head_down = _head(f"HTTP/1.1 {self.reply.status} Test", fields)
        if self.run.wants_response:
            self.run.on_response(self._head_down, bool(self.reply.body))
        else:
            self.pass_response(None)

    def _begin_down(self, body: bytes, head: bytes) -> _Sluice:
        self._down, self._head_down = _Sluice(body, self.pieces), head
        self._then(self._down, self._end)
        return self._down

    def _end(self) -> None:
        if self._down is not None:
            self.response = _message(self._head_down, b"")
            if not self.head.startswith(b"HEAD "):
                self.response = _framed(self.response, bytes(self._down.written))
        self.done.set()

    def _then(self, sluice: _Sluice, action: Callable[[], None]) -> None:
        async def wait() -> None:
            await sluice.finished.wait()
            try:
                action()
            except AssertionError as error:     # of framing
                self.wrong = error
                self.done.set()
        self.waiting.add(asyncio.get_running_loop().create_task(wait()))


def _message(head: bytes, body: bytes) -> Message:
    first, *lines = head.decode("latin-1").split("\r\n")
    return Message(first, headers_of("\r\n".join(
        line for line in lines if line and not line.startswith("Via: 1.1 test"))), body)


def _framed(message: Message, data: bytes) -> Message:
    """The message with this body, out of its framing. Raises AssertionError if the
    framing contradicts the head."""
    if "Transfer-Encoding" in message.headers:
        body = bytearray()
        while True:
            size, _, data = data.partition(b"\r\n")
            n = int(size, 16)
            if n == 0:
                assert data == b"\r\n", "bytes behind the last chunk"
                return message._replace(body=bytes(body))
            assert data[n:n + 2] == b"\r\n", "a chunk is longer than it says"
            body += data[:n]
            data = data[n + 2:]
    assert int(message.headers.get("Content-Length") or 0) == len(data)
    return message._replace(body=data)
