"""Active checks of parents: one worker makes each, and all of them take the result."""

import json

import pytest

from tests.support.admin import administered
from tests.support.certificates import authority
from tests.support.origin import Connection, stall
from tests.support.parent_groups import group, used
from tests.support.parents import ESTABLISHED, http, parent, socks
from tests.support.tls_parents import ca, over_tls, server_context
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

CHECK = {"check": "a.test:443", "check_interval": "300ms"}


def switched(state: dict[str, bool]):
    """A parent that works while state["works"]."""
    def script(conn: Connection) -> None:
        if state["works"]:
            http(conn)
    return script


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text: administered(opened, directory("proxy"), loop_name, text)


def states(operator) -> list[str]:
    return [worker["state"] for one in json.loads(operator.get("/parents"))["parents"]
            for worker in one["workers"]]


def test_a_parent_whose_check_fails_is_passed_over_and_taken_again(
        start, make_origin, dial):
    state = {"works": True}
    first, second = make_origin(switched(state)), make_origin(http)
    proxy, operator = start(
        'route = "corp"\n' + parent(first, name="a", **CHECK)
        + parent(second, name="b") + group("a", "b"))
    first.wait_requests(2)
    assert {one.target for one in first.requests} == {"a.test:443"}
    assert used(proxy, dial, 2) == ["a", "a"]
    state["works"] = False
    wait_until(lambda: states(operator) == ["down", "up"], "the check fails")
    assert used(proxy, dial, 3) == ["b"] * 3
    assert "parent a: its check failed: parent_closed" in proxy.stderr()
    state["works"] = True
    wait_until(lambda: states(operator) == ["up", "up"], "the check succeeds")
    assert used(proxy, dial, 2) == ["a", "a"]
    assert "parent a: its check works again" in proxy.stderr()
    found = operator.metrics()
    assert found['parent_checks_total{parent="a",result="ok"}'] >= 2
    assert found['parent_checks_total{parent="a",result="failed"}'] >= 1
    assert found['parent_checks_total{parent="b",result="ok"}'] == 0
    assert "a.test" not in "".join(proxy.lines())


def test_one_worker_makes_each_check_and_all_take_the_result(
        start, make_origin):
    state = {"works": False}
    way = make_origin(switched(state))
    _, operator = start("workers = 3\nroute = 'corp'\n"
                        + parent(way, check="127.0.0.1:1", check_interval="1h"))
    wait_until(lambda: states(operator) == ["down"] * 3, "all have the result")
    assert len(way.connections) == 1


def test_nothing_goes_anywhere_while_the_only_parent_is_down(
        start, make_origin, dial):
    way, origin = make_origin(switched({"works": False})), make_origin()
    proxy, operator = start('route = "corp"\n' + parent(way, **CHECK))
    wait_until(lambda: states(operator) == ["down"], "the check fails")
    n = len(way.connections)
    assert dial(proxy).connect(origin.authority).status == 503
    assert proxy.wait_log(1)[0]["reason"] == "parent_unreachable"
    assert origin.connections == [] and len(way.connections) - n < 3, "R44"


def test_a_reload_without_the_check_forgets_its_result(start, make_origin, dial):
    admin = 'admin = "127.0.0.1:0"\nadmin_token = "t0ken-of-the-tests"\n'
    state = {"works": False}
    way = make_origin(switched(state))
    proxy, operator = start('route = "corp"\n' + parent(way, **CHECK))
    wait_until(lambda: states(operator) == ["down"], "the check fails")
    state["works"] = True
    assert "workers replaced" not in proxy.reload(
        admin + 'route = "corp"\n' + parent(way))
    dial(proxy).tunnel("127.0.0.1:4711").close()
    assert proxy.wait_reason("ok")["parent"] == "corp"


def test_a_check_that_stalls_has_the_deadline_and_leaves_nothing(start, make_origin):
    way = make_origin(stall)
    proxy, operator = start('parent_timeout = "300ms"\nroute = "corp"\n'
                            + parent(way, **CHECK))
    wait_until(lambda: "its check failed: parent_timeout" in proxy.stderr(), "a line")
    wait_until(lambda: len(way.connections) >= 2, "the next check")
    wait_until(lambda: states(operator) == ["down"], "it is passed over")


def test_a_parent_whose_name_has_no_address_is_down_each_time(start):
    proxy, operator = start('resolvers = ["127.0.0.9"]\ndns_timeout = "100ms"\n'
                            'route = "corp"\n[parents.corp]\nurl = "http://a.test:1"'
                            '\ncheck = "a.test:1"\ncheck_interval = "300ms"\n')
    failed = 'parent_checks_total{parent="corp",result="failed"}'
    wait_until(lambda: operator.metrics().get(failed, 0) >= 3, "three checks")
    assert states(operator) == ["down"]
    assert "its check failed: parent_unreachable" in proxy.stderr()


def test_a_socks_parent_and_a_chain_are_checked(start, make_origin):
    way = make_origin(socks())
    _, operator = start('route = "last"\n' + parent(way, "socks5", "first")
                        + '[parents.last]\nurl = "socks5://127.0.0.9:1080"\n'
                          'via = "first"\ncheck = "127.0.0.1:4711"\n')
    way.wait_connections(1)
    # The script echoes behind its first answer: no answer of a second parent
    wait_until(lambda: "down" in states(operator), "the chain does not answer")
    assert way.heard[-1] == b"\x05\x01\0\x01\x7f\0\0\x09\x04\x38"


def test_a_check_with_tls_wants_a_certificate_of_the_destination(
        make_origin, start_proxy):
    """A parent that answers 200 to everything, or opens TLS itself, is not enough."""
    state = {"context": server_context()}

    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(ESTABLISHED)
        if state["context"] is None:
            conn.read_exact(50)
            conn.send(b"220 no TLS here\r\n")
            conn.stall()
        over_tls(lambda conn: conn.stall(), state["context"])(conn)
    way = make_origin(script)
    proxy = start_proxy(
        config='route = "corp"\n' + parent(
            way, check="localhost:443", check_tls=True, check_interval="300ms"),
        env={"SSL_CERT_FILE": ca()})
    way.wait_requests(2)
    assert {one.target for one in way.requests} == {"localhost:443"}
    assert "its check failed" not in proxy.stderr()
    state["context"] = server_context(authority().sign("DNS:a.test"))
    wait_until(lambda: "its check failed: tls_certificate" in proxy.stderr(),
               proxy.stderr)
    state["context"] = server_context()
    wait_until(lambda: "its check works again" in proxy.stderr(), proxy.stderr)
    state["context"] = None
    wait_until(lambda: "its check failed: tls_failed" in proxy.stderr(), proxy.stderr)


def test_a_shortage_of_our_own_fails_no_check(start, make_origin, exhaust):
    """One worker without a descriptor made all workers pass over all parents."""
    first = make_origin(http)
    proxy, operator = start('route = "corp"\n' + parent(first, name="a", **CHECK)
                            + group("a"))
    first.wait_requests(1)
    exhaust(proxy)
    failed = 'parent_checks_total{parent="a",result="failed"}'
    wait_until(lambda: operator.metrics().get(failed, 0) >= 2, "two without descriptor")
    assert states(operator) == ["up"]
    assert "its check failed" not in proxy.stderr()
