"""The clients of `python -m bench content-soak`: regular ones, and hostile messages.

Each visit is of one user and one way: a kept plain connection, or a tunnel that is
opened, with HTTP/1.1, HTTP/2 or a WebSocket inside. What was answered is in `Clients`,
by the numbers in the paths: f… of regular messages, x… of hostile ones.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import json
import random
import ssl
import time
from pathlib import Path

import h2.config
import h2.connection
import h2.events

from bench.content_corpus import CORPUS, FORM, FRAMES, JSON, Content
from bench.content_origin import MOST_HEAD, Origin, frame_body, read_body, secret_of

WAYS = ("plain", "http1", "http2", "websocket")
SHARES = (4, 3, 2, 1)
ROUTES = ("keep", "record", "cache", "filter")
EACH_VISIT = 8
HOSTILE_SHARE = 0.01
PATIENCE = 30.0
FAILURES = (OSError, ssl.SSLError, EOFError, TimeoutError, ValueError, RuntimeError)


def made(number: str) -> Content:
    """A regular request's content: without a body, a form, JSON, or of parts."""
    secret = secret_of(number)
    query = f"?token={secret}&page=1"
    match int(number[1:]) % 5:
        case 0:
            return Content(f"a=b&password={secret}&c=d".encode(), FORM, query=query)
        case 1:
            value = {"user": {"password": secret, "name": "n"}, "note": secret}
            return Content(json.dumps(value).encode(), JSON, query=query)
        case 2:
            body = ('--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n'
                    f"{secret}\r\n--b--\r\n")
            return Content(body.encode(), "multipart/form-data; boundary=b")
    return Content(query=query)


