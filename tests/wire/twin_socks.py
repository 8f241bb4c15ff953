"""The slow, obvious twin of wire/socks, by sections of RFC 1928 and RFC 1929.

Each answers None for "more bytes, please", the refusal's label, or its result.
"""

import socket
import struct
from typing import Any

from tests.wire.twin_target import read_host

BAD = "bad_socks"
BAD_TARGET = "bad_target"
MOST_TEXT = 255
Answer = dict[str, Any] | str | None


def read_greeting(data: bytes) -> Answer:
    """RFC 1928 section 3."""
    if data[:1] not in (b"", b"\5"):
        return BAD
    if len(data) < 2 or len(data) < 2 + data[1]:
        return None
    methods = data[2:2 + data[1]]
    return {"length": 2 + len(methods), "offers_none": 0 in methods,
            "offers_password": 2 in methods}


def read_password(data: bytes) -> Answer:
    """RFC 1929 section 2."""
    if data[:1] not in (b"", b"\1"):
        return BAD
    texts, at = [], 1
    for _ in range(2):
        if len(data) <= at or len(data) < at + 1 + data[at]:
            return None
        texts.append(data[at + 1:at + 1 + data[at]])
        at += 1 + len(texts[-1])
    return {"length": at, "name": texts[0], "secret": texts[1]}


def read_socks5_request(data: bytes) -> Answer:
    """RFC 1928 section 4."""
    if data[:1] not in (b"", b"\5"):
        return BAD
    if data[2:3] not in (b"", b"\0"):
        return BAD
    found = read_destination(data[3:])
    if not isinstance(found, dict):
        return found
    if found["port"] == 0 and data[1] != 3:
        return BAD_TARGET
    return found | {"length": 3 + found["length"], "command": data[1]}


def read_destination(data: bytes) -> Answer:
    """RFC 1928 section 5."""
    if not data:
        return None
    if data[0] not in (1, 3, 4):
        return BAD_TARGET
    if len(data) < 2:
        return None
    at, size = {1: (1, 4), 3: (2, data[1]), 4: (1, 16)}[data[0]]
    if len(data) < at + size + 2:
        return None
    host, (port,) = data[at:at + size], struct.unpack_from(">H", data, at + size)
    known = named(host) if data[0] == 3 else (text_of(host), host)
    if known is None:
        return BAD_TARGET
    return {"length": at + size + 2, "host": known[0], "address": known[1],
            "port": port}


def named(text: bytes) -> tuple[str, bytes] | None:
    """The canonical host and, if it is an address, its octets."""
    if b"[" in text or b"]" in text:
        return None
    found = read_host(b"[" + text + b"]" if b":" in text else text)
    if found is None:
        return None
    host, kind = found
    families = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
    return host, socket.inet_pton(families[kind], host) if kind in families else b""


def text_of(packed: bytes) -> str:
    return socket.inet_ntop(
        socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def read_socks4_request(data: bytes) -> Answer:
    if data[:1] not in (b"", b"\4"):
        return BAD
    if len(data) < 8:
        return None
    command, port, address = struct.unpack_from(">xBH4s", data)
    if port == 0:
        return BAD_TARGET
    is_named = address[:3] == b"\0\0\0" and address[3] != 0
    at, texts = 8, []
    for refusal in (BAD, BAD_TARGET) if is_named else (BAD,):
        text, zero, _ = data[at:].partition(b"\0")
        if len(text) > MOST_TEXT:
            return refusal
        if not zero:
            return None
        texts.append(text)
        at += len(text) + 1
    known = named(texts[1]) if is_named else (text_of(address), address)
    if known is None:
        return BAD_TARGET
    return {"length": at, "command": command, "host": known[0], "address": known[1],
            "port": port}


def read_datagram_header(data: bytes) -> Answer:
    """RFC 1928 section 7; None: it is dropped."""
    if data[:3] != b"\0\0\0":
        return None
    found = read_destination(data[3:])
    if not isinstance(found, dict) or found["port"] == 0:
        return None
    return found | {"length": 3 + found["length"]}
