"""Origins that authenticate connections, as NTLM and Negotiate do (R23)."""

import threading

import pytest

from tests.support.certificates import localhost
from tests.support.client import Client
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.inside import ALL, HERE, ask, config, enter, over_tls
from tests.support.origin import Connection
from tests.support.origins import HOST, named
from tests.support.scripted_http2 import say, speak
from tests.support.tls_listener import table
from tests.support.users import BOB, HASH, USERS, basic

pytestmark = pytest.mark.any_loop

SCHEMES = pytest.mark.parametrize("scheme", ["NTLM", "Negotiate"])
LOCAL = f'[[rules]]\naction = "allow"\n{HERE}'
#: The requests of a handshake, and one that relies on it.
LEGS = ("one", "two", "")


def authenticate(conn: Connection) -> None:
    """A connection is alice's from the second leg on, if it had the first one."""
    begun = known = False
    while True:
        request = conn.read_request()
        scheme, _, leg = (request.get("authorization") or "NTLM").partition(" ")
        known |= begun and leg == "two"
        begun = leg == "one"
        body = b"alice" + request.body if known else b"nobody"
        field = b"" if known else b"WWW-Authenticate: %b next\r\n" % scheme.encode()
        conn.send(b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b" % (
            200 if known else 401, field, len(body), body))


def credentials(scheme: str, leg: str) -> list[str]:
    return [f"Authorization: {scheme} {leg}"] if leg else []


def log_in(client: Client, url: str, scheme: str = "NTLM", method: str = "GET",
           **more: object) -> list[bytes]:
    """The answers to both legs, and to a request behind them. As in curl the body comes
    with the second leg."""
    bodies = {"": b"", "one": b"", "two": b"" if method == "GET" else b"+body"}
    return [client.ask(
        method, url, *credentials(scheme, leg),
        *([] if method == "GET" else [f"Content-Length: {len(bodies[leg])}"]),
        body=bodies[leg], **more).body for leg in LEGS]


@SCHEMES
@pytest.mark.parametrize(("method", "last"), [
    ("GET", b"alice"), ("POST", b"alice+body")])
def test_a_handshake_of_two_legs(proxy, make_origin, dial, scheme, method, last):
    origin = make_origin(authenticate)
    assert log_in(dial(), origin.url(), scheme, method) == [b"nobody", last, b"alice"]
    assert len(origin.connections) == 1


def test_nobody_else_is_alice(proxy, make_origin, dial):
    origin = make_origin(authenticate)
    alice = dial()
    assert log_in(alice, origin.url())[-1] == b"alice"
    assert dial().get(origin.url()).body == b"nobody"
    assert alice.get(origin.url()).body == b"alice"
    assert dial().get(origin.url(), *credentials("NTLM", "two")).body == b"nobody"


def test_another_user_of_the_connection_is_not_alice(start_policy, make_origin, dial):
    origin = make_origin(authenticate)
    proxy = start_policy(f'{USERS}users.ann.password = "{HASH}"\n{LOCAL}')
    client, ann = dial(proxy), basic("ann:secret")
    assert log_in(client, origin.url(), auth=ann)[-1] == b"alice"
    assert client.get(origin.url(), auth=BOB).body == b"nobody"
    assert client.get(origin.url(), auth=ann).body == b"alice"


def test_it_ends_with_its_client(proxy, make_origin, dial):
    ended = threading.Event()

    def script(conn: Connection) -> None:
        try:
            authenticate(conn)
        finally:
            ended.set()

    origin = make_origin(script)
    client = dial()
    assert log_in(client, origin.url())[-1] == b"alice"
    client.close()
    assert ended.wait(10)
    assert dial().get(origin.url()).body == b"nobody"


def test_a_client_has_one(proxy, make_origin, dial):
    """The last one: each of many would be a connection that nobody else can use."""
    first, second = make_origin(authenticate), make_origin(authenticate)
    client = dial()
    log_in(client, first.url())
    assert log_in(client, second.url())[-1] == b"alice"
    assert client.get(first.url()).body == b"nobody"
    assert client.get(second.url()).body == b"alice"


@SCHEMES
def test_inside_a_tunnel(start_policy, make_origin, dial, scheme):
    proxy, origin = start_policy(ALL, config()), make_origin(over_tls(authenticate))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"nobody"
    assert [ask(client, "POST", "/", *credentials(scheme, leg), "Content-Length: 1",
                body=b"x").body for leg in LEGS] == [b"nobody", b"alicex", b"alicex"]
    assert ask(enter(proxy, dial(proxy), origin.port)).body == b"nobody"


def test_inside_a_tunnel_to_an_origin_of_http2(start_policy, make_origin, dial):
    """Connections of HTTP/2 are shared: such a request has one of HTTP/1.1."""
    pytest.importorskip("cutthrough.http2.transport")
    by_1, by_2 = over_tls(authenticate), speak(say)
    scripts = [by_2, by_1]
    proxy = start_policy(ALL, config())
    origin = make_origin(lambda conn: scripts.pop(0)(conn))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/path").body == b"/path"
    assert [ask(client, "GET", "/", *credentials("NTLM", leg)).body
            for leg in LEGS] == [b"nobody", b"alice", b"alice"]


def test_behind_filters(start_policy, make_origin, dial):
    proxy = start_policy(
        '[filters.both]\ncode = "both:Both"\n' + LOCAL + 'filters = ["both"]\n',
        modules={"both": """
class Both:
    async def on_request_body(self, flow, body): return body
    async def on_response_body(self, flow, body): return body
"""})
    origin = make_origin(authenticate)
    assert log_in(dial(proxy), origin.url(), "NTLM", "POST") == [
        b"nobody", b"alice+body", b"alice"]


def test_where_callers_share_connections_there_is_none(start_policy, make_origin, dial):
    """A listener that believes proxies, and a named origin: their next request may be
    another caller's."""
    origin = make_origin(authenticate)
    proxy = start_policy(LOCAL, '[[listeners]]\naddress = "127.0.0.1:0"\n'
                                'forwarded_from = ["127.0.0.2/31"]\n')
    assert log_in(dial(proxy), origin.url())[-1] == b"nobody"
    proxy = start_policy(
        f'[[rules]]\naction = "allow"\nhosts = ["{HOST}"]\norigin = "api"\n',
        named(origin))
    assert log_in(dial(proxy), "/x", host=HOST)[-1] == b"nobody"


def test_streams_of_http2_have_none(start_proxy, make_origin, reach):
    pytest.importorskip("cutthrough.http2.transport")
    origin = make_origin(authenticate)
    peer = reach(start_proxy(config=table(localhost(), **BOTH)))
    for leg in LEGS:
        fields = [("authorization", f"NTLM {leg}")] if leg else []
        stream = peer.get(origin.url(), LOGIN, *fields)
        peer.wait(stream)
        assert bytes(peer.answers[stream].body) == b"nobody"