class Clients:
    """`answered`: by number, the status; 0: cut. `repeated`: sent to a cache again."""

    def __init__(self, port: int, origin: Origin, authority: Path,
                 users: dict[str, str]) -> None:  # fmt: skip
        self.port, self.origin, self.users = port, origin, users
        self.answered: dict[str, int] = {}
        self.repeated: collections.Counter[str] = collections.Counter()
        self.routes: dict[str, str] = {}
        self.names: collections.Counter[str] = collections.Counter()
        self.failures: collections.Counter[str] = collections.Counter()
        self.hostile_failures: collections.Counter[str] = collections.Counter()
        self._turn = 0
        self._tls = {}
        for way, name in (("http1", "http/1.1"), ("http2", "h2")):
            self._tls[way] = context = ssl.create_default_context(cafile=authority)
            context.set_alpn_protocols([name])

    def number(self, route: str, hostile: bool) -> str:
        self._turn += 1
        number = f"{'fx'[hostile]}{self._turn}"
        self.routes[number] = route
        return number

    async def visit(self, until: float, pause: float) -> None:
        """Visits one after another."""
        while time.monotonic() < until:
            way = random.choices(WAYS, SHARES)[0]
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._visit(way)
            except FAILURES as error:
                self.failures[f"{way}_{type(error).__name__}"] += 1
            await asyncio.sleep(pause)

    async def _visit(self, way: str) -> None:
        user = random.choice(list(self.users))
        if way == "websocket":
            await self._websocket(user, random.random() < HOSTILE_SHARE)
            return
        connection = await self._connect(way, user)
        with contextlib.closing(connection[1]):
            if way == "http2":
                await self._streams(*connection)
                return
            for _ in range(EACH_VISIT):
                hostile = random.random() < HOSTILE_SHARE
                if not await self._exchange(way, user, *connection, hostile):
                    return

    def _word(self, user: str) -> str:
        return base64.b64encode(f"{user}:{self.users[user]}".encode()).decode()

    async def _connect(self, way: str, user: str) -> tuple[
            asyncio.StreamReader, asyncio.StreamWriter]:  # fmt: skip
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=MOST_HEAD)
        if way == "plain":
            return reader, writer
        authority = f"localhost:{self.origin.tls_port}"
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
                     f"Proxy-Authorization: Basic {self._word(user)}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:13]:
            writer.close()
            raise OSError(head[9:12].decode())
        await writer.start_tls(self._tls[way], server_hostname="localhost")
        return reader, writer

    def _message(self, hostile: bool) -> tuple[str, str, Content]:
        """Return number, path and content."""
        route = random.choice(ROUTES)
        number = self.number(route, hostile)
        path = f"/{route}/{number}"
        if not hostile:
            return number, path, made(number)
        name = random.choice(list(CORPUS))
        self.names[name] += 1
        content = CORPUS[name]()
        if not content.query and random.random() < 0.5:
            return number, f"{path}/{name}", Content()
        return number, path, content

    def _failed(self, hostile: bool, error: str) -> None:
        (self.hostile_failures if hostile else self.failures)[error] += 1

    async def _exchange(
        self, way: str, user: str, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter, hostile: bool,
    ) -> bool:  # fmt: skip
        """Return whether the connection goes on."""
        number, path, content = self._message(hostile)
        host, auth = f"localhost:{self.origin.tls_port}", ""
        target = path + content.query
        if way == "plain":
            host = f"127.0.0.1:{self.origin.plain_port}"
            target = f"http://{host}{target}"
            auth = f"Proxy-Authorization: Basic {self._word(user)}\r\n"
        framing, body = frame_body(content)
        method = "POST" if body else "GET"
        head = (f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{auth}"
                f"Cookie: s={secret_of(number) if not hostile else 'x'}\r\n"
                f"{content.fields() + framing if body else ''}\r\n")
        try:
            writer.write(head.encode("latin-1") + body)
            head_of_answer = await reader.readuntil(b"\r\n\r\n")
            fields = head_of_answer.lower()
            await read_body(reader, fields)
            keeps = b"\r\nconnection: close" not in fields
            again = path.startswith("/cache/") and not hostile and random.random() < 0.5
            if again and keeps:
                writer.write(head.encode("latin-1") + body)
                self.repeated[number] += 1
                await read_body(reader, (await reader.readuntil(b"\r\n\r\n")).lower())
        except FAILURES as error:
            self.answered.setdefault(number, 0)
            self._failed(hostile, f"{way}_{type(error).__name__}")
            return False
        status = int(head_of_answer[9:12])
        self.answered[number] = status
        if status != 200:
            self._failed(hostile, f"{way}_{status}")
        return keeps

    async def _streams(self, reader: asyncio.StreamReader,
                       writer: asyncio.StreamWriter) -> None:  # fmt: skip
        """EACH_VISIT messages at the same time."""
        peer = h2.connection.H2Connection(h2.config.H2Configuration(
            header_encoding="latin-1", validate_outbound_headers=False,
            normalize_outbound_headers=False))
        peer.initiate_connection()
        numbers: dict[int, tuple[str, bool]] = {}
        waiting: dict[int, bytes] = {}
        for _ in range(EACH_VISIT):
            hostile = random.random() < HOSTILE_SHARE
            number, path, content = self._message(hostile)
            stream = peer.get_next_available_stream_id()
            fields = [(":method", "POST" if content.body else "GET"),
                      (":scheme", "https"), (":path", path + content.query),
                      (":authority", f"localhost:{self.origin.tls_port}"),
                      ("cookie", f"s={'x' if hostile else secret_of(number)}")]
            if content.body:
                fields.append(("content-type", content.kind))
                waiting[stream] = content.body
            if content.body and content.coding:
                fields.append(("content-encoding", content.coding))
            peer.send_headers(stream, fields, end_stream=not content.body)
            numbers[stream] = (number, hostile)
        any_hostile = any(hostile for _, hostile in numbers.values())
        status: dict[int, int] = {}
        try:
            while numbers:
                self._send_waiting(peer, waiting)
                writer.write(peer.data_to_send())
                data = await reader.read(65536)
                if not data:
                    raise EOFError
                for event in peer.receive_data(data):
                    self._note(peer, event, numbers, status, waiting)
        except (*FAILURES, h2.exceptions.ProtocolError) as error:
            for number, hostile in numbers.values():
                self.answered.setdefault(number, 0)
                # A hostile stream's end may be that of its connection
                self._failed(hostile or any_hostile, f"http2_{type(error).__name__}")

    def _send_waiting(self, peer: h2.connection.H2Connection,
                      waiting: dict[int, bytes]) -> None:  # fmt: skip
        for stream, body in list(waiting.items()):
            while body and (room := peer.local_flow_control_window(stream)) > 0:
                size = min(room, peer.max_outbound_frame_size)
                peer.send_data(stream, body[:size], end_stream=len(body) <= size)
                body = body[size:]
            waiting[stream] = body
            if not body:
                del waiting[stream]

    def _note(self, peer: h2.connection.H2Connection, event: h2.events.Event,
              numbers: dict[int, tuple[str, bool]], status: dict[int, int],
              waiting: dict[int, bytes]) -> None:  # fmt: skip
        stream = getattr(event, "stream_id", 0)
        if isinstance(event, h2.events.ResponseReceived):
            status[stream] = int(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.DataReceived):
            if event.flow_controlled_length:
                peer.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
            waiting.pop(stream, None)
            if stream not in numbers:
                return
            number, hostile = numbers.pop(stream)
            ended = isinstance(event, h2.events.StreamEnded)
            self.answered[number] = status.get(stream, 0) if ended else 0
            if self.answered[number] != 200:
                self._failed(hostile, f"http2_{self.answered[number]}")
        elif isinstance(event, h2.events.ConnectionTerminated):
            raise EOFError

    async def _websocket(self, user: str, hostile: bool) -> None:
        number = self.number("keep", hostile)
        way = random.choice(("plain", "http1"))
        reader, writer = await self._connect(way, user)
        with contextlib.closing(writer):
            host = (f"127.0.0.1:{self.origin.plain_port}" if way == "plain"
                    else f"localhost:{self.origin.tls_port}")
            target = f"/keep/{number}"
            auth = ""
            if way == "plain":
                target = f"http://{host}{target}"
                auth = f"Proxy-Authorization: Basic {self._word(user)}\r\n"
            writer.write(
                (f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{auth}"
                 "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n").encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 101 " not in head[:13]:
                self.answered[number] = int(head[9:12])
                self._failed(hostile, f"websocket_{head[9:12].decode()}")
                return
            self.answered[number] = 200
            if hostile:
                name = random.choice(list(FRAMES))
                self.names[f"frames_{name}"] += 1
                writer.write(FRAMES[name]())
                with contextlib.suppress(*FAILURES):
                    async with asyncio.timeout(0.5):
                        await reader.readexactly(1 << 20)
                return
            for _ in range(3):
                text = json.dumps({"password": secret_of(number)}).encode()
                writer.write(bytes((0x81, 0x80 | len(text))) + bytes(4) + text)
                await reader.readexactly(2 + len(text))
            writer.write(b"\x88\x80" + bytes(4))
            await reader.readexactly(2)
