"""Fuzz targets of HTTP/2: fields of heads, frames of a client and of an origin."""

import contextlib
import zlib

from tests.doors.http2 import Carrier, head_of, response_of, size_of, trailers_of
from tests.doors.wire import read_request, read_response
from tests.http2 import twin
from tests.support.http2 import PREFACE, SETTINGS, frame, pair

#: Bytes that a socket pair holds
MOST = 60_000
QUESTION = b"POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n"
REPLY = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


def fuzz_fields(data: bytes) -> None:
    """Lines `name=value` are a header block: the twin's head, and one head of HTTP/1.1.
    An odd last octet: the stream ends with it."""
    ends = bool(data[-1:] and data[-1] & 1)
    fields = [(name, value) for name, _, value in (
        line.partition(b"=") for line in data.split(b"\n"))]
    if size_of(fields) > 16384:
        return
    head = head_of(fields, ends)
    theirs = twin.head_of(fields, ends)
    assert (None if isinstance(head, str) else head[0]) == theirs
    lines = twin.trailers_of(fields)
    assert trailers_of(fields) == ("malformed" if lines is None else lines)
    if not isinstance(head, str):
        answer = read_request(head[0], 0)
        assert not isinstance(answer, dict) or answer["length"] == len(head[0])


def fuzz_response(data: bytes) -> None:
    """The same of a response: one head of HTTP/1.1, or none."""
    ends = bool(data[-1:] and data[-1] & 1)
    fields = [(name, value) for name, _, value in (
        line.partition(b"=") for line in data.split(b"\n"))]
    if size_of(fields) > 16384:
        return
    head = response_of(fields, "HEAD" if data[-1:] and data[-1] & 2 else "GET", ends)
    if not isinstance(head, str):
        assert head[0].count(b"\r\n") <= len(fields) + 3
        answer = read_response(head[0], 0)
        assert not isinstance(answer, dict) or answer["length"] == len(head[0])


def play(pieces: list[bytes]) -> tuple[str, list[bytes]]:
    """The end that a carrier hears, and the bytes that its streams read."""
    ours, theirs = pair()
    heard = "all"
    texts: dict[object, bytes] = {}
    with ours, theirs:
        carrier = Carrier(ours.fileno())
        for piece in pieces:
            theirs.sendall(piece)
            heard = "some"
            while heard == "some":
                heard, due = carrier.hear()
                for stream in due:
                    texts[stream] = texts.get(stream, b"") + read(stream)
            if heard != "all":
                break
        for stream in texts:
            stream.send(REPLY)
            stream.half_close()
        for stream in carrier.lose():
            texts[stream] += read(stream)
        for stream in texts:
            stream.close()
        carrier.end()
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while theirs.recv(65536):
                pass
    return heard, [*texts.values()]


def read(stream) -> bytes:
    found = b""
    while isinstance(got := stream.recv(1000), bytes) and got:
        found += got
    return found


def fuzz_frames(data: bytes) -> None:
    """Frames behind the preface: nothing breaks, and no head depends on the split."""
    data = PREFACE + frame(SETTINGS) + data[:MOST]
    cut = zlib.crc32(data) % (len(data) + 1)
    heard, texts = play([data])
    again, others = play([data[:cut], data[cut:]])
    # A GOAWAY ends it as soon as no stream is open. A frame of a stream that was reset
    # is a fault until our RST_STREAM has gone, and is ignored then
    if heard == again == "all":
        # Between the pieces a reader may see a stream that is reset in the second
        heads = {text.partition(b"\r\n\r\n")[0] for text in texts}
        assert heads <= {text.partition(b"\r\n\r\n")[0] for text in others}


def ask(pieces: list[bytes]) -> tuple[str, list[bytes]]:
    """The end that a carrier hears from an origin, and the answers of two requests."""
    ours, theirs = pair()
    heard = "all"
    with ours, theirs:
        carrier = Carrier(ours.fileno(), asks=True)
        texts = {carrier.ask(): b"", carrier.ask(): b""}
        for stream in texts:
            stream.send(QUESTION)
        for piece in pieces:
            theirs.sendall(piece)
            heard = "some"
            while heard == "some":
                heard, due = carrier.hear()
                for stream in due:
                    texts[stream] += read(stream)
            if heard != "all":
                break
        for stream in texts:
            stream.send(b"3\r\nabc\r\n0\r\n\r\n")
        for stream in carrier.lose():
            texts[stream] += read(stream)
        for stream in texts:
            stream.close()
        carrier.end()
    return heard, [*texts.values()]


def fuzz_origin(data: bytes) -> None:
    """Frames of an origin: nothing breaks, and no response depends on the split."""
    data = frame(SETTINGS) + data[:MOST]
    cut = zlib.crc32(data) % (len(data) + 1)
    heard, texts = ask([data])
    again, others = ask([data[:cut], data[cut:]])
    if heard == again == "all":         # as above
        for text, other in zip(texts, others, strict=True):
            head, behind, _ = text.partition(b"\r\n\r\n")
            assert not behind or other.startswith(head)


TARGETS = {"http2_fields": fuzz_fields, "http2_frames": fuzz_frames,
           "http2_response": fuzz_response, "http2_origin": fuzz_origin}
