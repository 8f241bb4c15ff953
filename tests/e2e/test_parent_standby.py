"""`standby` of a parent: connections that are made before a request needs them."""

import contextlib
import json
import signal
import threading

import pytest

from tests.support.admin import administered
from tests.support.origin import Connection, Script, okay
from tests.support.parents import BAD, http, parent, say, socks, socks4
from tests.support.stream import Closed
from tests.support.tls_parents import ca, over_tls
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

ADMIN = 'admin = "127.0.0.1:0"\nadmin_token = "t0ken-of-the-tests"\n'
WAITING = 'parent_standby_connections{parent="corp"}'
USED = 'parent_standby_total{end="used",parent="corp"}'
LOST = 'parent_standby_total{end="lost",parent="corp"}'
CONNECTS = 'parent_connect_seconds_count{parent="corp"}'


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text: administered(opened, directory("proxy"), loop_name, text)


def noting_ends(script: Script) -> Script:
    """Adds each connection that has ended to `origin.ended`."""
    def run(conn: Connection) -> None:
        with contextlib.suppress(OSError, Closed):
            script(conn)
        conn.origin.ended.append(conn)
    return run


@pytest.fixture
def make_parent(make_origin):
    def make(script: Script = http):
        way = make_origin(noting_ends(script))
        way.ended = []
        return way
    return make


def wait_for(operator, **wanted: float) -> dict[str, float]:
    """Waits until the pages of the workers, written once a second, have these values.
    """
    names = {"waiting": WAITING, "used": USED, "lost": LOST, "connects": CONNECTS}

    def read() -> dict[str, float] | None:
        found = operator.metrics()
        return found if all(found.get(names[word]) == value
                            for word, value in wanted.items()) else None
    return wait_until(read, lambda: f"{wanted}: {operator.metrics()}")


def of_requests(way) -> list[int]:
    """The numbers of the parent's connections that a request took."""
    return [n for n, one in enumerate(way.connections) if one.received]


# Taken by a request


@pytest.mark.parametrize(("scheme", "script"), [
    ("http", http), ("socks5", socks()), ("socks4a", socks4)])
def test_a_request_takes_a_connection_that_was_made_before_it(
        start, make_parent, dial, scheme, script):
    way = make_parent(script)
    proxy, operator = start('route = "corp"\n' + parent(way, scheme, standby=2))
    wait_for(operator, waiting=2)
    assert len(way.connections) == 2 and way.received == b""
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert len(of_requests(way)) == 1 and of_requests(way)[0] < 2
    assert dial(proxy).get("http://127.0.0.1:4711/a").body == b"ok"
    found = wait_for(operator, waiting=2, used=2, lost=0, connects=2)
    assert len(way.connections) == 4, "each that was taken is replaced, and no more"
    assert found['upstream_total{how="dialled"}'] == 0
    (one,) = json.loads(operator.get("/parents"))["parents"]
    assert one["standby"] == {"used": 2, "lost": 0}
    assert one["workers"][0]["standby"] == 2
    client.close()
    assert [one["parent"] for one in proxy.wait_log(2)] == ["corp"] * 2


def test_the_handshake_of_tls_is_done_before_the_request(start, make_parent, dial):
    shaken = []

    def script(conn: Connection) -> None:
        shaken.append(conn)
        http(conn)
    way = make_parent(over_tls(script))
    proxy, operator = start('route = "corp"\n' + parent(
        way, "https", standby=2, ca=ca()))
    wait_for(operator, waiting=2, lost=0)
    assert len(shaken) == 2, "session tickets behind the handshake end none"
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    (used,) = [one for one in way.connections if one.requests]
    assert used in shaken[:2]
    (one,) = operator.connections()
    events = json.loads(operator.get(f"/connections/{one['id']}/trace"))["events"]
    assert {"reused"} == {one["event"] for one in events} & {
        "reused", "dialled", "secured"}


