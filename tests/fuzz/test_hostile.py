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

from tests.fuzz.session import TOKEN, Stage, authority_of
from tests.wire import hostile

DONE = b"HTTP/1.1 204 No\r\n\r\n"


@pytest.fixture(scope="module")
def made() -> Iterator[Stage]:
    with contextlib.closing(Stage(asyncio.new_event_loop)) as stage:
        yield stage


@pytest.fixture
def stage(made: Stage) -> Stage:
    return made


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
        seen = [one for origin in stage.origins
                for one in hostile.whole_messages(origin.heard)[0]]
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
