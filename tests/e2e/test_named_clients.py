"""The client that a proxy in front of the listener names (`forwarded_from`), R40."""

import pytest

from tests.support.certificates import localhost
from tests.support.client import Client, build_request
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.inside import ALL, ask, config, okay, over_tls, shake
from tests.support.origin import echo
from tests.support.origins import HOST, named
from tests.support.tls_listener import table
from tests.support.users import basic

pytestmark = pytest.mark.any_loop

LISTENER = ('[[listeners]]\naddress = "127.0.0.1:0"\n'
            'forwarded_from = ["127.0.0.2/31"]\n')
LOCAL = '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'


@pytest.fixture
def call(opened):
    return lambda proxy, source="127.0.0.2": opened.enter_context(
        Client(proxy.port, source=source))


def names(proxy, n: int) -> list[str]:
    return [line["client"] for line in proxy.wait_log(n)]


@pytest.mark.parametrize(("fields", "client"), [
    (["X-Forwarded-For: 192.0.2.7"], "192.0.2.7"),
    (["x-forwarded-for: 6.6.6.6, 192.0.2.7"], "192.0.2.7"),
    (["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 192.0.2.7, 127.0.0.3"],
     "192.0.2.7"),
    (["X-Forwarded-For: 192.0.2.7:4711"], "192.0.2.7"),
    (["X-Forwarded-For: [2001:db8::7]:4711"], "2001:db8::7"),
    (["X-Forwarded-For: 2001:db8::7"], "2001:db8::7"),
    (["X-Forwarded-For: ::ffff:192.0.2.7"], "192.0.2.7"),
    (["X-Forwarded-For: 127.0.0.3, 127.0.0.2"], "127.0.0.3"),
    (["X-Forwarded-For: 192.0.2.7, unknown, 127.0.0.3"], "127.0.0.3"),
    (["X-Forwarded-For: unknown"], "127.0.0.2"),
    (["X-Forwarded-For: 192.0.2.7, "], "127.0.0.2"),
    (["X-Forwarded-For:"], "127.0.0.2"),
    (["X-Forwarded-For: 192.0.2.7:99999999"], "127.0.0.2"),
    (["X-Forwarded-For: 1.2.3"], "127.0.0.2"),
    (["X-Forwarded-For: fe80::1%lo"], "127.0.0.2"),
    (["X-Forwarded-Fox: 192.0.2.7"], "127.0.0.2"),
    (["X-Forwarded-For: 6.6.6.6" + 32 * ", 127.0.0.2"], "127.0.0.2"),
    ([], "127.0.0.2")])
def test_the_last_address_that_is_no_proxys_is_the_clients(
        keep_policy, make_origin, call, fields, client):
    proxy = keep_policy(LOCAL, LISTENER)
    assert call(proxy).get(make_origin().url(), *fields).status == 200
    assert names(proxy, 1) == [client]


def test_a_proxys_idle_connections_make_room_for_its_next(
        start_policy, make_origin, call):
    """They rested as their last clients', and the next connection was refused."""
    proxy = start_policy(LOCAL, "max_connections_per_client = 2\n" + LISTENER)
    url = make_origin().url()
    for host in range(5):
        field = f"X-Forwarded-For: 192.0.2.{host}"
        assert call(proxy).get(url, field).status == 200


def test_its_opened_tunnels_at_rest_make_room_too(start_policy, make_origin, call):
    """Requests inside are the client's that the CONNECT has named: nothing inside names
    another."""
    proxy = start_policy(ALL, config("max_connections_per_client = 2\n" + LISTENER))
    origin = make_origin(over_tls(okay))
    for host in range(5):
        client = call(proxy)
        assert client.ask("CONNECT", f"a.example:{origin.port}",
                          f"X-Forwarded-For: 192.0.2.{host}",
                          host=f"a.example:{origin.port}").status == 200
        shake(client)
        for _ in range(2):
            assert ask(client, "GET", "/", "X-Forwarded-For: 192.0.2.9").status == 200
    assert [line["client"] for line in proxy.wait_log(10, method="GET")] == [
        f"192.0.2.{host}" for host in range(5) for _ in range(2)]


