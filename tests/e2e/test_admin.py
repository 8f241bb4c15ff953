"""The admin listener: answers, changes, and refusals (R39)."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest

from cutthrough.admin.endings import MOST_WATCHERS, MOST_WATCHERS_EACH
from tests.support.admin import (
    AUTHORIZED,
    TOKEN,
    Operator,
    administered,
    some_tunnels,
)
from tests.support.client import USER
from tests.support.lines import read_line
from tests.support.origin import echo, stall
from tests.support.proxy import Proxy
from tests.support.successors import end, successor_of
from tests.support.wait import TRIES, wait_until


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text="", token=TOKEN: administered(
        opened, directory("proxy"), loop_name, text, token)


# Answers

@pytest.mark.any_loop
def test_off_is_the_default(loop_name, directory, opened):
    proxy = opened.enter_context(Proxy(directory("proxy"), loop=loop_name))
    assert "admin" not in proxy.stderr()
    before = {c.laddr.port for c in proxy.workers()[0].parent().net_connections()
              if c.status == "LISTEN"}
    assert before <= set(proxy.ports)


@pytest.mark.any_loop
def test_health_and_readiness(start):
    _proxy, operator = start()
    assert operator.get("/healthz") == "ok\n"
    assert operator.get("/readyz") == "serving\n"


@pytest.mark.any_loop
def test_it_is_not_ready_while_it_drains(start, make_origin, dial):
    proxy, operator = start()
    tunnel = some_tunnels(proxy, make_origin(echo), dial, 1)[0]
    proxy.signal(signal.SIGTERM)
    wait_until(lambda: operator.ask("GET", "/readyz")[0] == 503, "503 while draining")
    assert operator.ask("GET", "/healthz")[0] == 200
    tunnel.close()
    assert proxy.wait_exit() == 0


@pytest.mark.any_loop
def test_it_is_not_ready_while_no_worker_is(start):
    """Until then a load balancer sent requests to a proxy with dying workers."""
    proxy, operator = start()
    while operator.ask("GET", "/readyz")[0] == 200:
        for worker in proxy.workers():
            os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: operator.ask("GET", "/readyz")[0] == 200, "the next one")


def test_a_loop_that_hangs_is_late(start):
    """Until then the metric kept its last value for ever."""
    proxy, operator = start()
    name = 'loop_lag_seconds{worker="0"}'
    os.kill(proxy.worker.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: operator.metrics()[name] > 0.5, "it is seen")
    finally:
        os.kill(proxy.worker.pid, signal.SIGCONT)
    wait_until(lambda: operator.metrics()[name] < 0.5, "it is well again")


def test_a_tunnel_is_listed_as_the_log_will_have_it(start, make_origin, dial):
    proxy, operator = start()
    origin = make_origin(echo)
    tunnel = some_tunnels(proxy, origin, dial, 1)[0]
    (one,) = operator.connections()
    tunnel.close()
    (record,) = proxy.wait_log(1)
    assert one.pop("age") >= 0
    assert one == {
        "id": record["id"], "worker": 0, "client": "127.0.0.1", "user": USER,
        "method": "CONNECT", "host": "127.0.0.1", "port": origin.port,
        "state": "tunnel", "kind": "tunnel", "bytes_up": 5, "bytes_down": 5,
        "peer": "127.0.0.1"}


@pytest.mark.any_loop
def test_a_request_and_an_idle_connection_are_told_apart(start, make_origin, dial):
    proxy, operator = start()
    idle = dial(proxy)
    assert idle.get(make_origin().url()).status == 200
    busy = dial(proxy)
    origin = make_origin(stall)
    busy.send(
        f"PATCH {origin.url('/x')} HTTP/1.1\r\nHost: a\r\n"
        f"Proxy-Authorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n\r\n".encode())
    (request,) = wait_until(lambda: operator.connections("state=response"), "a request")
    assert (request["method"], request["kind"]) == ("PATCH", "request")
    (other,) = operator.connections("kind=idle")
    assert (other["state"], other["user"], other["method"]) == ("idle", None, None)


SELECTED = [
    ("", 2), ("user=user", 2), ("user=nobody", 0), ("state=tunnel", 2),
    ("host=127.0.0.1", 2), ("host=*.0.0.1", 2), ("host=example.com", 0),
    ("client=127.0.0.1", 2), ("client=192.0.2.1", 0), ("bytes=10", 2), ("bytes=11", 0),
    ("older=0", 2), ("older=3600", 0), ("kind=tunnel&bytes=10", 2), ("kind=idle", 0),
]


@pytest.mark.any_loop
def test_selectors_choose(start, make_origin, dial):
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 2)
    for query, count in SELECTED:
        assert len(operator.connections(query)) == count, query


@pytest.mark.any_loop
def test_many_may_ask_at_once(start, make_origin, dial):
    """Each caller gets its own answer, also if others ask meanwhile."""
    proxy, operator = start("workers = 2\n")
    some_tunnels(proxy, make_origin(echo), dial, 3)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda _: len(operator.connections("kind=tunnel")), range(64))
        assert set(found) == {3}


@pytest.mark.any_loop
def test_a_selector_that_is_none_is_refused(start):
    _, operator = start()
    for query in ("usr=me", "older=soon", "bytes=1KiB", "state=tunnle", "kind=x",
                  "client=ann", "older=-1", "older=nan", "user=a&user=b"):
        status, text = operator.ask("GET", f"/connections?{query}")
        assert status == 400 and text


@pytest.mark.any_loop
def test_socket_options_asked_for_and_in_force_are_shown(start):
    proxy, operator = start("workers = 2\n")
    text = operator.get("/config")
    assert f"\n# listen 127.0.0.1:{proxy.port}: 2 sockets\n" in text
    for option in ("backlog", "SO_REUSEPORT", "TCP_NODELAY"):
        ((asked, in_force),) = re.findall(rf"^#   {option} +(\d+) +(\d+)$", text, re.M)
        assert asked == in_force or option == "backlog"
    assert re.search(r"^#   SO_RCVBUF +- +\d+$", text, re.M)
    assert "\n# workers            2\n" in text
    tomllib.loads(text)


@pytest.mark.any_loop
def test_the_configuration_is_shown_without_secrets(start):
    _proxy, operator = start('head_timeout = "7s"\n')
    text = operator.get("/config")
    assert 'head_timeout = "7s"' in text
    assert "pass:word" not in text and TOKEN not in text


def test_endings_come_as_they_are_logged(start, make_origin, dial):
    proxy, operator = start("workers = 2\n")
    made = operator.connection()
    try:
        made.request("GET", "/events")
        stream = made.getresponse()
        assert stream.getheader("Content-Type") == "text/event-stream"
        url, records = make_origin().url("/seen"), []
        for _ in range(4):
            assert dial(proxy).get(url).status == 200
        while len(records) < 4:
            line = stream.readline()
            if line.startswith(b"data: "):
                records.append(read_line(line[6:]))
        assert {record["url"] for record in records} == {url}
        logged = proxy.wait_log(4)
        assert sorted(r["id"] for r in records) == sorted(r["id"] for r in logged)
    finally:
        made.close()


@pytest.mark.any_loop
def test_nobody_is_told_after_the_last_watcher_has_gone(start, make_origin, dial):
    proxy, operator = start()
    pipes = proxy.census()
    made = operator.connection()
    made.request("GET", "/events")
    made.getresponse()
    wait_until(lambda: proxy.census() != pipes, "the worker has the pipe")
    made.close()
    url = make_origin().url()
    wait_until(lambda: dial(proxy).get(url).status == 200
               and proxy.census()[proxy.worker.pid]["pipe"]
               <= pipes[proxy.worker.pid]["pipe"], "it has closed it")
    assert "rror" not in proxy.stderr(), "who closes the page leaves no traceback"


@pytest.mark.any_loop
def test_a_watcher_that_reads_nothing_is_cut_off(
        loop_name, directory, opened, make_origin, dial):
    """Until then the listener kept unread events in memory, and all workers wrote
    more of them."""
    path = directory("admin") / "socket"
    proxy = opened.enter_context(Proxy(
        directory("proxy"), "--admin", f"unix:{path}", loop=loop_name))
    wait_until(Operator(str(path)).answers, "the socket")
    pipes = proxy.census()
    with contextlib.closing(Operator(str(path)).connection()) as watcher:
        watcher.request("GET", "/events")
        wait_until(lambda: proxy.census() != pipes, "the worker has the pipe")
        # More than a unix socket and the queue before it hold
        client, url = dial(proxy), make_origin().url("/" + "x" * 3000)
        for _ in range(300):
            assert client.get(url).status == 200
        wait_until(lambda: client.get(url).status == 200
                   and proxy.census()[proxy.worker.pid]["pipe"]
                   <= pipes[proxy.worker.pid]["pipe"], "it has closed it")
        with pytest.raises((http.client.HTTPException, OSError)):
            watcher.getresponse().read()
    assert "rror" not in proxy.stderr()


@pytest.mark.any_loop
def test_watchers_are_bounded(start):
    _proxy, operator = start()
    watching = []
    try:
        for number in range(MOST_WATCHERS):      # of an address no more than a share
            some = Operator(operator.where, f"127.0.1.{number // MOST_WATCHERS_EACH}")
            watching.append(some.connection())
            watching[-1].request("GET", "/events")
            assert watching[-1].getresponse().status == 200
        assert operator.ask("GET", "/events") == (
            503, f"too many watchers: {MOST_WATCHERS}\n")
        assert operator.ask("HEAD", "/events")[0] == 405
        assert operator.get("/healthz")
    finally:
        for one in watching:
            one.close()


# Changes

def test_a_cut_reaches_every_worker_within_200_ms(start, make_origin, dial):
    """The clients judge: each sees its tunnel reset."""
    proxy, operator = start("workers = 3\n")
    origin = make_origin(echo)

    def seen(tunnel) -> float:
        with contextlib.suppress(ConnectionResetError):
            assert tunnel.sock.recv(1) == b""
        return time.monotonic()

    tries = []
    while not tries or (min(tries) > 0.2 and len(tries) < TRIES):   # on a busy machine
        proxy.mark()
        tunnels = some_tunnels(proxy, origin, dial, 30)
        assert len({one["worker"] for one in operator.connections()}) == 3
        with ThreadPoolExecutor(len(tunnels)) as watchers:
            ends = [watchers.submit(seen, tunnel) for tunnel in tunnels]
            before = time.monotonic()
            assert operator.cut(f"user={USER}") == 30
            tries.append(max(end.result() for end in ends) - before)
        assert operator.connections() == []
        assert len(proxy.wait_log(30, reason="cut")) == 30
    assert min(tries) < 0.2, f"{min(tries) * 1000:.0f} ms"


@pytest.mark.any_loop
def test_only_what_was_meant_is_cut(start, make_origin, dial):
    proxy, operator = start()
    first, second = some_tunnels(proxy, make_origin(echo), dial, 2)
    newest, oldest = operator.connections()
    assert operator.cut(f"id={oldest['id']}") == 1
    with pytest.raises(ConnectionResetError):
        first.sock.recv(1)
    second.send(b"still")
    assert second.read_exact(5) == b"still"
    assert [one["id"] for one in operator.connections()] == [newest["id"]]


@pytest.mark.any_loop
def test_who_does_not_answer_is_named(start, make_origin, dial):
    """Until then the answer was the number of connections cut by the other workers."""
    proxy, operator = start()
    tunnel = some_tunnels(proxy, make_origin(echo), dial, 1)[0]
    pid = proxy.worker.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        status, text = operator.ask("DELETE", f"/connections?user={USER}", **AUTHORIZED)
        assert (status, json.loads(text)) == (
            200, {"cut": 0, "unanswered": [f"worker 0 (pid {pid})"]})
        assert json.loads(operator.get("/connections"))["unanswered"]
    finally:
        os.kill(pid, signal.SIGCONT)
    with pytest.raises(ConnectionResetError):
        tunnel.sock.recv(1)
    assert json.loads(operator.get("/connections"))["unanswered"] == []


def test_what_drains_in_the_program_before_is_listed_and_cut(start, make_origin, dial):
    """Until then an upgrade hid the connections of the old program: the operator could
    neither list nor cut them."""
    text = 'handover = false\nworkers = 2\n'
    proxy, operator = start(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    proxy.reload(f'admin = "127.0.0.1:{port}"\nadmin_token = "{TOKEN}"\n{text}')
    operator = Operator(port)
    origin = make_origin(echo)
    before = some_tunnels(proxy, origin, dial, 4)
    new = successor_of(proxy)
    try:
        wait_until(lambda: operator.answers() and len(operator.connections()) == 4,
                   "the new program knows of them")
        after = some_tunnels(proxy, origin, dial, 2)
        found = operator.connections("kind=tunnel")
        assert len({one["id"] for one in found}) == len(found) == 6
        name = max(found, key=lambda one: one["age"])["id"]
        assert json.loads(operator.get(f"/connections/{name}/trace"))["id"] == name
        assert operator.cut(f"user={USER}") == 6
        for tunnel in (*before, *after):
            with pytest.raises(ConnectionResetError):
                tunnel.sock.recv(1)
        assert proxy.wait_exit() == 0, "it has nothing left to wait for"
        assert operator.connections() == []
    finally:
        end(new)


@pytest.mark.any_loop
def test_a_request_that_is_cut_is_told_so(start, make_origin, dial):
    proxy, operator = start()
    client = dial(proxy)
    client.send(f"GET {make_origin(stall).url()} HTTP/1.1\r\nHost: a\r\n"
                "Proxy-Authorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n\r\n".encode())
    wait_until(lambda: operator.connections("state=response"), "a request")
    assert operator.cut("state=response") == 1
    reply = client.read_response()
    assert (reply.status, reply.get("Connection")) == (503, "close")
    assert client.at_eof()
    assert proxy.wait_reason("cut")["status"] == 503


@pytest.mark.any_loop
def test_a_cut_without_a_selector_is_refused(start, make_origin, dial):
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 1)
    status, text = operator.ask("DELETE", "/connections", **AUTHORIZED)
    assert status == 400 and "all=true" in text
    assert operator.cut("all=true") == 1


@pytest.mark.any_loop
def test_a_reload_and_what_refuses_it(start):
    proxy, operator = start()
    proxy.write_config(f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'
                       'head_timeout = "3s"\n')
    assert operator.ask("POST", "/reload", **AUTHORIZED)[0] == 200
    assert "generation 2: head_timeout 10s -> 3s" in proxy.stderr()
    now = operator.metrics()
    assert now["config_generation"] == 2
    assert (now['reloads_total{result="ok"}'], now['reloads_total{result="refused"}'],
            now["config_last_reload_successful"]) == (1, 0, 1)
    proxy._config.write_text("head_timeut = 1\n")
    status, _text = operator.ask("POST", "/reload", **AUTHORIZED)
    then = operator.metrics()
    assert (status, then["config_generation"]) == (409, 2)
    assert (then['reloads_total{result="ok"}'], then['reloads_total{result="refused"}'],
            then["config_last_reload_successful"]) == (1, 1, 0)
    stamp = "config_last_reload_success_timestamp_seconds"
    assert then[stamp] == now[stamp]


@pytest.mark.any_loop
def test_workers_that_die_are_counted(start):
    """Until then a worker's death was on standard error alone."""
    proxy, operator = start()
    assert operator.metrics()['worker_deaths_total{worker="0"}'] == 0
    os.kill(proxy.worker.pid, signal.SIGKILL)
    wait_until(lambda: operator.metrics()['worker_deaths_total{worker="0"}'] == 1,
               "it is counted")
    wait_until(lambda: operator.metrics()['worker_up{worker="0"}'], "the next one")
    proxy.reload(f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'
                 "dns_cache_entries = 7\n")
    assert operator.metrics()['worker_deaths_total{worker="0"}'] == 1, "not those told"


@pytest.mark.any_loop
def test_a_drain_ends_the_program(start):
    proxy, operator = start()
    assert operator.ask("POST", "/drain", **AUTHORIZED)[0] == 202
    assert proxy.wait_exit() == 0
