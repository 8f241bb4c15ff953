"""The level of the error log, changed by an operator while the proxy serves."""

import json
import os
import signal

import pytest

from tests.support.admin import AUTHORIZED, administered
from tests.support.client import build_request
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FORM = 'error_log_format = "json"\n'


def set_level(operator, level: str) -> None:
    status, text = operator.ask("POST", f"/log-level?level={level}", **AUTHORIZED)
    assert (status, json.loads(text)) == (200, {"level": level, "unanswered": []})


def reset_after_head(conn) -> None:
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    conn.reset()


def fail(proxy, origin, dial, times: int) -> None:
    """A fault of the origin, of which the log has a trace."""
    client = dial(proxy)
    client.send(build_request("GET", origin.url("/x")))
    client.read_head()
    proxy.wait_log(times, reason="origin_reset")


def lines(proxy, **fields) -> list[dict]:
    """Those of the error log with these values."""
    found = [json.loads(line) for line in proxy.stderr().splitlines()]
    return [line for line in found if fields.items() <= line.items()]


def test_at_debug_each_ending_has_its_trace(
        opened, directory, loop_name, make_origin, dial):
    proxy, operator = administered(opened, directory("proxy"), loop_name,
                                   f"{FORM}workers = 1\n")
    origin = make_origin()
    assert json.loads(operator.get("/log-level"))["level"] == "info"
    assert dial(proxy).get(origin.url("/before")).status == 200
    set_level(operator, "debug")
    for n in range(20):                       # more than are logged of other levels
        assert dial(proxy).get(origin.url(f"/{n}")).status == 200
    traces = wait_until(
        lambda: len(found := lines(proxy, level="debug", message="trace")) >= 20
        and found, proxy.stderr)
    assert len(traces) == 20
    assert {line["reason"] for line in traces} == {"ok"}
    assert lines(proxy, source="supervisor",
                 message="log level: debug by 127.0.0.1")
    set_level(operator, "info")
    assert dial(proxy).get(origin.url("/after")).status == 200
    operator.ask("POST", "/settle", **AUTHORIZED)
    assert len(lines(proxy, message="trace")) == 20


def test_at_error_a_warning_is_left_out_and_operators_are_not(
        opened, directory, loop_name, make_origin, dial):
    proxy, operator = administered(opened, directory("proxy"), loop_name,
                                   f"{FORM}workers = 1\n")
    origin = make_origin(reset_after_head)
    fail(proxy, origin, dial, 1)
    wait_until(lambda: lines(proxy, level="warning", message="trace"), proxy.stderr)
    set_level(operator, "error")
    fail(proxy, origin, dial, 2)
    operator.ask("POST", "/settle", **AUTHORIZED)
    assert len(lines(proxy, message="trace")) == 1
    assert lines(proxy, message="log level: error by 127.0.0.1")


def test_a_worker_that_starts_later_has_the_level(
        opened, directory, loop_name, make_origin, dial):
    proxy, operator = administered(opened, directory("proxy"), loop_name,
                                   f"{FORM}workers = 1\n")
    set_level(operator, "debug")
    before = proxy.worker.pid
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: [one for one in proxy.workers() if one.pid != before]
               and operator.ask("GET", "/readyz")[0] == 200, "another worker")
    assert dial(proxy).get(make_origin().url()).status == 200
    wait_until(lambda: lines(proxy, level="debug", message="trace"), proxy.stderr)


def test_a_level_that_is_none_is_refused_and_a_change_needs_the_token(
        opened, directory, loop_name):
    _, operator = administered(opened, directory("proxy"), loop_name)
    for query in ("", "level=loud", "level=info&more=1", "level="):
        status, text = operator.ask("POST", f"/log-level?{query}", **AUTHORIZED)
        assert (status, text) == (
            400, "give level=…, one of error, warning, info, debug\n"), query
    assert operator.ask("POST", "/log-level?level=debug")[0] == 401
    assert json.loads(operator.get("/log-level"))["level"] == "info"
