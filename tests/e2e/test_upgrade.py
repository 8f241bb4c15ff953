"""Upgrade: raw bytes only after a 101 that answers the offer (R4)."""

import asyncio

import pytest
import websockets
from websockets.asyncio.server import serve

from tests.support.client import build_request
from tests.support.origin import OK

OFFER = (
    "Connection: keep-alive, Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n"
    b"X-Kept: yes\r\n\r\n"
)


def upgrade(conn) -> None:
    head = conn.read_head()
    conn.note(head)
    conn.send(SWITCH + b"origin first")
    while conn.fill():
        conn.send(conn.take(len(conn.pending)).upper())


def test_a_matching_101_makes_a_tunnel(proxy, make_origin, dial):
    origin = make_origin(upgrade)
    client = dial()
    reply = client.get(origin.url("/chat"), *OFFER)
    assert (reply.status, reply.get("Upgrade"), reply.get("X-Kept")) == (
        101,
        "WebSocket",
        "yes",
    )
    assert client.read_exact(12) == b"origin first"
    client.send(b"now raw: \x00\xff")
    assert client.read_exact(11) == b"NOW RAW: \x00\xff"
    client.half_close()
    assert client.at_eof()
    (request,) = origin.requests
    assert (request.target, request.get("Upgrade")) == ("/chat", "websocket")
    assert "upgrade" in request.get("Connection").lower()
    assert request.get("Proxy-Authorization") is None
    record = proxy.wait_reason("ok")
    assert record["status"] == 101
    assert record["url"] == origin.url("/chat")


@pytest.mark.any_loop
@pytest.mark.parametrize("n", [1, 400, 4000])
def test_the_log_has_the_path_and_the_method_of_a_tunnel(proxy, make_origin, dial, n):
    origin, client = make_origin(upgrade), dial()
    path = f"/{'x' * n}?a=b"
    client.send(build_request("BREW", origin.url(path), *OFFER))
    assert client.read_response("BREW").status == 101
    assert client.read_exact(12) == b"origin first"
    client.close()
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["upgrade"]) == ("BREW", True)
    url, cut, rest = record["url"].partition("…")
    assert origin.url(path).startswith(url) and not rest
    assert cut or url == origin.url(path)
    assert len(url) > min(n, 2000)


def test_bytes_behind_the_offer_wait_for_the_101(proxy, make_origin, dial):
    """They are not a request, and without a 101 they are not raw bytes either."""
    client = dial()
    client.send(build_request("GET", make_origin(upgrade).url(), *OFFER) + b"early")
    assert client.read_response().status == 101
    assert client.read_exact(17) == b"origin firstEARLY"


@pytest.mark.any_loop
@pytest.mark.parametrize(
    ("offer", "switch"),
    [
        ((), SWITCH),
        (("Upgrade: websocket",), SWITCH),
        (("Connection: Upgrade", "Upgrade: h2c"), SWITCH),
        ((*OFFER, "Upgrade: other"), SWITCH.replace(b"Upgrade: WebSocket\r\n", b"")),
        (OFFER, SWITCH.replace(b"WebSocket", b"websocket2")),
    ],
    ids=[
        "no offer",
        "no Connection",
        "another protocol",
        "two offers, and no Upgrade in the 101",
        "a longer name",
    ],
)
def test_a_101_that_answers_no_offer_is_a_502(proxy, make_origin, dial, offer, switch):
    def script(conn):
        conn.read_head()
        conn.send(switch + b"raw")
        conn.stall()

    client = dial()
    reply = client.get(make_origin(script).url(), *offer)
    assert (reply.status, reply.error) == (502, "http_upgrade_failed")
    assert b"raw" not in client.received
    proxy.wait_reason("upgrade_failed")


