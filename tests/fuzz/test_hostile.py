"""Every hostile request through the whole proxy, with the right credentials.

It is refused and the connection closed, or the origin sees exactly the one message that
the table of tests/wire/hostile.py names; never a second one, never a half-believed one.
"""

import asyncio
import contextlib
import re
import zlib
from collections.abc import Iterator

import pytest

from tests.fuzz.session import TOKEN, Peer, Stage, authority_of
from tests.wire import hostile, twin

DONE = b"HTTP/1.1 204 No\r\n\r\n"


@pytest.fixture(scope="module")
def made() -> Iterator[Stage]:
    with contextlib.closing(Stage(asyncio.new_event_loop)) as stage:
        yield stage


@pytest.fixture
def stage(made: Stage) -> Stage:
    return made


def whole_messages(origin: Peer) -> list[hostile.Seen]:
    """What an origin that reads by the grammar makes of what came."""
    rest, seen = origin.heard, []
    while isinstance(head := twin.read_request(rest, head_bytes=1 << 16), twin.Head):
        rest = rest[head.length:]
        framing = twin.read_request_framing(head)
        assert isinstance(framing, twin.Framing), framing
        if framing.kind == "chunked":
            body = twin.read_chunks(rest)
            if not isinstance(body, twin.Chunked):
                break
            seen.append(hostile.Seen(*head.first, body.data))
            rest = rest[body.length:]
        elif framing.length <= len(rest):
            seen.append(hostile.Seen(*head.first, rest[:framing.length]))
            rest = rest[framing.length:]
        else:
            break
    return seen


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_hostile_request_reaches_nobody_or_as_one_message(
    stage: Stage, pieces: int
) -> None:
    # R7, R8, R9, R11, R16; the table has over a thousand rows.
    host = authority_of(stage.origin)
    for row in hostile.ROWS:
        request = hostile.fill(row.request, host, b"Basic " + TOKEN)
        cut = zlib.crc32(request) % len(request) if pieces == 2 else len(request)
        with stage.played() as client:
            for piece in (request[:cut], request[cut:]):
                client.send(piece)
                stage.turn()
            if row.seen and stage.origins:
                stage.origins[-1].send(DONE)
                stage.turn()
        seen = [one for origin in stage.origins for one in whole_messages(origin)]
        assert seen == ([row.seen] if row.seen else []), row.name
        assert not stage.tunnels, row.name
        status = re.match(rb"HTTP/1.1 ([0-9]{3}) ", client.heard)
        assert status is not None, row.name
        if row.seen:
            assert status[1] == b"204", (row.name, client.heard)
        else:
            assert status[1] in (b"400", b"414", b"431", b"501", b"505"), row.name
            assert client.ended, row.name
            assert client.heard.count(b"HTTP/1.1 ") == 1, row.name
