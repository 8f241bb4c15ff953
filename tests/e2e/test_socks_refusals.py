"""SOCKS: refusals by their codes, and the end of a handshake (R51)."""

import contextlib

import pytest

from tests.support.client import PASSWORD, USER
from tests.support.dns import NameServer
from tests.support.handovers import limited as limited
from tests.support.handovers import start as start
from tests.support.origin import echo
from tests.support.policies import LOCAL
from tests.support.socks import (
    ALL,
    BIND,
    BY_PASSWORD,
    GRANTED,
    NO_ADDRESS,
    NO_COMMAND,
    NONE,
    NOT_TAKEN,
    OPEN,
    REFUSED,
    SOCKS5,
    SocksClient,
    command,
    greet,
    login,
)
from tests.support.socks import call as call
from tests.support.users import hash_of

pytestmark = pytest.mark.any_loop

# Codes of RFC 1928 section 6
FAILED, NOT_ALLOWED, NET_UNREACHABLE, HOST_UNREACHABLE = 1, 2, 3, 4


def socks_code(client: SocksClient, authority: str) -> int:
    """The code of a reply to a request by the right user."""
    assert client.log_in() == GRANTED
    return client.request(authority)


def test_a_refusal_has_the_code_of_its_outcome(
        start_policy, make_origin, call, opened):
    origin, names = make_origin(echo), opened.enter_context(NameServer({}))
    with contextlib.closing(make_origin()) as gone:
        closed_port = gone.port
    proxy = start_policy("""
        default = "allow"
        [[rules]]
        hosts = ["denied.test"]
        action = "deny"
        [[rules]]
        addresses = ["127.0.0.0/8"]
        action = "allow"
        """, f'resolvers = ["{names.address}"]\n' + SOCKS5 + OPEN)
    rows = [
        ("denied.test:443", NOT_ALLOWED, "destination_denied"),
        ("169.254.169.254:80", NOT_ALLOWED, "address_denied"),
        (f"127.0.0.1:{proxy.ports[0]}", NOT_ALLOWED, "loop_detected"),
        (f"127.0.0.1:{closed_port}", NOT_TAKEN, "connection_refused"),
        ("nothing.test:443", HOST_UNREACHABLE, "dns_not_found"),
        ("a..b:443", NO_ADDRESS, "bad_target"),
        ("127.0.0.1:0", NO_ADDRESS, "bad_target")]
    for authority, code, reason in rows:
        proxy.mark()
        client = call(proxy)
        assert socks_code(client, authority) == code, authority
        assert client.at_eof()
        host = authority.rpartition(":")[0]
        fourth = call(proxy, 1)
        assert fourth.request4(authority) == 91
        assert fourth.at_eof()
        records = proxy.wait_log(2)
        assert [one["reason"] for one in records] == [reason] * 2, authority
        assert {one["host"] for one in records} <= {host, None}
        assert {one["method"] for one in records} == {"SOCKS5", "SOCKS4"}
    assert call(proxy).socks_tunnel(origin.authority)


@pytest.mark.parametrize("number", [0, BIND, 4, 255])
def test_another_command_is_refused_by_its_code(start, call, number):
    proxy = start(SOCKS5 + OPEN)
    client = call(proxy)
    assert client.log_in() == GRANTED
    assert client.request("127.0.0.1:80", number) == NO_COMMAND
    assert client.at_eof()
    assert call(proxy, 1).request4("127.0.0.1:80", number) == 91
    records = proxy.wait_log(2)
    assert {one["reason"] for one in records} == {"unsupported_command"}
    assert {one["url"] for one in records} == {"127.0.0.1:80"}


def test_a_message_that_breaks_the_protocol_is_refused(start, call):
    proxy = start(SOCKS5)
    client = call(proxy)
    assert client.method(BY_PASSWORD) == BY_PASSWORD
    client.send(b"\5\1\0\1")
    assert client.read_pair(1) != GRANTED
    for wrong in (b"\4\1", b"\5\1\1\1", b"\5\1\0\2"):
        client = call(proxy)
        assert client.log_in() == GRANTED
        client.send(wrong)
        assert client.read_reply()[0] in (FAILED, NO_ADDRESS)
        assert client.at_eof()
    assert [one["reason"] for one in proxy.wait_log(4)].count("bad_socks") == 3


