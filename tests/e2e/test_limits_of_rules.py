"""A reload changes which limits a rule names: they hold for what runs, too."""

import contextlib
import threading

import pytest

from tests.support.client import build_request
from tests.support.origin import Connection, flood
from tests.support.stream import Closed

pytestmark = pytest.mark.any_loop

FLOOR = 'connect_ports = "any"\n'
POLICY = """
[limits.tight]
bytes_per_day = "1MiB"

[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
"""


def read_on(client) -> None:
    """More than the quota, if that is possible."""
    with contextlib.suppress(OSError, Closed):
        client.read_exact(64 << 20)


def test_a_tunnel_comes_under_the_limits_that_its_rule_names_now(
        start_policy, make_origin, dial):
    """It kept what the rule had named when it began, unless workers were replaced."""
    proxy = start_policy(POLICY, FLOOR)
    client = dial(proxy).tunnel(make_origin(flood).authority)
    client.send(b"begin")
    client.read_exact(2 << 20)
    proxy.policy.write_text(POLICY + 'limits = "tight"\n')
    assert "rules" in proxy.hup()
    read_on(client)
    proxy.wait_reason("quota_exceeded")


def test_a_tunnel_leaves_the_limits_that_its_rule_names_no_more(
        start_policy, make_origin, dial):
    proxy = start_policy(POLICY + 'limits = "tight"\n', FLOOR)
    client = dial(proxy).tunnel(make_origin(flood).authority)
    proxy.policy.write_text(POLICY)
    proxy.hup()
    client.send(b"begin")
    client.read_exact(4 << 20)
    client.close()
    proxy.wait_log(1, method="CONNECT")
    assert not proxy.log(reason="quota_exceeded")


def test_a_response_comes_under_them_too(start_policy, make_origin, dial):
    goes_on = threading.Event()

    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20), b"x")
        assert goes_on.wait(10)
        with contextlib.suppress(OSError):
            conn.send(bytes(64 << 20))

    proxy = start_policy(POLICY, FLOOR)
    client = dial(proxy)
    client.send(build_request("GET", make_origin(script).url()))
    client.read_until(b"\r\n\r\nx")
    proxy.policy.write_text(POLICY + 'limits = "tight"\n')
    proxy.hup()
    goes_on.set()
    read_on(client)
    proxy.wait_reason("quota_exceeded", method="GET")
