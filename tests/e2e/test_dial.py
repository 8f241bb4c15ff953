"""The race of a name's addresses (RFC 8305), some of them dead or slow."""

import time
from itertools import count

import pytest

from tests.support.client import build_request
from tests.support.dns import NameServer, Reply
from tests.support.silent import silent
from tests.support.sockets import attempts
from tests.support.wait import takes_less, wait_until

STAGGER = 0.25


@pytest.fixture
def names(opened):
    try:
        return opened.enter_context(NameServer({}))
    except PermissionError:
        pytest.skip("port 53 of a loopback address may not be bound")


@pytest.fixture
def racing(start_proxy, names):
    return start_proxy("--resolvers", names.address)


@pytest.fixture
def make_silent(opened):
    def make(host, port=0):
        try:
            return opened.enter_context(silent(host, port))
        except OSError as error:
            pytest.skip(f"{host}: {error}")

    return make


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_dead_ipv6_address_costs_the_stagger(
    racing, names, make_origin, make_silent, dial, method
):
    origin = make_origin()
    make_silent("::1", origin.port)
    attempt = count()

    def ask() -> None:
        # Another name each time: the origin's connection stays in the pool
        name = f"two-{next(attempt)}.test"
        names.zone[name] = Reply(("::1", "127.0.0.1"))
        authority = f"{name}:{origin.port}"
        target = authority if method == "CONNECT" else f"http://{authority}/"
        racing.mark()
        client = dial(racing)
        begun = time.monotonic()
        assert client.ask(method, target, "Connection: close",
                          host=authority).status == 200
        assert time.monotonic() - begun >= STAGGER
        # The loser is closed, and so is not there to be counted
        assert "SYN_SENT" not in attempts(racing, origin.port)
        client.close()
        record = racing.wait_log(1)[0]
        assert record["connect_ms"] >= STAGGER * 1000
        assert "127.0.0.1" in record["peer"]

    takes_less(2 * STAGGER, ask)


def test_an_address_that_refuses_costs_nothing(racing, names, make_origin, dial):
    origin = make_origin()
    names.zone["two.test"] = Reply(("127.0.0.9", "127.0.0.1"))
    url = f"http://two.test:{origin.port}/"

    def ask() -> None:
        assert dial(racing).get(url, "Connection: close").status == 200

    takes_less(STAGGER, ask)


def test_a_failure_begins_the_next_attempt_while_others_go_on(
    racing, names, make_origin, make_silent, dial
):
    """silent, 250 ms, refused, at once the third."""
    origin = make_origin()
    make_silent("127.0.0.8", origin.port)
    attempt = count()

    def ask() -> None:
        name = f"three-{next(attempt)}.test"    # as above
        names.zone[name] = Reply(("127.0.0.8", "127.0.0.9", "127.0.0.1"))
        begun = time.monotonic()
        assert dial(racing).get(f"http://{name}:{origin.port}/").status == 200
        assert time.monotonic() - begun >= STAGGER

    takes_less(2 * STAGGER, ask)


def test_an_attempt_that_was_overtaken_may_still_win(racing, names, make_silent, dial):
    """It is not given up when the next one begins."""
    first = make_silent("127.0.0.2")
    port = first.getsockname()[1]
    for i in (3, 4):
        make_silent(f"127.0.0.{i}", port)
    names.zone["three.test"] = Reply(("127.0.0.2", "127.0.0.3", "127.0.0.4"))
    client = dial(racing)
    client.send(build_request("CONNECT", f"three.test:{port}"))
    wait_until(lambda: attempts(racing, port) == ["SYN_SENT"] * 3, "three attempts")
    first.accept()[0].close()           # there is room for its next SYN, after a second
    assert client.read_response("CONNECT").status == 200
    assert attempts(racing, port) == ["ESTABLISHED"]
    client.reset()
    assert "127.0.0.2" in racing.wait_log(1)[0]["peer"]


RULES = """
[[rules]]
name = "slow"
action = "allow"
addresses = ["127.0.0.2"]
[[rules]]
name = "quick"
action = "allow"
addresses = ["127.0.0.3"]
"""


def test_the_rule_is_that_of_the_address_that_won(
    start_proxy, names, make_silent, dial, tmp_path
):
    """It was the rule of the last one tried: in the log, and for a reload's cuts."""
    (tmp_path / "policy.toml").write_text(RULES)
    proxy = start_proxy("--resolvers", names.address, "--connect-ports", "any",
                        "--policy", str(tmp_path / "policy.toml"))
    first = make_silent("127.0.0.2")
    port = first.getsockname()[1]
    make_silent("127.0.0.3", port)
    names.zone["two.test"] = Reply(("127.0.0.2", "127.0.0.3"))
    client = dial(proxy)
    client.send(build_request("CONNECT", f"two.test:{port}"))
    wait_until(lambda: attempts(proxy, port) == ["SYN_SENT"] * 2, "two attempts")
    first.accept()[0].close()           # room for its next SYN
    assert client.read_response("CONNECT").status == 200
    client.reset()
    record = proxy.wait_log(1)[0]
    assert (record["peer"], record["rule"]) == ("127.0.0.2", "slow")


