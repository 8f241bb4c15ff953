"""Host and the server name of the connection: `host_strict` of a listener."""

import pytest

from tests.support.certificates import localhost
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.origins import named, say
from tests.support.tls_listener import table

pytestmark = pytest.mark.any_loop

RULE = '[[rules]]\naction = "allow"\norigin = "api"\n'


@pytest.fixture
def start(start_policy, make_origin):
    return lambda **keys: start_policy(
        RULE, table(localhost(), **BOTH, **keys) + named(make_origin(say("a"))))


def ask(peer, host: str) -> int:
    return peer.wait(peer.get(f"https://{host}/", LOGIN)).status


def test_another_host_than_the_connections_is_misdirected(start, reach):
    proxy = start(host_strict="true")
    peer = reach(proxy)
    hosts = ("localhost", "LOCALHOST", "localhost:8443", "b.test", "localhost.b.test",
             "127.0.0.1", "localhos")
    assert [ask(peer, host) for host in hosts] == [200, 200, 200, 421, 421, 421, 421]
    assert [line["reason"] for line in proxy.wait_log(7)] == (
        ["ok"] * 3 + ["misdirected"] * 4)


def test_without_the_option_one_connection_serves_all(start, reach):
    peer = reach(start())
    assert [ask(peer, host) for host in ("localhost", "b.test")] == [200, 200]