def test_anybody_else_names_nobody(start_policy, make_origin, call):
    proxy, url = start_policy(LOCAL, LISTENER), make_origin().url()
    for source in ("127.0.0.1", "127.0.0.4"):
        assert call(proxy, source).get(url, "X-Forwarded-For: 192.0.2.7").status == 200
    assert names(proxy, 2) == ["127.0.0.1", "127.0.0.4"]
    other = start_policy(LOCAL)
    assert call(other).get(url, "X-Forwarded-For: 192.0.2.7").status == 200
    assert names(other, 1) == ["127.0.0.2"], "without the option nobody does"


def test_each_request_of_a_connection_names_its_own(start_policy, make_origin, call):
    proxy, url = start_policy(LOCAL, LISTENER), make_origin().url()
    client = call(proxy)
    wanted = ["192.0.2.7", "192.0.2.8", "", "192.0.2.9"]
    for name in wanted:
        assert client.get(url, *([f"X-Forwarded-For: {name}"] if name else [])
                          ).status == 200
    assert names(proxy, 4) == [name or "127.0.0.2" for name in wanted]


def test_rules_and_limits_see_the_client(start_policy, make_origin, call):
    proxy = start_policy("""
        [limits.default]
        per = "client"
        requests_per_second = 0.01
        burst = 2
        [[rules]]
        action = "deny"
        clients = ["192.0.2.66"]
        """ + LOCAL, LISTENER)
    client, url = call(proxy), make_origin().url()

    def ask(name: str) -> int:
        return client.get(url, f"X-Forwarded-For: {name}").status
    assert ask("192.0.2.66") == 403
    assert [ask("192.0.2.7") for _ in range(3)] == [200, 200, 429]
    assert ask("192.0.2.8") == 200, "another client of the same connection"


def test_wrong_credentials_delay_their_client_alone(start_policy, make_origin, call):
    proxy, url = start_policy(LOCAL, LISTENER), make_origin().url()
    bad = basic("user:guess")
    for _ in range(3):
        reply = call(proxy).get(url, "X-Forwarded-For: 192.0.2.66", auth=bad)
        assert reply.status == 407
    assert call(proxy).get(url, "X-Forwarded-For: 192.0.2.7").status == 200


def test_a_tunnel_has_the_client_of_its_connect(start_policy, make_origin, call):
    proxy, origin = start_policy(LOCAL, LISTENER), make_origin(echo)
    client = call(proxy)
    client.send(build_request("CONNECT", origin.authority,
                              "X-Forwarded-For: 192.0.2.7"))
    assert client.read_response("CONNECT").status == 200
    client.send(b"x")
    assert client.read_exact(1) == b"x"
    client.close()
    assert names(proxy, 1) == ["192.0.2.7"]


def test_streams_of_http2_name_their_clients(start_policy, make_origin, reach):
    keys = dict(BOTH, forwarded_from='["127.0.0.1"]')
    proxy = start_policy(LOCAL, table(localhost(), **keys))
    peer, url = reach(proxy), make_origin().url()
    for name in ("192.0.2.7", "192.0.2.8"):
        assert peer.wait(peer.get(url, LOGIN, ("x-forwarded-for", name))).status == 200
    assert peer.wait(peer.get(url, LOGIN)).status == 200
    assert names(proxy, 3) == ["192.0.2.7", "192.0.2.8", "127.0.0.1"]


def test_a_named_origin_gets_the_chain(start_policy, make_origin, call):
    """The address of the proxy that has called follows those that it names."""
    server = make_origin()
    rule = f'[[rules]]\naction = "allow"\nhosts = ["{HOST}"]\norigin = "api"\n'
    for trusted, sent in ((["127.0.0.2"], "6.6.6.6, 192.0.2.7, 127.0.0.2"),
                          ([], "127.0.0.2")):
        proxy = start_policy(rule, LISTENER + named(
            server, forwarded="x", forwarded_from=trusted))
        reply = call(proxy).get("/", "X-Forwarded-For: 6.6.6.6, 192.0.2.7", host=HOST)
        assert reply.status == 200
        assert server.requests[-1].all("X-Forwarded-For") == [sent]
        assert names(proxy, 1) == ["192.0.2.7"]


def test_such_a_listener_is_no_local_one(start_policy, make_origin, call):
    """Its clients may be anywhere, so the floor is on without a policy, too."""
    from cutthrough.config.listeners import Listener

    with pytest.raises(Exception, match="auth_none_from"):
        Listener(address=("127.0.0.1", 0), auth="none", forwarded_from=("127.0.0.2",))