@pytest.mark.dials_out                      # the second address has no route
def test_an_unreachable_network_and_a_slow_name_server_have_codes(start, call):
    with NameServer({"slow.test": None}) as names:
        proxy = start(
            f'resolvers = ["{names.address}"]\ndns_timeout = "200ms"\n' + SOCKS5)
        assert socks_code(call(proxy), "slow.test:443") == HOST_UNREACHABLE
        assert socks_code(call(proxy), "203.0.113.9:443") == NET_UNREACHABLE
    assert [one["reason"] for one in proxy.wait_log(2)] == ["dns_timeout",
                                                           "unreachable"]


def test_a_handshake_has_the_deadline_of_a_head(start, call):
    proxy = start('head_timeout = "300ms"\n' + SOCKS5 + OPEN)
    begun = [
        (0, b"\5", b"\5\xff"),
        (0, greet(BY_PASSWORD), b"\5\2\1\1"),
        (0, greet(BY_PASSWORD) + login()[:3], b"\5\2\1\1"),
        (0, greet(BY_PASSWORD) + login(), b"\5\2\1\0\5\1\0\1" + bytes(6)),
        (1, greet(NONE), b"\5\0\5\1\0\1" + bytes(6)),
        (1, greet(NONE) + command("127.0.0.1:1")[:-1],
         b"\5\0\5\1\0\1" + bytes(6))]
    clients = [(call(proxy, listener), octets, reply)
               for listener, octets, reply in begun]
    for client, octets, _ in clients:
        client.send(octets)
    for client, octets, reply in clients:
        assert client.read_rest() == reply, octets
    assert [one["reason"] for one in proxy.wait_log(len(begun))] == (
        ["head_timeout"] * len(begun))
    assert call(proxy).at_eof(), "and who sends nothing is closed without a line"
    assert len(proxy.log()) == len(begun)


def test_a_client_that_ends_before_its_request_is_logged_as_such(start, call):
    proxy = start(SOCKS5)
    for octets in (b"\5", greet(BY_PASSWORD), greet(BY_PASSWORD) + login()):
        client = call(proxy)
        client.send(octets)
        client.half_close()
        client.read_rest()
    assert [one["reason"] for one in proxy.wait_log(3)] == ["client_closed"] * 3


def test_limits_count_tunnels_by_socks(start, limited, make_origin, call):
    proxy, origin = start(limited(tunnels=2) + SOCKS5 + ALL), make_origin(echo)
    held = call(proxy).socks_tunnel(origin.authority)
    other = call(proxy, 1)
    assert other.connect(origin.authority).status == 200
    assert socks_code(call(proxy), origin.authority) == NOT_ALLOWED
    assert proxy.wait_log(1)[0]["reason"] == "user_limit"
    held.close()
    proxy.wait_log(2)
    assert call(proxy).socks_tunnel(origin.authority)


def test_a_bound_of_connections_is_told_in_socks(start, make_origin, call):
    proxy = start("max_connections_per_client = 1\n" + SOCKS5)
    origin = make_origin(echo)
    held = call(proxy).socks_tunnel(origin.authority)
    client = call(proxy)
    assert client.read_pair(5) == REFUSED
    assert client.at_eof()
    assert proxy.wait_log(1)[0]["reason"] == "client_limit"
    held.close()


def test_a_reload_between_password_and_request_holds(
        start_policy, make_origin, call):
    """The request was judged by the policy that the password had come under."""
    ann = f'users.ann.password = "{hash_of("one")}"\n'
    proxy = start_policy(ann + LOCAL, SOCKS5)
    origin = make_origin(echo)
    callers = [call(proxy) for _ in range(2)]
    for caller, name, secret in zip(callers, (USER, "ann"), (PASSWORD, "one"),
                                    strict=True):
        assert caller.log_in(name, secret) == GRANTED
    proxy.policy.write_text(LOCAL.replace('"allow"', '"deny"'))
    proxy.hup()
    assert callers[0].request(origin.authority) == NOT_ALLOWED
    assert callers[1].request(origin.authority) == NOT_ALLOWED
    proxy.wait_reason("destination_denied", method="SOCKS5", user=USER)
    proxy.wait_reason("auth_failed", method="SOCKS5")