def test_a_chain_begins_with_a_connection_that_was_ready(start, make_parent, dial):
    def both(conn: Connection) -> None:
        assert conn.read_request().target == "127.0.0.9:3128"
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        http(conn)
    way = make_parent(both)
    proxy, operator = start(
        'route = "last"\n' + parent(way, standby=1)
        + '[parents.last]\nurl = "http://127.0.0.9:3128"\nvia = "corp"\n')
    wait_for(operator, waiting=1)
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert of_requests(way) == [0]


def test_a_request_in_absolute_form_dials(start, make_parent, dial):
    """It may not be one that can be sent twice."""
    way = make_parent(okay)
    proxy, operator = start('route = "corp"\n' + parent(
        way, standby=1, resolve="parent", plain="absolute"))
    wait_for(operator, waiting=1)
    assert dial(proxy).get("http://a.test/b").body == b"ok"
    assert of_requests(way) == [1]


# Connections that die


def test_a_connection_that_the_parent_has_ended_is_never_taken(
        start, make_parent, dial):
    gate = threading.Event()

    def script(conn: Connection) -> None:
        if conn in conn.origin.connections[:2]:
            gate.wait(30)
        else:
            http(conn)
    way = make_parent(script)
    proxy, operator = start('route = "corp"\n' + parent(way, standby=2))
    wait_for(operator, waiting=2)
    gate.set()
    wait_until(lambda: operator.metrics()[LOST] == 2, "both have ended")
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert min(of_requests(way)) >= 2
    found = operator.metrics()
    assert sum(value for name, value in found.items()
               if name.startswith("parent_failures_total")) == 0


def test_a_connection_that_sends_something_is_never_taken(start, make_parent, dial):
    def script(conn: Connection) -> None:
        if conn is conn.origin.connections[0]:
            conn.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            conn.stall()
        else:
            http(conn)
    way = make_parent(script)
    proxy, operator = start('route = "corp"\n' + parent(way, standby=1))
    wait_until(lambda: operator.metrics().get(LOST) == 1, "its end")
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert 0 not in of_requests(way)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_dials_if_its_connection_dies_at_that_moment(
        start, make_parent, dial, scheme):
    """A parent that closed idle connections would have failed requests, and opened its
    circuit after three."""
    def script(conn: Connection) -> None:
        if conn in conn.origin.connections[:4]:
            conn.read_request()
        else:
            http(conn)
    way = make_parent(over_tls(script) if scheme == "https" else script)
    more = {"ca": ca()} if scheme == "https" else {}
    proxy, operator = start('route = "corp"\n' + parent(
        way, scheme, standby=4, **more))
    wait_for(operator, waiting=4)
    for _ in range(3):
        client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
        assert client.read_exact(5) == b"early"
        client.close()
    assert {one["reason"] for one in proxy.wait_log(3)} == {"ok"}
    wait_until(lambda: operator.metrics()[USED] >= 3, "the page is written")
    found = operator.metrics()
    assert found[LOST] >= 1
    assert sum(value for name, value in found.items()
               if name.startswith("parent_failures_total")) == 0


def test_a_parent_that_ends_them_at_once_is_not_flooded(start, make_parent):
    way = make_parent(lambda conn: None)
    _, operator = start('route = "corp"\n' + parent(way, standby=4))
    wait_until(lambda: operator.metrics().get(LOST, 0) >= 5, "a second round")
    assert len(way.connections) <= 16, "four in each round, after 1 s, 2 s, 4 s"


def test_a_parent_that_is_down_is_tried_with_a_back_off(start, make_origin):
    way = make_origin()
    way.close()
    _, operator = start('route = "corp"\n' + parent(way, standby=8))
    wait_until(lambda: operator.metrics().get(LOST, 0) >= 2, "a second try")
    assert operator.metrics()[LOST] <= 4
    found = json.loads(operator.get("/parents"))["parents"][0]
    assert found["workers"][0]["state"] == "up", "requests alone judge it"


# When they end


