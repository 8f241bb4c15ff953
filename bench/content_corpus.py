"""Hostile content for `python -m bench content-soak`: functions that make messages.

Each message is small to send, at most 1 MB, and costly or odd to read. The same body
comes as a request's or as an answer's.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
EVENTS = "text/event-stream"
#: Most octets of a body, and of a query.
MOST_BODY, MOST_QUERY = 1 << 20, 6000


@dataclass(frozen=True)
class Content:
    """`piece`: octets of each chunk; 0: the message has a Content-Length."""

    body: bytes = b""
    kind: str = JSON
    coding: str = ""
    piece: int = 0
    query: str = ""

    def fields(self) -> str:
        coding = f"Content-Encoding: {self.coding}\r\n" if self.coding else ""
        return f"Content-Type: {self.kind}\r\n{coding}"


def lists(size: int) -> bytes:
    return b"[" + b"[]," * (size // 3) + b"[]]"


def deep(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + closing * depth


def charset() -> Content:
    name = random.choice(("punycode", "utf-7", "idna", "hex", "rot13", "raw_unicode_"
                          "escape", "utf-16", "shift_jis", "\x80", "x" * 300))
    return Content(b'{"password": "' + b"a-+AGEA-\xff\xfe" * 4000 + b'"}',
                   f"application/json; charset={name}")


def graphql() -> Content:
    query = '"""' + '\n\\"""' * 6000
    return Content(json.dumps({"query": query}).encode())


def multipart() -> Content:
    part = b"--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n"
    return Content(part * random.choice((1, 900, 9000)) + b"x" * 1000,
                   "multipart/form-data; boundary=b")


def nested_parts() -> Content:
    body = b""
    for n in range(60):
        body += b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (
            n, n + 1)
    return Content(body, "multipart/mixed; boundary=b0")


def documents() -> Content:
    """JSON in a string of JSON, and so on."""
    text = '{"password": 1}'
    for _ in range(12):
        text = json.dumps({"a": text})
    return Content(text[:MOST_BODY].encode())


def yaml() -> Content:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    return Content("\n".join(lines).encode(), "application/yaml")


def doctype() -> Content:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 20))
    return Content(f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e0 "x">{entities}'
                   '<!ENTITY f SYSTEM "file:///etc/hostname">]><r>&e19;&f;</r>'.encode(),
                   "application/xml")


CORPUS: dict[str, Callable[[], Content]] = {
    "surrogates": lambda: Content(
        b'{"\\ud800": "\\udfff\\ud800", "password": "\\ud83d"}' * 50),
    "surrogate_octets": lambda: Content(b'{"a": "\xed\xa0\x80\xed\xbf\xbf"}'),
    "deep_lists": lambda: Content(deep(random.choice((150, 5000, 400_000)))),
    "deep_objects": lambda: Content(deep(50_000, b'{"password":', b"}")),
    "empty_lists": lambda: Content(lists(random.choice((30_000, 900_000)))),
    "bomb": lambda: Content(gzip.compress(lists(12_000_000)), coding="gzip"),
    "bomb_of_zeros": lambda: Content(gzip.compress(bytes(64 << 20)), coding="gzip"),
    "bomb_in_bomb": lambda: Content(gzip.compress(gzip.compress(bytes(8 << 20))),
                                    coding="gzip, gzip"),
    "no_gzip": lambda: Content(b"\x1f\x8b\x08" + bytes(range(256)), coding="gzip"),
    "many_codings": lambda: Content(b"{}", coding=", ".join(["gzip", "br"] * 40)),
    "charset": charset,
    "graphql": graphql,
    "multipart": multipart,
    "nested_parts": nested_parts,
    "documents": documents,
    "octets": lambda: Content(b'{"password": "' + b"x" * 4000 + b'"}', piece=1),
    "events_by_cr": lambda: Content(b'data: {"password":\rdata: 1}\r\r' * 2000, EVENTS,
                                    piece=700),
    "events_without_end": lambda: Content(b"data: " * 100_000, EVENTS, piece=9000),
    "events_by_all": lambda: Content(
        b"data: {\r\ndata:\r: c\ndata: }\n\rid\x00\xff\n\n" * 3000, EVENTS),
    "form": lambda: Content(b"a=b&" * 250_000, FORM),
    "form_of_percent": lambda: Content(b"%25" * 300_000 + b"=%70assword", FORM),
    "form_of_odd_percent": lambda: Content(b"%&%2&%zz=%&" * 50_000, FORM),
    "percent_query": lambda: Content(query="?" + "%252525" * 800 + "=%2574oken"),
    "query": lambda: Content(query="?" + "a=b&" * 1500 + "token[]=x"),
    "paths": lambda: Content(
        b"[" + b'{"a":[{"b":[{"c":[{"password":[]}]}]}]},' * 9000 + b"{}]"),
    "repeated_keys": lambda: Content(
        b"{" + b'"password":1,"\\u0070assword":2,' * 20_000 + b'"a":3}'),
    "numbers": lambda: Content(b"[" + b"1" * 500_000 + b"e" + b"9" * 5000 + b"]"),
    "escapes": lambda: Content(b'{"a": "' + b"\\u0070\\\\" * 60_000 + b'"}'),
    "jsonp": lambda: Content(b")]}'\n/**/" + b"f(" * 5000 + b'{"password":1}'),
    "lines": lambda: Content(b'{"password":"x"}\n' * 20_000, "application/x-ndjson"),
    "doctype": doctype,
    "yaml": yaml,
    "expression": lambda: Content(b"sk_live_" * 100_000, "text/plain"),
    "nothing": lambda: Content(b"\0" * 70_000, "text/html"),
    "claims_to_be_png": lambda: Content(b"\x89PNG\r\n\x1a\n" + b'"password":' * 5000,
                                        "image/png"),
    "type": lambda: Content(b"{}", "a/b" + ";a=b" * 1500),
}  # fmt: skip


def masked(opcode: int, length: int, payload: bytes) -> bytes:
    """A client's frame that says `length`, which its payload may not have."""
    return (bytes((opcode, 0xFF)) + length.to_bytes(8, "big") + bytes(4) + payload)


#: Frames of a WebSocket's client.
FRAMES: dict[str, Callable[[], bytes]] = {
    "reserved": lambda: b"\xff\x80" + bytes(4),
    "negative": lambda: masked(0x81, 1 << 63, b"x"),
    "unmasked": lambda: b"\x81\x05hello",
    "continued": lambda: masked(0x80, 3, b"abc") * 50,
    "fragments": lambda: masked(0x01, 1, b"{") + masked(0, 1, b"[") * 20_000,
    "no_text": lambda: masked(0x81, 4, b"\xed\xa0\x80\xff"),
    "no_deflate": lambda: masked(0xC1, 300, bytes(range(200)) + bytes(100)),
    "large_ping": lambda: masked(0x89, 5000, bytes(5000)),
    "noise": lambda: random.randbytes(20_000),
}
