"""A rule with `cut` refuses a tunnel that is intercepted: what runs inside ends too."""

import pytest

from tests.support.inside import HERE, ask, config, enter, okay, over_tls
from tests.support.inside_http2 import reach as reach
from tests.support.origin import Connection, echo

pytestmark = pytest.mark.any_loop

RULES = ('[[rules]]\nname = "outer"\naction = "allow"\nmethods = ["CONNECT"]\n' + HERE
         + 'tls = "intercept"\n'
         '[[rules]]\nname = "inner"\naction = "allow"\n' + HERE)
#: The requests inside stay allowed: their tunnel is not.
NO_CONNECT = '[[rules]]\naction = "deny"\nmethods = ["CONNECT"]\n'


@pytest.fixture
def start(start_policy):
    return lambda: start_policy(RULES, config(""))


def script(conn: Connection) -> None:
    if conn.read_request().target == "/ws":
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                  b"Upgrade: websocket\r\n\r\n")
        echo(conn)
        return
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    conn.fill()                             # the answer has no end


def read_first_event(client) -> None:
    client.send(b"GET /events HTTP/1.1\r\nHost: a.example\r\n\r\n")
    client.read_until(b"1\r\na\r\n")


def refuse(proxy, rules: str) -> None:
    proxy.policy.write_text(rules + RULES)
    assert "refused" not in proxy.hup()


def test_a_websocket_inside_is_cut(start, make_origin, dial) -> None:
    """It ran on, because the rules for the request inside still let it pass."""
    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/ws", "Connection: Upgrade",
               "Upgrade: websocket").status == 101
    refuse(proxy, NO_CONNECT + "cut = true\n")
    with pytest.raises(ConnectionResetError):
        client.read_exact(1)
    proxy.wait_reason("destination_denied", kind="tunnel", upgrade=True)


@pytest.mark.parametrize("rule", [NO_CONNECT, '[[rules]]\naction = "deny"\n'])
def test_a_response_inside_is_cut(start, make_origin, dial, rule) -> None:
    """An event stream ran on, though the same tunnel, unopened, would have been cut."""
    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    read_first_event(client)
    refuse(proxy, rule + "cut = true\n")
    assert not client.fill()
    proxy.wait_reason("destination_denied", url=f"https://a.example:{origin.port}/events")


def test_a_stream_inside_is_cut(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(over_tls(script))
    peer = reach(proxy, origin.port)
    stream = peer.get("https://a.example/events")
    while peer.answers[stream].body != b"a":
        assert peer.read()
    refuse(proxy, NO_CONNECT + "cut = true\n")
    while peer.answers[stream].reset is None:
        assert peer.read()
    proxy.wait_reason("destination_denied", url=f"https://a.example:{origin.port}/events")


def test_tls_that_is_refused_now_passes_no_more_requests(start, make_origin, dial):
    """A connection that was open went on under a rule that lets no TLS pass."""
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).status == 200
    proxy.policy.write_text(RULES.replace('"intercept"', '"refuse"'))
    assert "refused" not in proxy.hup()
    assert ask(client).status == 403
    assert len(origin.requests) == 1


def test_a_websocket_inside_is_cut_by_a_rule_that_refuses_tls(start, make_origin, dial):
    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/ws", "Connection: Upgrade",
               "Upgrade: websocket").status == 101
    proxy.policy.write_text(RULES.replace('"intercept"', '"refuse"\ncut = true'))
    assert "refused" not in proxy.hup()
    with pytest.raises(ConnectionResetError):
        client.read_exact(1)
    proxy.wait_reason("destination_denied", kind="tunnel", upgrade=True)


def test_without_cut_it_ends_by_itself(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/ws", "Connection: Upgrade",
               "Upgrade: websocket").status == 101
    refuse(proxy, NO_CONNECT)
    client.send(b"hello")
    assert client.read_exact(5) == b"hello"
