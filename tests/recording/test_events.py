"""Server-sent events are read from the chunks of an answer, with their times."""

import time

import pytest

from cutthrough.recording.model import events as _events
from cutthrough.recording.model.events import read_events
from cutthrough.recording.model.recording import Chunk, Message, Response

STREAM = (("Content-Type", "text/event-stream; charset=utf-8"),)
BODY = (b"\xef\xbb\xbf: hello\r\nid: 1\r\ndata: a\r\ndata:b\r\n\r\n"
        b"event: tick\ndata: \xc3\xa9\n\nevent: none\n\nid:2\rdata\r\rdata: cut")
EVENTS = [(b"a\nb", "message", "1"), ("é".encode(), "tick", "1"), (b"", "message", "2")]


def answer(*pieces, fields=STREAM):
    return Response(status=200, fields=fields, chunks=tuple(
        Chunk(number, piece) for number, piece in enumerate(pieces)))


def test_an_event_is_read_at_every_split():
    for at in range(len(BODY) + 1):
        found = read_events(answer(BODY[:at], BODY[at:]))
        assert [(one.data, one.event, one.id) for one in found] == EVENTS
        assert all(one.at_us in (0, 1) for one in found)
    bytewise = read_events(answer(*(BODY[at:at + 1] for at in range(len(BODY)))))
    assert [(one.data, one.event, one.id) for one in bytewise] == EVENTS


def test_an_event_has_the_time_of_the_empty_line_behind_it():
    found = read_events(answer(b"data: a\n", b"", b"\ndata: b\n\nda", b"ta: c\n\n"))
    assert found == [
        Message(at, False, "event", data, event="message")
        for at, data in ((2, b"a"), (2, b"b"), (3, b"c"))]


@pytest.mark.parametrize("fields", [
    (), (("Content-Type", "text/plain"),), (*STREAM, ("Content-Encoding", "gzip"))])
def test_what_is_no_stream_of_events_has_none(fields):
    assert read_events(answer(b"data: a\n\n", fields=fields)) == []


def test_a_stream_whose_last_line_has_no_end_takes_linear_time():
    """R66: from each octet on the line was read again, the square of its length."""
    begun = time.process_time()
    body = b"data: a\n\n" + b"x" * (1 << 20)
    assert list(_events._LINE.finditer(body))[2].start() == 9
    assert time.process_time() - begun < 2
