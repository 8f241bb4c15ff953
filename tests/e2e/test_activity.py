"""The operator's activity tracker (`activity_hook`): docs/activity.md."""

import queue
import textwrap

import pytest

import cutthrough
from tests.support.activity import HOOK, TRACKER, events, wait_events
from tests.support.admin import DOOR, operator_of
from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.certificates import authority, localhost
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.dns import NameServer
from tests.support.handovers import renew
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.inside import ALL, ask, config, enter, okay, over_tls
from tests.support.origin import (
    Connection,
    Origin,
    answer,
    echo,
    send_events,
    stall,
)
from tests.support.origins import HOST, named, say
from tests.support.policies import LOCAL
from tests.support.proxy import ROOT, Proxy
from tests.support.socks import SOCKS5
from tests.support.socks import call as call
from tests.support.successors import end_family
from tests.support.tls_listener import table
from tests.support.tls_parents import over_tls as served_by_tls
from tests.support.wait import wait_until

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FAILS = """
    class Tracker:
        def on_connect(self, connection):
            raise KeyError("connect")

        async def on_request(self, exchange):
            raise ValueError("request")

        def on_end(self, exchange):
            print(exchange.reason, flush=True)
"""
HANGS = """
    import asyncio

    class Tracker:
        async def on_request(self, exchange):
            await asyncio.sleep(600)

        def on_end(self, exchange):
            print(exchange.reason, flush=True)
"""


@pytest.fixture
def run(start_policy):
    def begin(policy: str = LOCAL, config: str = "", tracker: str = TRACKER):
        return start_policy(policy, HOOK + config, modules={"watched": tracker})
    return begin


def lines(proxy) -> list[str]:
    return (proxy.log_path.parent / "stdout").read_text().splitlines()


@pytest.mark.any_loop
def test_a_request_is_reported_from_its_connection_to_its_end(run, make_origin, dial):
    proxy, origin = run(), make_origin(answer(HELLO))
    client = dial(proxy)
    assert client.get(origin.url("/a?secret=b")).status == 200
    client.close()
    wait_events(proxy, "on_disconnect")
    calls = events(proxy)
    assert [event[0] for event in calls if event[0] != "on_bytes"] == [
        "on_connect", "on_request", "on_origin", "on_response", "on_end",
        "on_disconnect"]
    by_hook = {event[0]: event[1] for event in calls}
    record = proxy.wait_log(1)[0]
    connection = by_hook["on_connect"]
    assert connection["client"] == "127.0.0.1"
    assert by_hook["on_disconnect"] == connection
    request, route = by_hook["on_request"], by_hook["on_origin"]
    assert (request["id"], request["method"], request["host"], request["port"]) == (
        record["id"], "GET", "127.0.0.1", origin.port)
    assert (request["connection"], request["client_port"]) == (
        connection["number"], connection["client_port"])
    assert (request["peer"], request["status"], request["reason"]) == (None, None, None)
    assert (route["peer"], route["peer_port"], route["user"]) == (
        "127.0.0.1", origin.port, "user")
    assert (route["reused"], route["connect_ms"]) == (False, record["connect_ms"])
    assert (by_hook["on_response"]["status"], by_hook["on_response"]["reason"]) == (
        200, None)
    end = by_hook["on_end"]
    assert (end["reason"], end["status"], end["kind"]) == ("ok", 200, "request")
    assert (end["bytes_up"], end["bytes_down"]) == (
        record["bytes_up"], record["bytes_down"])
    assert "secret" not in "".join(lines(proxy))


def test_each_request_of_a_connection_and_kept_ones_to_the_origin(
        run, make_origin, dial):
    proxy, origin = run(), make_origin(answer(HELLO))
    client = dial(proxy)
    for _ in range(3):
        client.get(origin.url())
    assert len(wait_events(proxy, "on_end", 3)) == 3
    routes = wait_events(proxy, "on_origin", 3)
    assert [route["reused"] for route in routes] == [False, True, True]
    assert [route["connect_ms"] is None for route in routes] == [False, True, True]
    assert {route["connection"] for route in routes} == {
        wait_events(proxy, "on_connect")[0]["number"]}
    assert len(events(proxy, "on_connect")) == 1


