"""The flight recorder: events before a bad ending, and those of a connection so far."""

import json
import re
import socket

import pytest

from tests.support.admin import administered, some_tunnels
from tests.support.client import build_request
from tests.support.origin import echo, stall
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FORM = 'error_log_format = "json"\n'


def traces(proxy) -> list[dict]:
    said = [json.loads(line) for line in proxy.stderr().splitlines()
            if line.startswith("{")]
    return [one for one in said if one["message"] == "trace"]


def names(trace: dict) -> list[str]:
    return [" ".join(filter(None, (e["event"], e.get("state"), e.get("reason"))))
            for e in trace["events"]]


def reset_after_head(conn) -> None:
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    conn.reset()


def test_what_led_to_an_origins_reset_is_told(
        directory, loop_name, make_origin, dial, opened):
    proxy, _ = administered(opened, directory("proxy"), loop_name, FORM)
    # From here on the user is known: no state auth
    assert dial(proxy).get(make_origin().url()).status == 200
    url = make_origin(reset_after_head).url("/x")
    client = dial(proxy)
    client.send(build_request("GET", url))
    client.read_head()
    (record,) = proxy.wait_log(1, reason="origin_reset")
    (trace,) = wait_until(lambda: traces(proxy), proxy.stderr)
    assert trace["id"] == record["id"] and trace["reason"] == record["reason"]
    assert trace["level"] == "warning" and trace["source"] == "worker 0"
    assert (trace["user"], trace["host"]) == ("user", "127.0.0.1")
    assert trace["at_accept"]
    assert names(trace) == [
        "accepted", "read", "resolved", "state dial", "dialled", "state response", "up",
        "answer", "down", "state relay", "down failed",
        "ended origin_reset"]
    assert trace["events"][0] == {"ms": 0.0, "event": "accepted",
                                  "port": client.sock.getsockname()[1]}
    assert trace["events"][-1]["status"] == 200
    failed = [e for e in trace["events"] if "failed" in e["event"]]
    assert failed[0]["error"] == "Connection reset by peer"
    times = [event["ms"] for event in trace["events"]]
    assert times == sorted(times)


def test_a_deadline_is_told(start_proxy, make_origin, dial):
    proxy = start_proxy("--response-timeout", "200ms", "--error-log-format", "json")
    assert dial(proxy).get(make_origin(stall).url()).status == 504
    (trace,) = wait_until(lambda: traces(proxy), proxy.stderr)
    assert trace["reason"] == "response_timeout"
    assert names(trace)[-2:] == ["deadline response", "ended response_timeout"]
    assert trace["events"][-1]["ms"] >= 200


def test_what_is_nobodys_fault_is_not_told(start_proxy, make_origin, dial):
    """Nor is a client's act, or an operator's; and the line in text."""
    proxy = start_proxy()
    assert dial(proxy).get(make_origin().url(), auth=None).status == 407
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    tunnel.reset()
    proxy.wait_log(3)
    client = dial(proxy)
    client.send(build_request("GET", make_origin(reset_after_head).url()))
    client.read_head()
    proxy.wait_log(4)
    said = wait_until(lambda: re.findall(r"^.*trace .*$", proxy.stderr(), re.M),
                      proxy.stderr)
    assert len(said) == 1
    assert re.fullmatch(
        r'cutthrough: worker 0: trace id=0-\d+ worker=0 client=127\.0\.0\.1 user=user '
        r'method=GET .*events="0\.000 accepted port=\d+; .* ended origin_reset '
        r'status=200" .*reason=origin_reset', said[0]), said


def test_a_flood_of_bad_endings_is_told_a_few_times(start_proxy, make_origin, dial):
    proxy = start_proxy("--error-log-format", "json")
    url = make_origin(reset_after_head).url()
    for _ in range(20):
        client = dial(proxy)
        client.send(build_request("GET", url))
        client.read_head()
    proxy.wait_log(20, reason="origin_reset")
    assert 1 <= len(traces(proxy)) <= 5


def test_an_open_connections_trace_can_be_asked_for(
        directory, loop_name, make_origin, dial, opened):
    proxy, operator = administered(opened, directory("proxy"), loop_name,
                                   "workers = 2\n")
    first, second = some_tunnels(proxy, make_origin(echo), dial, 2)
    ids = {one["id"] for one in operator.connections("kind=tunnel")}
    assert len(ids) == 2
    ports = set()
    for name in ids:
        trace = json.loads(operator.get(f"/connections/{name}/trace"))
        assert trace["id"] == name and trace["at_accept"]
        assert names(trace)[-3:] == ["state tunnel", "up", "down"]
        assert [e["bytes"] for e in trace["events"][-2:]] == [5, 5]
        ports.add(trace["events"][0]["port"])
    assert ports == {one.sock.getsockname()[1] for one in (first, second)}
    assert operator.ask("GET", "/connections/0-999999/trace")[0] == 404


def test_bytes_that_go_on_and_on_are_one_event(
        directory, loop_name, make_origin, dial, opened):
    proxy, operator = administered(opened, directory("proxy"), loop_name)
    tunnel = dial(proxy).tunnel(make_origin(stall).authority)
    for _ in range(50):
        tunnel.send(b"x" * 100)
    (one,) = wait_until(
        lambda: [o for o in operator.connections() if o["bytes_up"] == 5000],
        lambda: operator.connections())
    trace = json.loads(operator.get(f"/connections/{one['id']}/trace"))
    assert [e for e in trace["events"] if e["event"] == "up"] == [
        {"ms": trace["events"][-1]["ms"], "event": "up", "bytes": 5000}]


def test_what_is_no_longer_kept_is_said(
        directory, loop_name, make_origin, dial, opened):
    """A ring of 16 events: a busy neighbour takes them all."""
    proxy, operator = administered(opened, directory("proxy"), loop_name,
                                   "flight_recorder = 16\n")
    some_tunnels(proxy, make_origin(echo), dial, 1)
    (one,) = operator.connections("kind=tunnel")
    client, url = dial(proxy), make_origin().url()
    for _ in range(5):
        assert client.get(url).status == 200
    trace = json.loads(operator.get(f"/connections/{one['id']}/trace"))
    assert trace["events"] == [] and not trace["at_accept"]


def test_none_means_none(directory, loop_name, make_origin, dial, opened):
    proxy, operator = administered(opened, directory("proxy"), loop_name,
                                   "flight_recorder = 0\n" + FORM)
    client = dial(proxy)
    client.send(build_request("GET", make_origin(reset_after_head).url()))
    client.read_head()
    proxy.wait_log(1, reason="origin_reset")
    some_tunnels(proxy, make_origin(echo), dial, 1)
    (one,) = operator.connections("kind=tunnel")
    assert json.loads(operator.get(f"/connections/{one['id']}/trace"))["events"] == []
    assert traces(proxy) == []


def test_a_descriptor_of_a_client_that_came_later_has_its_own_story(
        start_proxy, make_origin, dial):
    """The next connection gets the memory, and not the events of the last one."""
    proxy = start_proxy("--error-log-format", "json")
    origin = make_origin()
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
            raw.sendall(build_request("GET", origin.url()))
            assert raw.recv(4096).startswith(b"HTTP/1.1 200")
    client = dial(proxy)
    client.send(build_request("GET", make_origin(reset_after_head).url()))
    client.read_head()
    (trace,) = wait_until(lambda: traces(proxy), proxy.stderr)
    assert [n for n in names(trace) if n == "accepted"] == ["accepted"]
    assert trace["events"][0]["port"] == client.sock.getsockname()[1]
