"""The hostile requests of tests/wire/hostile.py inside intercepted connections."""

import re
from collections.abc import Iterator

from tests.support.client import Client
from tests.support.inside import ALL, config, enter, over_tls
from tests.support.origin import Connection
from tests.wire import hostile

DONE = b"HTTP/1.1 204 No\r\n\r\n"


def rows() -> Iterator[hostile.Row]:
    """Those that do not depend on the target, in origin form."""
    for part in (hostile.codings, hostile.lengths, hostile.heads,
                 hostile.request_lines, hostile.chunks):
        for row in part():
            yield row._replace(request=row.request.replace(b"http://{host}", b""))


def everything(client: Client) -> bytes:
    """What the client is sent, up to the end or a whole answer."""
    while client.fill() and DONE[:12] not in client.received:
        pass
    return bytes(client.received)


def test_a_hostile_request_inside_has_the_verdict_of_one_outside(
        start_policy, make_origin, dial):
    """R7, R8, R9, R11, R16: refused and closed, or one message at the origin."""
    came: list[hostile.Seen] = []

    def answer(conn: Connection) -> None:
        rest = b""
        while conn.fill():
            found, rest = hostile.whole_messages(rest + conn.take(len(conn.pending)))
            came.extend(found)
            for _ in found:
                conn.send(DONE)

    proxy, origin = start_policy(ALL, config()), make_origin(over_tls(answer))
    host = f"a.example:{origin.port}".encode()
    for row in rows():
        came.clear()
        client = enter(proxy, dial(proxy), origin.port)
        behind = len(client.received)
        client.send(hostile.fill(row.request, host))
        heard = everything(client)[behind:]
        client.close()
        assert came == ([row.seen] if row.seen else []), row.name
        status = re.match(rb"HTTP/1.1 ([0-9]{3}) ", heard)
        assert status is not None, (row.name, heard)
        if row.seen:
            assert status[1] == b"204", (row.name, heard)
        else:
            assert status[1] in (b"400", b"414", b"431", b"501", b"505"), row.name
            assert heard.count(b"HTTP/1.1 ") == 1, row.name