def test_one_deadline_for_all_addresses(start_proxy, names, make_silent, dial):
    proxy = start_proxy("--resolvers", names.address, "--connect-timeout", "700ms")
    port = make_silent("127.0.0.2").getsockname()[1]
    for i in (3, 4, 5, 6, 7):
        make_silent(f"127.0.0.{i}", port)
    names.zone["dead.test"] = Reply(tuple(f"127.0.0.{i}" for i in range(2, 8)))

    def connect() -> None:
        begun = time.monotonic()
        reply = dial(proxy).connect(f"dead.test:{port}")
        assert (reply.status, reply.error) == (504, "connection_timeout")
        assert time.monotonic() - begun >= 0.7

    takes_less(1.4, connect, "one deadline")
    wait_until(lambda: not attempts(proxy, port), "all ended, just after the reply")
    tried = proxy.wait_log(1, reason="connect_timeout")[0]["peer"]
    assert tried in {f"127.0.0.{i}" for i in range(3, 8)}, "the last one, not the first"


def test_every_address_gets_its_turn_and_no_more_than_eight_at_a_time(
    racing, names, make_origin, make_silent, dial
):
    origin = make_origin()
    dead = [f"127.0.1.{i}" for i in range(1, 13)]  # so eight are open for a second
    for host in dead:
        make_silent(host, origin.port)
    names.zone["many.test"] = Reply((*dead, "127.0.0.1"))
    client = dial(racing)
    client.send(build_request("GET", f"http://many.test:{origin.port}/"))
    most = 0
    while client.is_silent(0.01):
        most = max(most, attempts(racing, origin.port).count("SYN_SENT"))
    assert client.read_response().status == 200
    assert most == 8


def test_a_client_that_leaves_ends_all_attempts(racing, names, make_silent, dial):
    port = make_silent("127.0.0.2").getsockname()[1]
    make_silent("127.0.0.3", port)
    names.zone["dead.test"] = Reply(("127.0.0.2", "127.0.0.3"))
    client = dial(racing)
    client.send(build_request("CONNECT", f"dead.test:{port}"))
    wait_until(lambda: len(attempts(racing, port)) == 2, "two attempts")
    client.reset()
    wait_until(lambda: not attempts(racing, port), "none")
    racing.wait_reason("client_reset")


@pytest.mark.parametrize("addresses", [
    pytest.param(("2001:db8::1", "127.0.0.9"),      # no route, refused
                 marks=pytest.mark.dials_out),
    ("127.0.0.9", "127.0.0.8"),
])
def test_a_refusal_is_told_whatever_else_failed(racing, names, dial, addresses):
    """An address without a way is usual on a host with one family only."""
    names.zone["two.test"] = Reply(addresses)
    reply = dial(racing).connect("two.test:1")
    assert (reply.status, reply.error) == (502, "connection_refused")


def test_an_address_that_no_packet_may_leave_for_is_unreachable_and_told_last(
    start_proxy, names, make_silent, dial
):
    """The kernel says EINVAL of a link-local address, and where a route is a blackhole:
    that was `connection_failed`, also if another address was silent."""
    proxy = start_proxy("--resolvers", names.address, "--connect-timeout", "500ms")
    port = make_silent("127.0.0.9").getsockname()[1]
    names.zone["two.test"] = Reply(("fe80::1", "127.0.0.9"))
    client = dial(proxy)
    reply = client.get(f"http://two.test:{port}/")
    assert (reply.status, reply.error) == (504, "connection_timeout")
    reply = client.get(f"http://[fe80::1]:{port}/")
    assert (reply.status, reply.error) == (502, "destination_ip_unroutable")
    proxy.wait_reason("unreachable")


def test_an_override_is_where_a_name_leads(start_proxy, names, make_origin, dial):
    origin = make_origin()
    proxy = start_proxy("--resolvers", names.address,
                        "--dns-overrides", "Over.test.=127.0.0.9,over.test=127.0.0.1")
    assert dial(proxy).get(f"http://OVER.test:{origin.port}/").status == 200
    assert not names.asked


def test_an_override_is_judged_like_any_answer(start_proxy, names, make_origin, dial):
    """R26: the address floor closes addresses that an override names."""
    origin = make_origin()
    proxy = start_proxy("--resolvers", names.address, "--address-floor", "on",
                        "--dns-overrides", "over.test=127.0.0.1")
    reply = dial(proxy).connect(f"over.test:{origin.port}")
    assert (reply.status, reply.error) == (403, "destination_ip_prohibited")
    assert not origin.connections