@pytest.mark.any_loop
def test_bytes_of_a_tunnel_are_reported_while_it_is_open(run, make_origin, dial):
    proxy, origin = run(), make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    tunnel.send(b"x" * 1000)
    assert tunnel.read_exact(1000) == b"x" * 1000
    wait_events(proxy, "on_bytes")
    assert events(proxy, "on_end") == []
    tunnel.send(b"y" * 234)
    tunnel.half_close()
    tunnel.read_rest()
    (end,) = wait_events(proxy, "on_end")
    assert (end["kind"], end["method"], end["status"]) == ("tunnel", "CONNECT", 200)
    assert (end["bytes_up"], end["bytes_down"]) == (1234, 1234)
    calls = events(proxy, "on_bytes")
    assert [sum(call[n] for call in calls) for n in (2, 3)] == [1234, 1234]
    assert calls[-1][1]["id"] == end["id"] == proxy.wait_log(1)[0]["id"]


def test_bytes_of_a_response_come_in_samples(run, make_origin, dial):
    """A sample for each tenth of a second, not for each piece."""
    pieces: queue.Queue[bytes] = queue.Queue()

    def script(conn: Connection) -> None:
        conn.read_request()
        send_events(conn, pieces)

    proxy, origin = run(), make_origin(script)
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    for number in range(1, 4):
        for _ in range(50):
            pieces.put(b"data: 1\n\n")
        wait_until(lambda n=number: sum(
            call[3] for call in events(proxy, "on_bytes")) >= 450 * n, "its bytes")
    pieces.put(b"")
    (end,) = wait_events(proxy, "on_end")
    calls = events(proxy, "on_bytes")
    assert sum(call[3] for call in calls) == end["bytes_down"]
    assert len(calls) < 50


@pytest.mark.parametrize(("policy", "status", "reason"), [
    ('default = "deny"\n', 403, "destination_denied"),
    (LOCAL, 502, "connection_refused")])
def test_an_answer_of_the_proxy_s_own_is_a_response(run, dial, policy, status, reason):
    proxy = run(policy)
    with Origin() as closed:
        url = closed.url()
    assert dial(proxy).get(url).status == status
    (end,) = wait_events(proxy, "on_end")
    (response,) = wait_events(proxy, "on_response")
    assert (response["status"], response["reason"]) == (status, None)
    assert (end["status"], end["reason"]) == (status, reason)
    assert events(proxy, "on_origin") == []


def test_the_end_says_which_step_to_the_origin_failed(run, make_origin, dial, opened):
    """The name, the connection, or the answer in time."""
    names = opened.enter_context(NameServer({}))
    proxy = run(config=f'response_timeout = "0.3s"\nresolvers = ["{names.address}"]\n')
    with Origin() as closed:
        refused = closed.url()
    for url in ("http://nowhere.test/", refused, make_origin(stall).url()):
        dial(proxy).get(url)
    assert [event["reason"] for event in wait_events(proxy, "on_end", 3)] == [
        "dns_not_found", "connection_refused", "response_timeout"]


def test_a_head_that_is_no_request_has_an_end(run, dial):
    proxy = run()
    client = dial(proxy)
    client.send(b"GET / HTTP/9.9\r\n\r\n")
    client.read_rest()
    (end,) = wait_events(proxy, "on_end")
    assert end["reason"] == proxy.wait_log(1)[0]["reason"]
    assert events(proxy, "on_request") == []


def test_handshakes_and_streams_of_http2(run, reach, make_origin):
    proxy = run(config=table(localhost(), **BOTH))
    origin = make_origin(answer(HELLO, HELLO))
    peer = reach(proxy)
    for _ in range(2):
        assert peer.wait(peer.get(origin.url(), LOGIN)).status == 200
    wait_events(proxy, "on_end", 2)
    (connection,) = wait_events(proxy, "on_connect")
    (handshake,) = wait_events(proxy, "on_client_tls")
    assert handshake["number"] == connection["number"]
    assert (handshake["tls_version"], connection["tls_version"]) == ("1.3", None)
    assert handshake["cipher"].startswith("TLS_")
    requests = wait_events(proxy, "on_request", 2)
    assert [request["connection"] for request in requests] == [connection["number"]] * 2
    peer.sock.close()
    wait_events(proxy, "on_disconnect")
    assert len(events(proxy, "on_connect")) == len(events(proxy, "on_disconnect")) == 1