def test_one_that_waits_for_too_long_is_replaced(start, make_parent):
    way = make_parent()
    start('upstream_idle_timeout = "300ms"\nroute = "corp"\n'
          + parent(way, standby=1))
    wait_until(lambda: len(way.ended) >= 2, "the age of two")
    way.wait_connections(3)
    assert way.received == b""


def test_an_open_circuit_ends_them_and_none_is_made(start, make_parent, dial):
    way = make_parent(say(BAD.format(407).encode()))
    proxy, operator = start('route = "corp"\n' + parent(way, standby=2))
    wait_for(operator, waiting=2)
    for _ in range(3):
        assert dial(proxy).connect("127.0.0.1:4711").status == 502
    found = wait_for(operator, waiting=0)
    assert found['parent_workers{parent="corp",state="open"}'] == 1
    wait_until(lambda: len(way.ended) == len(way.connections), "all have ended")


def test_a_reload_keeps_those_of_a_parent_that_stays_as_it_is(start, make_parent):
    """R46: another identity has connections of its own."""
    way, second = make_parent(), make_parent()

    def reload(**more: object) -> None:
        assert "workers replaced" not in proxy.reload(
            ADMIN + 'route = "corp"\n' + parent(way, **more))
    proxy, operator = start('route = "corp"\n' + parent(way, standby=3))
    wait_for(operator, waiting=3)
    reload(standby=3, check="127.0.0.1:9", check_interval="1h")
    wait_until(lambda: of_requests(way) == [3], "the check has its own connection")
    wait_until(lambda: [*way.ended] == way.connections[3:], "and ends it")
    reload(standby=2)
    wait_until(lambda: len(way.ended) == 2, "one too many")
    reload(standby=2, pass_credentials=True)
    wait_until(lambda: len(way.ended) == 4, "those of the former parent")
    way.wait_connections(6)
    assert "workers replaced" not in proxy.reload(
        ADMIN + 'route = "corp"\n' + parent(second, standby=1))
    wait_until(lambda: len(way.ended) == 6, "all of the former parent")
    second.wait_connections(1)
    proxy.reload(ADMIN)
    wait_until(lambda: len(second.ended) == 1, "no parent is left")


def test_a_drain_ends_them_and_makes_none(start, make_parent, dial):
    way = make_parent()
    proxy, operator = start('route = "corp"\n' + parent(way, standby=2))
    wait_for(operator, waiting=2)
    client = dial(proxy).tunnel("127.0.0.1:4711")
    way.wait_connections(3)
    proxy.signal(signal.SIGTERM)
    wait_until(lambda: len(way.ended) == len(way.connections) - 1, "all but one")
    client.send(b"still")
    assert client.read_exact(5) == b"still"
    client.close()
    assert proxy.wait_exit() == 0
    assert of_requests(way) and len(way.connections) == 3


def test_they_give_their_descriptors_to_requests(
        start, make_parent, make_origin, dial, exhaust):
    """R32: connections that wait are closed first, and not made again at once."""
    way, origin = make_parent(), make_origin()
    proxy, operator = start(parent(way, standby=3))
    wait_for(operator, waiting=3)
    client = dial(proxy)
    assert client.get("http://127.0.0.1:4711/", auth=None).status == 407
    exhaust(proxy)
    assert client.get(origin.url()).status == 200
    assert proxy.wait_reason("ok").get("parent") is None
    wait_until(lambda: len(way.ended) >= 3, "they were closed")


def test_another_listener_of_ours_is_no_parent(start, make_parent):
    """R20: judged as for a request."""
    proxy, operator = start("")
    proxy.reload(ADMIN + 'route = "corp"\n[parents.corp]\n'
                 f'url = "http://127.0.0.1:{proxy.port}"\nstandby = 2\n')
    wait_until(lambda: operator.metrics().get(LOST, 0) >= 1, "it is not made")
    assert operator.metrics()[WAITING] == 0 and proxy.lines() == []
