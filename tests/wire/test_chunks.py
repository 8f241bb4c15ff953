"""The chunk scanner: the same answer however the body is cut."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.wire import (
    ChunkScanner,
    passes_trailers,
    rewrite_request,
    rewrite_response,
)
from tests.wire.cases import Case, as_params
from tests.wire.replay import octets, scan, scan_every_way

GET = 1     # of http1.pxd
MAX_CHUNK_LINE = 4096
MAX_CHUNK_EXCESS = 16384
MAX_TRAILER_BYTES = {False: 8192, True: 65536}      # by `lenient`


@pytest.mark.parametrize("case", as_params("chunked"))
def test_chunked_body_is_read_as_told(case: Case) -> None:
    body = case.octets("chunked")
    if "refused" in case.blocks:
        assert scan_every_way(ChunkScanner, body, False) == "bad_framing"
        assert scan_every_way(ChunkScanner, body, True) == "bad_framing"
        return
    out, consumed = scan_every_way(ChunkScanner, body, False)
    assert out == case.octets("frame")
    data, also = scan_every_way(ChunkScanner, body, True)
    assert data == case.octets("data")
    assert consumed == also
    bare, also = scan_every_way(partial(ChunkScanner, trailers=False), body, False)
    assert bare == out[:out.rindex(b"0\r\n") + 3] + b"\r\n"
    assert consumed == also
    assert body[:consumed].endswith(b"\r\n\r\n")
    for more in (b"", b"\0", b"GET / HTTP/1.1\r\n\r\n"):
        assert scan(ChunkScanner, [body[:consumed] + more], False) == (out, consumed)


@pytest.mark.parametrize("body", [
    b"", b"5", b"5\r", b"5\r\nhell", b"5\r\nhello\r\n", b"0\r\n", b"0\r\n\r",
    b"0\r\nA: b\r\n", b"5;a"])
def test_body_that_is_not_whole_is_not_done(body: bytes) -> None:
    chunks = ChunkScanner()
    consumed, out = chunks.feed(body)
    assert consumed == len(body)
    assert not chunks.done
    assert out == body.replace(b";a", b"")


def test_nothing_is_consumed_after_the_end() -> None:
    chunks = ChunkScanner()
    assert chunks.feed(b"0\r\n\r\n") == (5, b"0\r\n\r\n")
    assert chunks.feed(b"0\r\n\r\n") == (0, b"")
    assert chunks.done


@pytest.mark.parametrize(("digits", "good"), [
    ("f" * 15, True), ("0" * 14 + "1", True), ("f" * 16, False), ("f" * 17, False),
    ("1" + "0" * 16, False), ("0" * 16, True), ("0" * 4081 + "f" * 15, True),
    ("0" * 4081 + "f" * 16, False), ("0" * 4097, False)])
def test_size_has_at_most_15_digits_behind_its_zeros(digits: str, good: bool) -> None:
    # R11: HAProxy CVE-2021-40346 was a counter that wrapped round.
    for pieces in ([f"{digits}\r\n".encode()], octets(f"{digits}\r\n".encode())):
        chunks = ChunkScanner()
        refused = any(isinstance(chunks.feed(piece), str) for piece in pieces)
        assert refused is not good


def test_size_line_has_a_limit() -> None:
    line = b"1;" + b"x" * (MAX_CHUNK_LINE - 1)
    assert ChunkScanner().feed(line) == (len(line), b"1")
    assert ChunkScanner().feed(line + b"x") == "bad_framing"
    chunks = ChunkScanner()
    for octet in octets(line):
        assert chunks.feed(octet)[0] == 1
    assert chunks.feed(b"x") == "bad_framing"


def test_limit_of_the_size_line_begins_anew_with_each() -> None:
    line = b"1;" + b"x" * 4000 + b"\r\ny\r\n"
    out, _ = scan(ChunkScanner, [line * 4 + b"0\r\n\r\n"], True)
    assert out == b"yyyy"


def chunk(size: int, extension: int) -> bytes:
    dressed = b";" + b"x" * extension if extension else b""
    return b"%x%b\r\n%b\r\n" % (size, dressed, b"d" * size)


@pytest.mark.parametrize(("size", "extension", "most"), [
    # The longest line that one may be, on one byte: 4095 + 1 + 2 octets, 18 free.
    (1, 4095, 4), (1, 100, 192), (1, 16, 16384), (100, 1000, 20)])
@pytest.mark.parametrize("decode", [False, True])
def test_size_lines_have_a_limit_over_a_message(size, extension, most, decode) -> None:
    # R31: each below its own limit, the extensions of a message could go on for ever.
    one = chunk(size, extension)
    line = len(b"%x" % size) + extension + 2
    assert (line - 16 - 2 * size) * most <= MAX_CHUNK_EXCESS
    assert (line - 16 - 2 * size) * (most + 1) > MAX_CHUNK_EXCESS
    good = one * most
    assert ChunkScanner(decode).feed(good)[0] == len(good)
    assert ChunkScanner(decode).feed(good + one) == "bad_framing"
    chunks = ChunkScanner(decode)
    assert {chunks.feed(octet)[0] for octet in octets(good)} == {1}
    assert "bad_framing" in map(chunks.feed, octets(one))


@pytest.mark.parametrize(("size", "extension"), [
    (1, 0), (1, 14), (64, 85), (4096, 4000), (65536, 100)])
def test_size_lines_in_proportion_to_their_data_have_none(size, extension) -> None:
    chunks = ChunkScanner()
    one = chunk(size, extension)
    many = max(1, (1 << 20) // len(one))
    for _ in range(4):
        assert chunks.feed(one * many)[0] == len(one) * many
    assert chunks.feed(b"0\r\n\r\n") == (5, b"0\r\n\r\n")


def test_data_pays_for_the_lines_before_it_but_not_for_later_ones() -> None:
    lines = chunk(1, 4000) * 4
    assert ChunkScanner().feed(lines + chunk(20000, 0) + lines)[0] > 0
    assert ChunkScanner().feed(chunk(20000, 0) + lines + chunk(1, 4000)) == (
        "bad_framing")


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    "trailer", [b"A: " + b"x" * 70000, b"x" * 70000, b"A:bc\r\n" * 14000])
def test_trailer_section_has_a_limit(trailer: bytes, lenient: bool) -> None:
    chunks = ChunkScanner(lenient=lenient)
    most = b"0\r\n" + trailer[:MAX_TRAILER_BYTES[lenient]]
    assert chunks.feed(most) == (len(most), most)
    assert chunks.feed(trailer[MAX_TRAILER_BYTES[lenient]:]) == "bad_framing"


@pytest.mark.parametrize("name", [
    "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive",
    "Proxy-Connection", "TE", "Trailer", "Upgrade", "Via", "Proxy-Authorization",
    "Proxy-Authenticate", "Proxy-Authentication-Info", "Authorization", "Expect",
    "Max-Forwards", "HTTP2-Settings"])
def test_field_that_must_not_come_in_trailers_is_dropped(name: str) -> None:
    # R15; the message was ended, though RFC 9110 section 6.5.1 lets a field be dropped.
    for spelling in (name, name.lower(), name.upper()):
        body = f"0\r\nX: y\r\n{spelling}: z\r\n{spelling}:\r\nZ: a\r\n\r\n".encode()
        got = scan_every_way(ChunkScanner, body, False)
        assert got == (b"0\r\nX: y\r\nZ: a\r\n\r\n", len(body))
        silent = partial(ChunkScanner, trailers=False)
        assert scan_every_way(silent, body, False) == (b"0\r\n\r\n", len(body))
    for other in (name + "x", "x" + name, name[1:]):
        body = f"0\r\n{other}: z\r\n\r\n".encode()
        assert scan_every_way(ChunkScanner, body, False) == (body, len(body))


@pytest.mark.parametrize("padding", [" ", "\t", " \t  "])
def test_a_size_that_only_white_space_follows_is_read_of_a_response(padding) -> None:
    # Peers pass it. Two readers may take it in two ways: the connection ends with it.
    body = f"5{padding}\r\nhello\r\n0{padding}\r\n\r\n".encode()
    assert scan_every_way(ChunkScanner, body, False) == "bad_framing"
    reply = partial(ChunkScanner, lenient=True)
    frame = b"5\r\nhello\r\n0\r\n\r\n"
    assert scan_every_way(reply, body, False) == (frame, len(body))
    for text, odd in ((body, True), (frame, False), (b"0 ;a\r\n\r\n", False)):
        chunks = ChunkScanner(lenient=True)
        chunks.feed(text)
        assert (chunks.done, chunks.padded) == (True, odd)


@pytest.mark.parametrize(("connection", "passes"), [
    ("", True), ("close", True), ("CLOSE , keep-alive", True), ("TE, Upgrade", True),
    ("Transfer-Encoding, Max-Forwards", True), (",, ,", True),
    ("Digest", False), ("close, x-t", False), ("closed", False), ("clos", False),
    ("Date", False), ("cookie", False)])
def test_trailers_go_on_unless_connection_names_a_field(connection, passes) -> None:
    # RFC 9110 section 7.6.1. The `Trailer` line goes with the field.
    for name in ("Connection", "Proxy-Connection"):
        fields = (f"Host: a\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n"
                  f"{name}: {connection}\r\n{name}: close\r\n\r\n")
        request = f"POST http://a/ HTTP/1.1\r\n{fields}".encode()
        response = f"HTTP/1.1 200 OK\r\n{fields}".encode()
        assert passes_trailers(request) is passes_trailers(response, GET) is passes
        assert (b"Trailer: Digest\r\n" in rewrite_request(request)[0]) is passes
        assert (b"Trailer: Digest\r\n" in rewrite_response(response)) is passes


def test_a_message_that_is_not_chunked_has_no_trailers() -> None:
    for fields in ("Content-Length: 5", "X: y"):
        head = f"POST / HTTP/1.1\r\n{fields}\r\n\r\n".encode()
        assert not passes_trailers(head)


class Body:
    """A chunked body made together with its expected result."""

    def __init__(self, chunks: list[bytes], extension: bytes, trailers: bytes) -> None:
        def line(n: int, dressed: bytes) -> bytes:
            return b"%x" % n + dressed + b"\r\n"

        def written(dressed: bytes) -> bytes:
            return b"".join(line(len(c), dressed) + c + b"\r\n" for c in chunks) + line(
                0, dressed) + trailers + b"\r\n"

        self.data = b"".join(chunks)
        self.wire = written(extension)
        self.frame = written(b"")
        self.bare = self.frame.removesuffix(trailers + b"\r\n") + b"\r\n"


BODIES = st.builds(
    Body, st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    st.sampled_from([b"", b";", b";a=b", b'; x="y z"', b" ;a", b"\t \t; b = c"]),
    st.sampled_from([b"", b"A:\r\n", b"Digest: x\r\nB: \xff\t\r\n"]))


@given(BODIES, st.lists(st.integers(1, 30), max_size=40), st.booleans(), st.booleans())
@settings(deadline=None)
def test_any_body_in_any_pieces_comes_to_its_data(body, cuts, decode, trailers) -> None:
    pieces, rest = [], body.wire
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    scanner = partial(ChunkScanner, trailers=trailers)
    got = scan(scanner, [piece for piece in [*pieces, rest] if piece], decode)
    out = body.frame if trailers else body.bare
    assert got == (body.data if decode else out, len(body.wire))


@given(BODIES, st.integers(0, 200), st.binary(min_size=1, max_size=2), st.booleans())
@settings(max_examples=300, deadline=None)
def test_damaged_body_is_read_alike_whole_and_byte_by_byte(
    body, at, damage, decode
) -> None:
    wire = body.wire[:at] + damage + body.wire[at + 1:] + b"0\r\n\r\n"

    def read(pieces: list[bytes]) -> tuple[bytes, bool, bool]:
        chunks, out = ChunkScanner(decode), b""
        for piece in pieces:
            got = chunks.feed(piece)
            if isinstance(got, str):
                return b"", False, True
            out += got[1]
            if chunks.done:
                break
        return out, chunks.done, False

    assert read([wire]) == read(octets(wire))