def test_both_handshakes_of_an_interception(run, make_origin, dial):
    proxy = run(ALL, config())
    origin = make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"ok"
    ends = wait_events(proxy, "on_end", 2)
    assert [(end["method"], end["intercepted"], end["kind"]) for end in ends] == [
        ("CONNECT", True, "request"), ("GET", True, "request")]
    (exchange,) = wait_events(proxy, "on_origin_tls")
    assert (exchange["method"], exchange["peer_tls_version"]) == ("CONNECT", "1.3")
    (connection,) = wait_events(proxy, "on_client_tls")
    assert (connection["intercepted"], connection["tls_version"]) == (True, "1.3")
    assert {end["connection"] for end in ends} == {connection["number"]}
    hooks = [event[0] for event in events(proxy) if event[0] != "on_bytes"]
    assert hooks[:7] == ["on_connect", "on_request", "on_origin", "on_response",
                         "on_origin_tls", "on_client_tls", "on_end"]


def test_a_tunnel_by_socks_is_reported_as_one_by_connect(run, make_origin, call):
    proxy, origin = run(config=SOCKS5), make_origin(echo)
    client = call(proxy).socks_tunnel(origin.authority, b"x")
    assert client.read_exact(1) == b"x"
    client.half_close()
    assert client.at_eof()
    (end,) = wait_events(proxy, "on_end")
    assert (end["method"], end["kind"], end["status"], end["user"]) == (
        "SOCKS5", "tunnel", 200, "user")
    assert [event[0] for event in events(proxy) if event[0] != "on_bytes"][:5] == [
        "on_connect", "on_request", "on_origin", "on_response", "on_end"]


def test_a_handshake_with_a_named_origin(run, make_origin, dial):
    server = make_origin(served_by_tls(say("tls")))
    origins = named(server, scheme="https", ca=str(authority().own.certificate))
    proxy = run('default = "allow"\n',
                'address_floor = "off"\norigin = "api"\n' + origins)
    assert dial(proxy).get("/", host=HOST).body == b"tls"
    (end,) = wait_events(proxy, "on_end")
    (exchange,) = wait_events(proxy, "on_origin_tls")
    assert (exchange["parent"], exchange["peer_tls_version"]) == (
        f"api/127.0.0.1:{server.port}", "1.3")
    assert exchange["id"] == end["id"]


def test_a_tunnel_that_is_handed_over_ends_in_the_next_worker(
        loop_name, directory, opened, make_origin, dial):
    folder, origin = directory("proxy"), make_origin(echo)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "watched.py").write_text(textwrap.dedent(TRACKER))
    proxy = opened.enter_context(Proxy(
        folder, loop=loop_name, config=HOOK, env={"PYTHONPATH": str(folder)}))
    opened.callback(end_family, str(proxy._config))
    tunnel = dial(proxy).tunnel(origin.authority)
    (connection,) = wait_events(proxy, "on_connect")
    renew(proxy, 1, HOOK)
    tunnel.send(b"x")
    assert tunnel.read_exact(1) == b"x"
    tunnel.close()
    (end,) = wait_events(proxy, "on_end")
    assert (end["connection"], end["kind"], end["bytes_up"]) == (0, "tunnel", 1)
    assert end["id"] == wait_events(proxy, "on_request")[0]["id"]
    assert connection["number"] == 1 and events(proxy, "on_disconnect") == []


def test_faults_are_logged_and_stop_nothing(run, make_origin, dial):
    proxy, origin = run(tracker=FAILS), make_origin(answer(HELLO))
    client = dial(proxy)
    for _ in range(3):
        assert client.get(origin.url()).status == 200
    wait_until(lambda: lines(proxy) == ["ok"] * 3, "the ends")
    assert "the activity hook failed in on_connect (1 so far): KeyError" in (
        proxy.stderr())
    assert "the activity hook failed in on_request (2 so far): ValueError" in (
        proxy.stderr())


def test_a_function_that_hangs_holds_up_no_request(run, make_origin, dial):
    proxy, origin = run(tracker=HANGS), make_origin(answer(HELLO))
    assert dial(proxy).get(origin.url()).status == 200
    wait_until(lambda: lines(proxy) == ["ok"], "the end")
    assert "took more than 1 s in on_request (1 so far)" in proxy.stderr()


