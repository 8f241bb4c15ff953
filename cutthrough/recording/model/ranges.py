"""The numbers, and the head of an answer, that a recording may have. Recordings of
files are checked by `checked`, those of a session when a worker reads them, and changed
ones before they are sent."""

from collections.abc import Iterator

import msgspec

from cutthrough.exchange.formats.imported import MOST_US, NotImported
from cutthrough.recording.model.recorded_heads import NotSent, build_head
from cutthrough.recording.model.recording import Recording, Response, find

# Hits, and bytes of a request's body
MOST_COUNT = 1 << 53
MOST_PORT = MOST_CODE = 0xFFFF
SWITCHED = 101

_ENCODE = msgspec.msgpack.Encoder().encode


def checked(recording: Recording) -> Recording:
    """The same. Raises NotImported if it could not be kept, or not be replayed."""
    if not can_be_sent(recording.response):
        raise NotImported(f"the status {recording.response.status!r:.20} is none")
    for what, number, least, most in numbers_of(recording):
        if not least <= number <= most:
            raise NotImported(f"{what}: {number!r:.20} is not in {least} to {most}")
    try:
        if find(recording.response.fields, "transfer-encoding"):
            raise NotSent("Transfer-Encoding is the proxy's own")
        if not recording.template:
            build_head(recording.response, recording.request.method, minor=1)
        _ENCODE(recording)
    except NotSent as error:
        raise NotImported(f"the answer: {error}") from None
    except (UnicodeError, OverflowError):
        raise NotImported("a text has halves of characters") from None
    return recording


def can_be_sent(response: Response) -> bool:
    """A client waits for another answer behind one of 1xx. Only a call that its client
    has left may have none."""
    status = response.status
    return 200 <= status <= 999 or status == SWITCHED or (
        status == 0 and response.cut_by_client)


def numbers_of(recording: Recording) -> Iterator[tuple[str, int, int, int]]:
    """Names and numbers, with the least and the most of each."""
    response = recording.response
    yield "port", recording.request.port, 0, MOST_PORT
    yield "number", recording.number, 0, MOST_COUNT
    yield "hits", recording.hits, 0, MOST_COUNT
    yield "created_us", recording.created_us, 0, MOST_US
    yield "delay_us", recording.delay_us, 0, MOST_US
    yield "head_us", response.head_us, 0, MOST_US
    yield "head_asked", response.head_asked, -1, MOST_COUNT
    yield "end_asked", response.end_asked, -1, MOST_COUNT
    for chunk in response.chunks:
        yield "at_us of a chunk", chunk.at_us, 0, MOST_US
        yield "asked of a chunk", chunk.asked, -1, MOST_COUNT
    for message in response.messages:
        yield "at_us of a message", message.at_us, 0, MOST_US
        yield "code of a message", message.code or 0, 0, MOST_CODE
