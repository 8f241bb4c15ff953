"""The origin of `python -m bench content-soak`: by HTTP/1.1, plain and over TLS.

A path is /ROUTE/ID, or /ROUTE/ID/NAME for hostile content of that name as the answer.
Each other answer has secrets, in one of four forms. It echoes a WebSocket's frames.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gzip
import json
import ssl
import subprocess
from pathlib import Path

from bench.content_corpus import CORPUS, EVENTS, Content

#: Begins each secret of regular messages, and a word that is kept of each.
MARK, SHOWN = "sk_live_Zq7soak", "shown5c1soak"
MOST_HEAD = 1 << 20


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"


def frame_body(content: Content) -> tuple[str, bytes]:
    """Return the fields of its length, and the body as it is sent."""
    if content.piece:
        return "Transfer-Encoding: chunked\r\n", chunked(content.body, content.piece)
    return f"Content-Length: {len(content.body)}\r\n", content.body


def secret_of(number: str) -> str:
    return f"{MARK}{number}"


def regular(number: str) -> Content:
    """An answer: of a form that the number chooses."""
    secret = secret_of(number)
    text = json.dumps({"word": SHOWN, "password": secret, "note": f"has {secret}",
                       "list": [{"password": secret, "n": n} for n in range(20)]})
    match int(number[1:]) % 4:
        case 0:
            return Content(text.encode())
        case 1:
            return Content(gzip.compress(text.encode(), 1), coding="gzip")
        case 2:
            events = f"data: {text}\n\n" * 3
            return Content(events.encode(), EVENTS, piece=400)
    page = f"{SHOWN} <a href='/x?token={secret}&amp;a=b'>{secret}</a>"
    return Content(page.encode(), "text/html; charset=utf-8")


def make_certificate(directory: Path) -> None:
    """Write origin.pem and origin.key, for localhost."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
    command += " -nodes -days 2 -subj /CN=origin.invalid"
    command += " -addext subjectAltName=DNS:localhost"
    command += " -addext keyUsage=digitalSignature,keyCertSign"
    command += " -addext extendedKeyUsage=serverAuth"
    command += " -keyout origin.key -out origin.pem"
    subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)


class Origin:
    """`served`: requests by route and kind, f or x."""

    def __init__(self, directory: Path) -> None:
        self.served: collections.Counter[tuple[str, str]] = collections.Counter()
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(directory / "origin.pem", directory / "origin.key")
        self.plain_port = self.tls_port = 0

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        for tls in (None, self._tls):
            server = await asyncio.start_server(
                self._serve, "127.0.0.1", 0, ssl=tls, limit=MOST_HEAD, backlog=1000)
            await stack.enter_async_context(server)
            port = server.sockets[0].getsockname()[1]
            if tls is None:
                self.plain_port = port
            else:
                self.tls_port = port

    async def _serve(self, reader: asyncio.StreamReader,
                     writer: asyncio.StreamWriter) -> None:  # fmt: skip
        with contextlib.closing(writer), contextlib.suppress(
                OSError, ssl.SSLError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass

    async def _answer(self, reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter) -> bool:  # fmt: skip
        head = await reader.readuntil(b"\r\n\r\n")
        fields = head.lower()
        path = head.split(b" ", 2)[1].decode("latin-1").partition("?")[0]
        words = path.split("/")
        if b"\r\nupgrade: websocket" in fields:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                         b"Connection: Upgrade\r\n\r\n")
            await echo(reader, writer)
            return False
        await read_body(reader, fields)
        # Before the answer: its reader compares this with what is stored
        self.served[words[1], words[2][0]] += 1
        content = CORPUS[words[3]]() if len(words) > 3 else regular(words[2])
        framing, body = frame_body(content)
        writer.write(f"HTTP/1.1 200 OK\r\n{content.fields()}{framing}"
                     "Set-Cookie: a=b\r\n\r\n".encode("latin-1") + body)
        await writer.drain()
        return True


async def read_body(reader: asyncio.StreamReader, fields: bytes) -> bytes:
    """`fields`: of the head, in lower case."""
    if b"\r\ntransfer-encoding: chunked" in fields:
        body = bytearray()
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
        return bytes(body)
    at = fields.find(b"\r\ncontent-length:")
    length = int(fields[at + 17 : fields.index(b"\r\n", at + 2)]) if at >= 0 else 0
    return await reader.readexactly(length)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends short frames back without their mask, and all that is no such frame."""
    while data := await reader.read(65536):
        out = bytearray()
        while len(data) >= 6 and data[1] & 0x80 and data[1] & 0x7F < 126:
            size, mask = data[1] & 0x7F, data[2:6]
            text = bytes(one ^ mask[n % 4] for n, one in enumerate(data[6 : 6 + size]))
            out += bytes((data[0], len(text))) + text
            data = data[6 + size :]
        writer.write(bytes(out) + data)
        await writer.drain()
