"""Limits by a client's address, by its network, and of all together."""

import contextlib
import threading
import time

import pytest

from tests.support.client import Client, build_request
from tests.support.limits import retry_after
from tests.support.origin import Connection, echo, flood
from tests.support.parents import parent
from tests.support.stream import TIMEOUT, Closed
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FLOOR = 'address_floor = "off"\n'
OPEN = """
default = "allow"
[limits.default]
per = "client"
{limits}
"""


def tunnel_from(client: Client, authority: str) -> int:
    client.send(build_request("CONNECT", authority, host=authority))
    return client.read_response("CONNECT").status


def test_tunnels_of_a_client_are_counted_whoever_its_users_are(
        start_policy, make_origin, call):
    proxy = start_policy(OPEN.format(limits="tunnels = 1"), "workers = 2\n" + FLOOR)
    authority = make_origin(echo).authority
    first = call(proxy.port)
    assert tunnel_from(first, authority) == 200
    second = call(proxy.port)
    second.send(build_request("CONNECT", authority, host=authority))
    refused = second.read_response("CONNECT")
    assert refused.status == 429 and retry_after(refused) == 1
    proxy.wait_reason("client_limit", method="CONNECT")
    other = call(proxy.port, "127.0.0.2")
    assert tunnel_from(other, authority) == 200
    first.close()
    wait_until(lambda: tunnel_from(call(proxy.port), authority) == 200,
               "room for the address")


def test_addresses_of_a_network_count_together(start_policy, make_origin, call):
    proxy = start_policy(OPEN.format(limits="ipv4_prefix = 24\ntunnels = 2"), FLOOR)
    authority = make_origin(echo).authority
    assert [tunnel_from(call(proxy.port, f"127.0.0.{host}"), authority)
            for host in (1, 2, 3)] == [200, 200, 429]
    assert tunnel_from(call(proxy.port, "127.0.1.1"), authority) == 200


def test_requests_of_all_have_one_rate(start_policy, make_origin, call):
    proxy = start_policy("""
        default = "allow"
        [limits.default]
        per = "all"
        requests_per_second = 0.01
        burst = 3
        """, "workers = 2\n" + FLOOR)
    url = make_origin().url()
    statuses = []
    for host in range(1, 6):
        client = call(proxy.port, f"127.0.0.{host}")
        client.send(build_request("GET", url))
        statuses.append(client.read_response().status)
    assert statuses == [200, 200, 200, 429, 429]


def test_one_bandwidth_for_all_is_changed_by_a_reload(start_policy, make_origin, call):
    """A throttle of everything, which a reload raises while transfers run."""
    policy = """
        default = "allow"
        [limits.default]
        per = "all"
        bytes_per_second = "{rate}"
        """
    proxy = start_policy(policy.format(rate="64KiB"), FLOOR)
    authority = make_origin(flood).authority
    clients = [call(proxy.port, f"127.0.0.{host}") for host in (1, 2)]
    for client in clients:
        assert tunnel_from(client, authority) == 200
        client.send(b"begin")
    began = time.monotonic()
    read = sum(len(clients[turn % 2].read_exact(1024)) for turn in range(128))
    took = time.monotonic() - began
    assert read / took < 2 * 65536, (read, took)
    proxy.policy.write_text(policy.format(rate="64MiB"))
    proxy.hup()
    for client in clients:
        client.read_exact(1 << 20)          # 32 s at the old rate


def test_a_reload_that_counts_others_together_holds_for_what_runs(
        start_policy, make_origin, call):
    """A transfer stayed in the row of its client: all that ran had a quota each."""
    policy = """
        default = "allow"
        [limits.default]
        per = "{per}"
        bytes_per_day = "{most}"
        """
    proxy = start_policy(policy.format(per="client", most="100MiB"), FLOOR)
    authority = make_origin(flood).authority
    clients = [call(proxy.port, f"127.0.0.{host}") for host in (1, 2)]
    for client in clients:
        assert tunnel_from(client, authority) == 200
    proxy.policy.write_text(policy.format(per="all", most="1MiB"))
    proxy.hup()
    clients[0].send(b"begin")
    with contextlib.suppress(OSError, Closed):
        clients[0].read_exact(16 << 20)
    records = proxy.wait_log(2, reason="quota_exceeded")
    assert sorted(record["bytes_up"] for record in records) == [0, len(b"begin")]


OF_USERS = """
default = "allow"
[limits.default]
bytes_per_second = "{rate}"
"""


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_reload_s_limits_hold_for_what_waits_for_its_origin(
        start_policy, make_origin, dial, method):
    """A request whose response, and a tunnel whose parent's answer, came after the
    reload kept the limits of before to its end."""
    asked, goes_on = threading.Event(), threading.Event()

    def script(conn: Connection) -> None:
        conn.read_request()
        asked.set()
        assert goes_on.wait(TIMEOUT)
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            conn.send(bytes(64 << 20))

    origin = make_origin(script)
    proxy = start_policy(OF_USERS.format(rate="1KiB"), FLOOR if method == "GET" else (
        f'route = "corp"\n{FLOOR}connect_ports = "any"\n{parent(origin)}'))
    client = dial(proxy)
    client.send(build_request(
        method, origin.url() if method == "GET" else origin.authority,
        host=origin.authority))
    assert asked.wait(TIMEOUT)
    proxy.policy.write_text(OF_USERS.format(rate="1GiB"))
    proxy.hup()
    goes_on.set()
    client.read_exact(1 << 20)              # 17 minutes at the old rate


@pytest.mark.parametrize("per", ["client", "all"])
def test_nothing_is_left_of_what_is_counted_together(
        start_policy, make_origin, call, per):
    proxy = start_policy(
        f'default = "allow"\n[limits.default]\nper = "{per}"\ntunnels = 1\n', FLOOR)
    authority = make_origin(echo).authority
    for _ in range(3):
        held = []
        wait_until(lambda held=held: tunnel_from(
            held.append(call(proxy.port)) or held[-1], authority) == 200, "room")
        for client in held:
            client.close()


def test_requests_with_one_value_of_a_field_have_one_rate(
        start_policy, make_origin, dial):
    proxy = start_policy("""
        default = "allow"
        [limits.default]
        per = "field:X-Key"
        requests_per_second = 0.01
        burst = 2
        """, "workers = 2\n" + FLOOR)
    origin = make_origin()

    def ask(*fields: str) -> list[int]:
        return [dial(proxy).get(origin.url(), *fields).status for _ in range(3)]

    assert ask("X-Key: one") == [200, 200, 429]
    assert ask("x-KEY:  one ") == [429] * 3, "the same"
    assert ask("X-Key: two") == [200, 200, 429]
    assert ask("X-Key: one", "X-Key: two") == [200, 200, 429], "both are one value"
    assert ask() == [200, 200, 429]
    authority = make_origin(echo).authority
    assert dial(proxy).connect(authority).status == 429, "as without it"

