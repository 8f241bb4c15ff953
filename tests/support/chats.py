"""A chat by WebSocket: an origin that holds it, and clients that read it."""

import base64
import hashlib
import re

from websockets.frames import Frame, Opcode

from tests.support.client import build_request

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def accept_of(key):
    digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode())
    return base64.b64encode(digest.digest())


def frame(code, data=b"", mask=True):
    return Frame(code, data).serialize(mask=mask)


def chat(conn):
    """Greets, answers two messages in capitals, and closes."""
    conn.read_request()
    conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
              b"Upgrade: websocket\r\nX-Room: 7\r\nSec-WebSocket-Accept: "
              + accept_of(KEY) + b"\r\n\r\n" + frame(Opcode.TEXT, b"welcome", False))
    for sent in (b"one", b"two"):
        conn.read_exact(len(frame(Opcode.TEXT, sent)))
        conn.send(frame(Opcode.PING, b"", False)
                  + frame(Opcode.TEXT, sent.upper(), False))
    conn.send(frame(Opcode.CLOSE, b"\x03\xe8bye", False))
    conn.read_exact(len(frame(Opcode.CLOSE, b"\x03\xe8")))


def enter(client, url, key=KEY, *fields):
    client.send(build_request(
        "GET", url, "Connection: Upgrade", "Upgrade: websocket",
        f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *fields))
    return client.read_until(b"\r\n\r\n")


def expect(client, code, data):
    wanted = frame(code, data, False)
    assert client.read_exact(len(wanted)) == wanted


def expect_reason(client, reason):
    """A close with the reason, and with nothing of the recording (R74)."""
    close = client.read_exact(client.read_exact(2)[1])
    number = rb" \(request \d+-\d+\)"
    assert re.fullmatch((1008).to_bytes(2) + reason + number, close), close