@pytest.mark.any_loop
def test_a_101_that_cannot_be_read_is_a_502(proxy, make_origin, dial):
    """R18: not a byte of it had gone out, and the client was reset."""
    names = b"Connection: Upgrade" + b", x" * 1025
    switch = SWITCH.replace(b"Connection: Upgrade", names)
    assert switch != SWITCH
    origin = make_origin(lambda conn: [conn.read_head(), conn.send(switch)])
    reply = dial().get(origin.url(), *OFFER)
    assert (reply.status, reply.error) == (502, "http_protocol_error")
    proxy.wait_reason("bad_response")


@pytest.mark.any_loop
def test_an_offer_that_is_not_taken_is_a_request(proxy, make_origin, dial):
    """After a 200 the connection speaks HTTP on."""
    origin = make_origin()
    client = dial()
    for _ in range(2):
        assert client.get(origin.url(), *OFFER).body == b"ok"


@pytest.mark.any_loop
def test_an_offer_that_is_refused_leaves_no_raw_mode(proxy, make_origin, dial):
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 426 No\r\nUpgrade: other\r\nContent-Length: 0\r\n\r\n")
        conn.stall()

    after = make_origin()
    client = dial()
    client.send(build_request("GET", make_origin(script).url(), *OFFER))
    client.send(build_request("GET", after.url("/next")))
    assert client.read_response().status == 426
    assert client.read_response().body == b"ok"
    assert after.requests[0].target == "/next"


@pytest.mark.any_loop
@pytest.mark.parametrize("version", ["HTTP/1.0"])
def test_http_1_0_cannot_offer(proxy, make_origin, dial, version):
    """RFC 9110 section 7.8: an Upgrade in a 1.0 request is ignored."""
    origin = make_origin(lambda conn: (conn.read_request(), conn.send(OK)))
    assert dial().get(origin.url(), *OFFER, version=version).status == 200
    assert origin.requests[0].get("Upgrade") is None


@pytest.mark.parametrize("by", ["absolute form", "tunnel"])
def test_a_websocket_talks_through_the_proxy(proxy, dial, by):
    """The websockets package at both ends, over a connection that the proxy made."""

    async def mirror(connection):
        async for message in connection:
            await connection.send(message)

    async def talk() -> list:
        async with serve(mirror, "127.0.0.1", 0, compression=None) as server:
            port = server.sockets[0].getsockname()[1]
            if by == "tunnel":
                async with websockets.connect(
                    f"ws://127.0.0.1:{port}/", proxy=proxy.url
                ) as ws:
                    return await exchange(ws)
            # In absolute form: the head is ours to send, the frames are the package's.
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            try:
                return await raw_exchange(reader, writer, port)
            finally:
                writer.close()
                await writer.wait_closed()

    async def exchange(ws) -> list:
        echoed = []
        for message in ("text", b"\x00binary", "long " * 20_000):
            await ws.send(message)
            echoed.append(await asyncio.wait_for(ws.recv(), 10) == message)
        return echoed

    async def raw_exchange(reader, writer, port) -> list:
        from websockets.client import ClientProtocol
        from websockets.uri import parse_uri

        protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}/"))
        request = protocol.connect()
        protocol.send_request(request)
        protocol.data_to_send()
        fields = [
            f"{name}: {value}"
            for name, value in request.headers.raw_items()
            if name != "Host"
        ]
        writer.write(build_request("GET", f"http://127.0.0.1:{port}/", *fields))
        echoed = []
        for message in (b"text", b"long " * 20_000):
            while protocol.state is protocol.state.CONNECTING:
                protocol.receive_data(await asyncio.wait_for(reader.read(65536), 10))
                protocol.events_received()
            protocol.send_binary(message)
            writer.write(b"".join(protocol.data_to_send()))
            got = b""
            while len(got) < len(message):
                protocol.receive_data(await asyncio.wait_for(reader.read(65536), 10))
                got += b"".join(event.data for event in protocol.events_received())
            echoed.append(got == message)
        return echoed

    assert all(asyncio.run(talk()))
    assert proxy.wait_log(1)[0]["reason"] in ("ok", "client_closed", "client_reset")


RULE = """
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
"""
H2C = (
    "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")


