"""Listeners with settings of their own: each connection has those of its listener."""

import pytest

from tests.support.client import Client, build_request
from tests.support.handovers import RENEW
from tests.support.handovers import start as start
from tests.support.successors import end, successor_of
from tests.wire.twin_proxy import build_line

ANN = "203.0.113.9"
# The floor is on for an exposed listener, and the tests' origins are on loopback
OPEN = """workers = 2
proxy_protocol_from = "127.0.0.0/8"
address_floor = "off"
connect_ports = "any"
"""
PLAIN = '[[listeners]]\naddress = "127.0.0.1:0"\n'
BEHIND = PLAIN + "proxy_protocol = true\n"
CALLS = 8                                    # to each, over both workers


@pytest.fixture
def check(opened, make_origin):
    """Plain requests to one port, and requests behind a header to the other."""
    origin = make_origin()

    def call(proxy, plain: int, behind: int) -> None:
        proxy.mark()
        for _ in range(CALLS):
            with Client(plain) as client:
                assert client.get(origin.url()).status == 200
            with Client(behind) as client:
                client.send(build_line(ANN) + build_request("GET", origin.url()))
                assert client.read_response().status == 200
        records = proxy.wait_log(2 * CALLS)
        clients = [record["client"] for record in records]
        assert clients.count(ANN) == clients.count("127.0.0.1") == CALLS
    return call


@pytest.mark.any_loop
def test_settings_stay_with_their_listener_through_reload_and_upgrade(start, check):
    """Both have port 0 of one host: the address alone does not distinguish them."""
    proxy = start(OPEN + PLAIN + BEHIND)
    plain, behind = proxy.ports
    check(proxy, plain, behind)
    proxy.reload(OPEN + RENEW.format(9999) + PLAIN + BEHIND)
    check(proxy, plain, behind)
    successor = successor_of(proxy)
    check(proxy, plain, behind)
    end(successor)


@pytest.mark.any_loop
def test_a_reload_changes_the_settings_of_an_open_listener(start, check):
    proxy = start(OPEN + PLAIN + BEHIND)
    plain, behind = proxy.ports
    line = proxy.reload(OPEN + BEHIND + PLAIN)
    assert "listeners 127.0.0.1:0 proxy_protocol false -> true" in line
    check(proxy, behind, plain)


def test_a_listener_is_added_and_removed_by_a_reload(start, check):
    plain = 'listen = ["127.0.0.1:0"]\n'
    proxy = start(plain + OPEN.replace("proxy", "# proxy"))
    (first,) = proxy.ports
    line = proxy.reload(plain + OPEN + BEHIND.replace("0.1:0", "0.2:0"))
    assert "listeners 127.0.0.2:0 added" in line
    line = proxy.reload(plain + OPEN.replace("proxy", "# proxy"))
    assert "listeners 127.0.0.2:0 removed" in line
    with Client(first) as client:
        assert client.get("http://127.0.0.1:1/").status == 502


def test_a_bad_row_is_refused_by_a_reload_and_the_old_ones_stay(start, check):
    proxy = start(OPEN + PLAIN + BEHIND)
    line = proxy.reload(OPEN + PLAIN + BEHIND + "color = 1\n")
    assert "reload refused" in line and "listeners.color: no such key" in line
    check(proxy, *proxy.ports)
