"""Frames of a WebSocket octet by octet, as RFC 6455 section 5.2 draws them: slow, and
obviously so. `same_messages` compares it with the reader of captures."""

import base64
import json
from collections.abc import Iterator

from cutthrough.exchange.messages import Piece, read_websocket
from cutthrough.exchange.redaction.redactor import Options, Redactor

HEAD = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
KINDS = {1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}
REDACTOR = Redactor(Options())

Found = list[tuple[str, bytes, int, bool]]   # kind, content, its last octet, is it cut


class Malformed(Exception):
    pass


def read_messages(data: bytes) -> tuple[Found, bool]:
    """The messages, and whether the bytes behind them are no frames."""
    found: Found = []
    begun: list[tuple[str, bytearray, int]] = []
    octets = enumerate(data)
    try:
        while read_frame(octets, found, begun):
            pass
    except Malformed:
        return found, True
    if begun:
        kind, content, at = begun.pop()
        found.append((kind, bytes(content), at, True))
    return found, False


def read_frame(octets: Iterator[tuple[int, int]], found: Found,
               begun: list[tuple[str, bytearray, int]]) -> bool:
    """False: the octets have ended."""
    try:
        _, first = next(octets)
        at, second = next(octets)
        size = second % 128
        if size >= 126:
            more = 2 if size == 126 else 8
            size = 0
            for _ in range(more):
                at, octet = next(octets)
                size = size * 256 + octet
    except StopIteration:
        return False
    opcode, is_last = first % 16, first >= 128
    check(first, opcode, is_last, size, bool(begun))
    content, mask, cut = bytearray(), [0, 0, 0, 0], False
    try:
        if second >= 128:
            for n in range(4):
                at, mask[n] = next(octets)
        for n in range(size):
            at, octet = next(octets)
            content.append(octet ^ mask[n % 4])
    except StopIteration:
        cut = True
    if opcode >= 8:
        found.append((KINDS[opcode], bytes(content), at, cut))
        return not cut
    kind, before, _ = begun.pop() if begun else (KINDS[opcode], bytearray(), 0)
    if is_last or cut:
        found.append((kind, bytes(before + content), at, cut))
    else:
        begun.append((kind, before + content, at))
    return not cut


def check(first: int, opcode: int, is_last: bool, size: int, is_inside: bool) -> None:
    if first // 16 % 8 or size >= 1 << 63:
        raise Malformed
    if opcode >= 8:
        if not is_last or size > 125 or opcode not in KINDS:
            raise Malformed
    elif (opcode == 0) != is_inside or (opcode and opcode not in KINDS):
        raise Malformed


def content_of(message: dict) -> bytes:
    content = base64.b64decode(message["base64"]) if "base64" in message else (
        message.get("text", "").encode())
    return message["code"].to_bytes(2) + content if "code" in message else content


def same_messages(data: bytes, size: int) -> None:
    """Compares the captured messages of `data` that came in pieces of `size`."""
    pieces = [Piece(True, at, data[at:at + size]) for at in range(0, len(data), size)]
    text, state = read_websocket(pieces, HEAD, whole=True, redactor=REDACTOR)
    theirs, is_malformed = read_messages(data)
    theirs.sort(key=lambda one: one[2] // size)          # by the piece that ends it
    ours = json.loads(text)
    assert (state == "malformed") == is_malformed, (state, is_malformed)
    assert len(ours) == len(theirs), (ours, theirs)
    for one, (kind, content, at, cut) in zip(ours, theirs, strict=True):
        assert (one["kind"], one["bytes"]) == (kind, len(content))
        assert one["at_us"] == at // size * size
        assert one.get("state") == ("truncated" if cut else None)
        if not cut and (kind != "close" or len(content) != 1):
            assert content_of(one) == content