@pytest.mark.any_loop
def test_an_upgrade_has_to_be_allowed_as_a_kind_of_its_own(
    start_policy, make_origin, dial
):
    """R4: with GET alone allowed, an offer and a 101 gave a raw tunnel."""
    proxy = start_policy(RULE + 'methods = ["GET"]')
    origin = make_origin(upgrade)
    reply = dial(proxy).get(origin.url("/chat"), *OFFER)
    assert (reply.status, reply.error) == (403, "http_request_denied")
    assert not origin.received
    (line,) = proxy.wait_log(1)
    assert (line["reason"], line["method"]) == ("destination_denied", "GET")
    assert line["upgrade"] is True
    # And a request without an offer passes as before, without that word in its line.
    assert dial(proxy).get(make_origin().url()).status == 200
    assert "upgrade" not in proxy.wait_log(2)[1]


@pytest.mark.any_loop
@pytest.mark.parametrize("methods", ['methods = ["UPGRADE"]', "",
                                     'methods = ["CONNECT", "UPGRADE"]'])
def test_an_upgrade_that_is_allowed_is_a_tunnel(
    start_policy, make_origin, dial, methods
):
    proxy = start_policy(RULE + methods)
    client = dial(proxy)
    assert client.get(make_origin(upgrade).url(), *OFFER).status == 101
    assert client.read_exact(12) == b"origin first"
    # UPGRADE allows nothing else.
    plain = dial(proxy).get(make_origin().url())
    assert plain.status == (200 if not methods else 403)


@pytest.mark.any_loop
@pytest.mark.parametrize("denied", ["GET", "DELETE"])
def test_a_method_that_is_denied_is_denied_with_an_offer(
        start_policy, make_origin, dial, denied):
    """Two fields took a request out of the rule, and its origin answered as usual."""
    proxy = start_policy(f"""
        default = "report"
        [[rules]]
        action = "deny"
        methods = ["{denied}"]
    """ + RULE)
    origin = make_origin()
    assert dial(proxy).ask(denied, origin.url()).status == 403
    assert dial(proxy).ask(denied, origin.url(), *OFFER).status == 403
    assert not origin.requests
    offered = dial(proxy).get(make_origin(upgrade).url(), *OFFER).status
    assert offered == (403 if denied == "GET" else 101)


@pytest.mark.any_loop
def test_a_rule_for_upgrades_allows_them_by_get(start_policy, make_origin, dial):
    proxy = start_policy(RULE + 'methods = ["UPGRADE"]')
    origin = make_origin()
    assert dial(proxy).ask("DELETE", origin.url(), *OFFER).status == 403
    assert not origin.requests


@pytest.mark.any_loop
def test_h2c_is_a_plain_request(start_policy, make_origin, dial):
    """Clients offer it unasked (curl --http2, Java); no peer passes it on."""
    proxy = start_policy(RULE + 'methods = ["GET"]')
    origin = make_origin()
    assert dial(proxy).get(origin.url(), *H2C).body == b"ok"
    (request,) = origin.requests
    for name in ("Upgrade", "HTTP2-Settings", "Connection"):
        assert request.get(name) is None
    assert "upgrade" not in proxy.wait_log(1)[0]


@pytest.mark.any_loop
def test_of_several_offers_h2c_is_left_out(proxy, make_origin, dial):
    origin = make_origin(upgrade)
    client = dial()
    fields = ("Connection: Upgrade", "Upgrade: h2c, WebSocket", "Upgrade: H2C")
    assert client.get(origin.url(), *fields).status == 101
    assert origin.requests[0].get("Upgrade") == "WebSocket"


@pytest.mark.any_loop
def test_a_101_to_h2c_is_no_answer_to_an_offer(proxy, make_origin, dial):
    def script(conn):
        conn.read_head()
        conn.send(SWITCH.replace(b"WebSocket", b"h2c") + b"raw")
        conn.stall()

    client = dial()
    assert client.get(make_origin(script).url(), *H2C).status == 502
    assert b"raw" not in client.received
    proxy.wait_reason("upgrade_failed")