def test_captures_go_on_beside_it(run, make_origin, dial, database):
    policy = LOCAL.replace('action = "allow"', 'action = "allow"\ncapture = "full"')
    proxy = run(policy, f'capture_file = "{database}"\n')
    origin = make_origin(answer(HELLO))
    assert dial(proxy).get(origin.url()).status == 200
    (row,) = wait_rows(database, 1)
    assert row["request"] == wait_events(proxy, "on_end")[0]["id"]


def test_the_example_counts_bytes_and_connections(start_proxy, make_origin, dial):
    proxy = start_proxy("--activity-hook", "tracker:Tracker",
                        env={"PYTHONPATH": str(ROOT / "docs" / "examples")})
    origin = make_origin(answer(HELLO))
    assert dial(proxy).get(origin.url()).status == 200
    line = wait_until(lambda: len(lines(proxy)) == 2 and lines(proxy)[1], "both lines")
    record = proxy.wait_log(1)[0]
    assert line == (f"{record['id']} ok {record['bytes_up'] + record['bytes_down']} "
                    "bytes 1 connections")


def test_what_ends_with_the_proxy_is_reported(run, make_origin, dial):
    proxy, origin = run(config='drain_timeout = "100ms"\n'), make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    tunnel.send(b"x")
    assert tunnel.read_exact(1) == b"x"
    proxy.stop()
    assert wait_events(proxy, "on_end")[0]["reason"] == "stopped"
    assert len(wait_events(proxy, "on_disconnect")) == 1


class Noting:
    def __init__(self) -> None:
        self.ends: list[cutthrough.Exchange] = []

    def on_end(self, exchange: cutthrough.Exchange) -> None:
        self.ends.append(exchange)


def test_an_embedded_proxy_takes_the_object_itself_and_holds_nothing():
    tracker = Noting()
    with Origin(answer(HELLO)) as origin, cutthrough.serve(
            user=USER, password=PASSWORD, activity_hook=tracker) as proxy:
        with Client(proxy.port) as client:
            assert client.get(origin.url()).status == 200
        watcher = proxy.worker.watcher
        wait_until(lambda: tracker.ends and watcher.held == 0, "its end")
        assert watcher.calls.faults == 0
    assert (tracker.ends[0].method, tracker.ends[0].status) == ("GET", 200)


def test_a_class_is_refused():
    with pytest.raises(cutthrough.ConfigError, match="Noting is a class: give an obj"):
        cutthrough.serve(activity_hook=Noting)


COUNTED = """
    import asyncio
    import time

    class Tracker:
        def on_request(self, exchange):
            raise ValueError

        async def on_end(self, exchange):
            await asyncio.sleep(0.02)

        def on_disconnect(self, connection):
            time.sleep(0.01)                 # a slow call, whose time is counted
"""


def test_the_calls_of_a_tracker_are_in_the_metrics(run, make_origin, dial):
    proxy, origin = run(config=DOOR, tracker=COUNTED), make_origin(answer(HELLO))
    operator = operator_of(proxy)
    for _ in range(3):
        client = dial(proxy)
        assert client.get(origin.url()).status == 200
        client.close()

    def calls(result: str) -> float:
        return operator.metrics()[f'activity_calls_total{{result="{result}"}}']
    wait_until(lambda: calls("calls") == 9, "all are counted")
    assert calls("failed") == 3
    assert calls("overran") == calls("dropped") == 0
    assert 0.09 <= operator.metrics()["activity_call_seconds_total"] < 60


def test_each_member_that_fails_is_reported(run, make_origin, dial):
    first, second = make_origin(), make_origin(say("b"))
    proxy = run('default = "allow"\n', (
        'address_floor = "off"\norigin = "api"\n'
        + named(first, second, choose="failover")))
    first.close()
    assert dial(proxy).get("/", host=HOST).body == b"b"
    (failed,) = wait_events(proxy, "on_parent_failed")
    assert (failed["parent"], failed["reason"]) == (
        f"api/127.0.0.1:{first.port}", "origin_unreachable")
    (end,) = wait_events(proxy, "on_end")
    assert (end["id"], end["parent"], end["reason"]) == (
        failed["id"], f"api/127.0.0.1:{second.port}", "ok")
