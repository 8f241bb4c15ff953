"""Holds the wire room against its twin; for the properties and for the fuzz targets."""

from cutthrough.wire.target import read_request_target
from tests.doors.wire import ChunkScanner, passes_trailers, read_framing
from tests.wire import twin
from tests.wire.replay import octets

# Numbers of http1.pxd.
NUMBERS = {b"GET": 1, b"HEAD": 2, b"POST": 3, b"OPTIONS": 6, b"TRACE": 7,
           b"CONNECT": 8}


def same_head(ours: dict | str | None, theirs: twin.Head | str | None) -> bool:
    """Holds one against the other. Is it a head?"""
    if not isinstance(theirs, twin.Head):
        assert ours == theirs
        return False
    assert isinstance(ours, dict), ours
    first = ("status", "reason") if "status" in ours else ("method", "target")
    assert tuple(ours[name] for name in first) == theirs.first
    assert (ours["minor"], ours["length"]) == (theirs.minor, theirs.length)
    assert [field[:2] for field in ours["fields"]] == theirs.fields
    assert ours.get("lenient", False) == theirs.lenient
    return True


def same_target(data: bytes, theirs: twin.Head) -> None:
    ours, target = read_request_target(data), twin.read_target(theirs)
    if isinstance(target, str):
        assert ours == target
        return
    assert isinstance(ours, dict), ours
    assert twin.Target(*(ours[name] for name in twin.Target._fields)) == target


def same_body(data: bytes, theirs: twin.Head) -> None:
    framing = twin.read_request_framing(theirs)
    assert read_framing(data) == framing
    if framing[0] == "chunked":
        assert passes_trailers(data) == twin.passes_trailers(theirs)


def same_reply_body(data: bytes, theirs: twin.Head, method: bytes) -> None:
    ours = read_framing(data, NUMBERS[method])
    assert ours == twin.read_response_framing(theirs, method)
    if ours[0] == "chunked":
        assert passes_trailers(data, NUMBERS[method]) == twin.passes_trailers(theirs)


def scan(
    pieces: list[bytes], decode: bool, trailers: bool = True, lenient: bool = False
) -> tuple[bytes, int] | str | None:
    """(bytes sent on, bytes consumed), the refusal's label, or None: not whole."""
    chunks, out, used = ChunkScanner(decode, trailers, lenient), b"", 0
    for piece in pieces:
        got = chunks.feed(piece)
        if isinstance(got, str):
            return got
        used += got[0]
        out += got[1]
    return (out, used) if chunks.done else None


def same_chunks(data: bytes) -> None:
    for decode, trailers, lenient in (
            (False, True, False), (False, False, False), (True, True, False),
            (False, True, True), (True, True, True)):
        expected = theirs = twin.read_chunks(data, lenient)
        if isinstance(theirs, twin.Chunked):
            out = theirs.frame if trailers else theirs.bare
            expected = (theirs.data if decode else out, theirs.length)
        assert scan([data], decode, trailers, lenient) == expected
        assert scan(octets(data), decode, trailers, lenient) == expected
