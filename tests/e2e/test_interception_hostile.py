"""The hostile requests of tests/wire/hostile.py inside intercepted connections."""

import base64
import re
from collections.abc import Iterator

import pytest

from tests.support.certificates import client_context
from tests.support.client import PASSWORD, USER, Client
from tests.support.http2 import PROTOCOL_ERROR, Peer
from tests.support.http2_listener import reach as reach
from tests.support.http2_listener import serve as serve
from tests.support.inside import ALL, config, enter, over_tls
from tests.support.origin import Connection
from tests.wire import hostile

pytestmark = pytest.mark.any_loop

DONE = b"HTTP/1.1 204 No\r\n\r\n"


def rows() -> Iterator[hostile.Row]:
    """The rows that do not depend on the target, in origin form."""
    for part in (hostile.codings, hostile.lengths, hostile.heads,
                 hostile.request_lines, hostile.chunks):
        for row in part():
            yield row._replace(request=row.request.replace(b"http://{host}", b""))


def everything(client: Client) -> bytes:
    """The bytes that the client gets, up to the end or a whole answer."""
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


# --- HTTP/2

Fields = list[tuple[bytes, bytes]]


def translated() -> Iterator[tuple[hostile.Row, Fields, bytes]]:
    """Row, fields and body of each row that HTTP/2 can express: lines become fields as
    they are, and DATA is all that follows the head."""
    for row in rows():
        head, _, body = row.request.replace(b"{auth}", b"").partition(b"\r\n\r\n")
        line, *lines = head.split(b"\r\n")
        words = line.split(b" ")
        if len(words) != 3 or words[2] != b"HTTP/1.1" or any(
                b":" not in one or one[:1] in b" \t:" for one in lines):
            continue                        # of a syntax that HTTP/2 does not have
        pairs = [(name.lower(), value.strip(b" \t")) for name, _, value in
                 (one.partition(b":") for one in lines)]
        fields = [pair for pair in pairs if pair[0] != b"host"]
        if [value for name, value in pairs if name == b"host"] == [b"{host}"]:
            yield row, [(b":method", words[0]), (b":path", words[1]), *fields], body


def verdict(peer: Peer, fields: Fields, body: bytes) -> tuple[int, int | None]:
    """Status and code of the reset of one stream; (0, None): its connection ended."""
    stream = peer.request(fields, ends=not body)
    if body:
        peer.send(stream, body, ends=True)
    found = peer.answers[stream]
    while not found.is_over and peer.read():
        pass
    peer.sock.close()
    return found.status, found.reset


def test_a_hostile_request_of_http_2_has_the_verdict_of_one_outside(
        start_policy, serve, reach, make_origin, dial):
    """If HTTP/1.1 refuses a message, it is refused; otherwise it is one message, or
    against a rule of HTTP/2: `te`, and DATA behind the end by Content-Length."""
    pytest.importorskip("cutthrough.http2.transport")
    came: list[hostile.Seen] = []

    def answer(conn: Connection) -> None:
        rest = b""
        while conn.fill():
            found, rest = hostile.whole_messages(rest + conn.take(len(conn.pending)))
            came.extend(found)
            for _ in found:
                conn.send(DONE)

    plain, secret = make_origin(answer), make_origin(over_tls(answer))
    outside, inside = serve(), start_policy(ALL, config())
    context = client_context()
    context.set_alpn_protocols(["h2"])
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    ways = (
        lambda: reach(outside), lambda: Peer(
            enter(inside, dial(inside), secret.port, context=context).sock))
    hosts = f"127.0.0.1:{plain.port}".encode(), f"a.example:{secret.port}".encode()
    logins = [(b"proxy-authorization", b"Basic " + login)], []
    verdicts: list[tuple[int, int | None, int]] = []
    for row, fields, body in translated():
        found = []
        for way, host, more in zip(ways, hosts, logins, strict=True):
            came.clear()
            asked = [(b":scheme", b"https" if way is ways[1] else b"http"),
                     (b":authority", host), *fields, *more]
            found.append((*verdict(way(), [
                (name, value.replace(b"{host}", host)) for name, value in asked],
                body), len(came)))
        assert found[0] == found[1], row.name
        if not row.seen:
            assert found[0][0] != 204 and not found[0][2], (row.name, found[0])
        elif found[0] != (204, None, 1):
            assert found[0] == (0, PROTOCOL_ERROR, 0), (row.name, found[0])
        verdicts.append(found[0])
    assert len(verdicts) > 800 and verdicts.count((204, None, 1)) > 10
