"""The admin listener: what it tells, what it changes, and whom it refuses (R39)."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.admin import AUTHORIZED, TOKEN, Operator
from tests.support.client import USER
from tests.support.origin import echo, stall
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.wait import wait_until

TOLD = re.compile(r"admin listener on 127\.0\.0\.1:(\d+)\n")


@pytest.fixture
def start(loop_name, directory, opened):
    """A proxy with an admin listener on a free port, and who asks it."""

    def make(text: str = "", token: str = TOKEN) -> tuple[Proxy, Operator]:
        proxy = opened.enter_context(Proxy(
            directory("proxy"), loop=loop_name,
            config=f'admin = "127.0.0.1:0"\nadmin_token = "{token}"\n{text}'))
        return proxy, Operator(port_of(proxy))

    return make


def port_of(proxy: Proxy) -> int:
    return int(wait_until(lambda: TOLD.findall(proxy.stderr()), proxy.stderr)[-1])


def some_tunnels(proxy, origin, dial, count: int) -> list:
    made = []
    for _ in range(count):
        tunnel = dial(proxy).tunnel(origin.authority)
        tunnel.send(b"hello")
        assert tunnel.read_exact(5) == b"hello"
        made.append(tunnel)
    return made


# What it tells

def test_off_is_the_default(loop_name, directory, opened):
    proxy = opened.enter_context(Proxy(directory("proxy"), loop=loop_name))
    assert "admin" not in proxy.stderr()
    before = {c.laddr.port for c in proxy.workers()[0].parent().net_connections()
              if c.status == "LISTEN"}
    assert before <= set(proxy.ports)


def test_health_and_readiness(start):
    _proxy, operator = start()
    assert operator.get("/healthz") == "ok\n"
    assert operator.get("/readyz") == "serving\n"


def test_it_is_not_ready_while_it_drains(start, make_origin, dial):
    proxy, operator = start()
    tunnel = some_tunnels(proxy, make_origin(echo), dial, 1)[0]
    proxy.signal(signal.SIGTERM)
    wait_until(lambda: operator.ask("GET", "/readyz")[0] == 503, "503 while draining")
    assert operator.ask("GET", "/healthz")[0] == 200
    tunnel.close()
    assert proxy.wait_exit() == 0


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


def test_a_request_and_an_idle_connection_are_told_apart(start, make_origin, dial):
    proxy, operator = start()
    idle = dial(proxy)
    assert idle.get(make_origin().url()).status == 200
    busy = dial(proxy)
    origin = make_origin(stall)
    busy.send(
        f"PATCH {origin.url('/x')} HTTP/1.1\r\nHost: a\r\n"
        f"Proxy-Authorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n\r\n".encode())
    (request,) = wait_until(lambda: operator.connections("kind=request"), "a request")
    assert (request["method"], request["state"]) == ("PATCH", "response")
    (other,) = operator.connections("kind=idle")
    assert (other["state"], other["user"], other["method"]) == ("idle", None, None)


SELECTED = [
    ("", 2), ("user=user", 2), ("user=nobody", 0), ("state=tunnel", 2),
    ("host=127.0.0.1", 2), ("host=*.0.0.1", 2), ("host=example.com", 0),
    ("client=127.0.0.1", 2), ("client=192.0.2.1", 0), ("bytes=10", 2), ("bytes=11", 0),
    ("older=0", 2), ("older=3600", 0), ("kind=tunnel&bytes=10", 2), ("kind=idle", 0),
]


def test_selectors_choose(start, make_origin, dial):
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 2)
    for query, count in SELECTED:
        assert len(operator.connections(query)) == count, query


def test_a_selector_that_is_none_is_refused(start):
    _, operator = start()
    for query in ("usr=me", "older=soon", "bytes=1KiB"):
        status, text = operator.ask("GET", f"/connections?{query}")
        assert status == 400 and text


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
                records.append(json.loads(line[6:]))
        assert {record["url"] for record in records} == {url}
        logged = proxy.wait_log(4)
        assert sorted(r["id"] for r in records) == sorted(r["id"] for r in logged)
    finally:
        made.close()


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


# What it changes

def test_a_cut_reaches_every_worker_within_200_ms(start, make_origin, dial):
    """Told by the clients: each sees its tunnel reset."""
    proxy, operator = start("workers = 3\n")
    tunnels = some_tunnels(proxy, make_origin(echo), dial, 30)
    assert len({one["worker"] for one in operator.connections()}) == 3

    def seen(tunnel) -> float:
        with contextlib.suppress(ConnectionResetError):
            assert tunnel.sock.recv(1) == b""
        return time.monotonic()

    with ThreadPoolExecutor(len(tunnels)) as watchers:
        ends = [watchers.submit(seen, tunnel) for tunnel in tunnels]
        before = time.monotonic()
        assert operator.cut(f"user={USER}") == 30
        last = max(end.result() for end in ends) - before
    assert last < 0.2, f"{last * 1000:.0f} ms"
    assert operator.connections() == []
    assert len(proxy.wait_log(30, reason="cut")) == 30


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


def test_a_cut_without_a_selector_is_refused(start, make_origin, dial):
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 1)
    status, text = operator.ask("DELETE", "/connections", **AUTHORIZED)
    assert status == 400 and "all=true" in text
    assert operator.cut("all=true") == 1


def test_a_reload_and_what_refuses_it(start):
    proxy, operator = start()
    proxy.write_config(f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'
                       'head_timeout = "3s"\n')
    assert operator.ask("POST", "/reload", **AUTHORIZED)[0] == 200
    assert "generation 2: head_timeout 10s -> 3s" in proxy.stderr()
    assert operator.metrics()["config_generation"] == 2
    proxy._config.write_text("head_timeut = 1\n")
    status, _text = operator.ask("POST", "/reload", **AUTHORIZED)
    assert (status, operator.metrics()["config_generation"]) == (409, 2)


def test_a_drain_ends_the_program(start):
    proxy, operator = start()
    assert operator.ask("POST", "/drain", **AUTHORIZED)[0] == 202
    assert proxy.wait_exit() == 0


# Whom it refuses

def test_changes_take_the_token(start, make_origin, dial):
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 1)
    for method, path in (("DELETE", "/connections?all=true"), ("POST", "/reload"),
                         ("POST", "/drain"), ("PUT", "/"), ("POST", "/nothing")):
        for given in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}",
                      f"Bearer {TOKEN}x", "Bearer \xff\xfe"):
            assert operator.ask(method, path, Authorization=given)[0] == 401, given
        assert operator.ask(method, path)[0] == 401
    assert len(operator.connections()) == 1
    assert operator.metrics()["config_generation"] == 1
    assert operator.get("/readyz")


def test_without_a_token_nothing_can_be_changed(start):
    _proxy, operator = start(token="")
    for given in ("", "Bearer ", "Bearer None", f"Bearer {TOKEN}"):
        status, text = operator.ask("POST", "/drain", Authorization=given)
        assert status == 403 and "admin_token" in text
    assert operator.get("/readyz")


def test_a_name_that_was_rebound_to_us_is_refused(start):
    """A page of that name is same-origin with whatever answers at its address."""
    _, operator = start()
    for host in ("rebound.example", "rebound.example:80", "localhost.rebound.example",
                 "127.0.0.1.rebound.example", ""):
        for path in ("/", "/metrics", "/config", "/connections", "/events", "/nothing"):
            status, text = operator.ask("GET", path, Host=host)
            assert status == 421, (host, path, text)
        assert operator.ask("POST", "/drain", Host=host, **AUTHORIZED)[0] == 421


def test_addresses_and_configured_names_are_its_own(start):
    _, operator = start('admin_names = ["ops.example"]\n')
    for host in ("localhost", "LOCALHOST:9", "127.0.0.1", "[::1]:80", "ops.example",
                 "OPS.example.:1"):
        assert operator.ask("GET", "/healthz", Host=host)[0] == 200, host


def test_a_token_that_changed_counts_at_once(start):
    proxy, operator = start()
    assert proxy.reload('admin = "127.0.0.1:0"\nadmin_token = "another"\n') == (
        "generation 2: admin_token")
    assert operator.ask("POST", "/reload", **AUTHORIZED)[0] == 401
    status, _ = operator.ask("POST", "/reload", Authorization="Bearer another")
    assert status == 200


def test_it_moves_and_goes_by_a_reload(start, make_origin, dial):
    proxy, operator = start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    proxy.reload(f'admin = "127.0.0.1:{port}"\n')
    moved = Operator(port)
    assert wait_until(lambda: answers(moved), "the new address")
    wait_until(lambda: not answers(operator), "the old one is closed")
    assert dial(proxy).get(f"http://127.0.0.1:{port}/metrics").status == 508
    proxy.reload("")
    wait_until(lambda: not answers(moved), "it is off")


def answers(operator: Operator) -> bool:
    try:
        return operator.ask("GET", "/healthz")[0] == 200
    except OSError:
        return False


def test_the_proxy_never_goes_to_its_own_admin_listener(start, dial):
    """R39: by then the peer is loopback, whoever the client is."""
    proxy, operator = start()
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"):
        url = f"http://{host}:{operator.where}/metrics"
        assert dial(proxy).get(url).status == 508, host
        assert dial(proxy).connect(f"{host}:{operator.where}").status == 508, host
    assert len(proxy.wait_log(8, reason="loop_detected")) == 8


def test_an_address_in_use_refuses_to_start(directory, loop_name):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(AssertionError, match=f"{port}: Address already in use"):
            Proxy(directory("proxy"), "--admin", f"127.0.0.1:{port}", loop=loop_name)


# By a unix socket

def test_a_unix_socket_serves_and_goes_with_the_program(directory, opened, loop_name):
    path = directory("admin") / "socket"
    proxy = opened.enter_context(Proxy(
        directory("proxy"), "--admin", f"unix:{path}", "--admin-token", TOKEN,
        loop=loop_name))
    operator = Operator(str(path))
    wait_until(lambda: answers(operator), "the socket")
    assert path.stat().st_mode & 0o777 == 0o660
    assert operator.ask("GET", "/healthz", Host="any.name")[0] == 200
    with pytest.raises(AssertionError, match="Address already in use"):
        Proxy(directory("proxy"), "--admin", f"unix:{path}", loop=loop_name)
    assert operator.ask("POST", "/drain", **AUTHORIZED)[0] == 202
    assert proxy.wait_exit() == 0
    assert list(path.parent.iterdir()) == []


def test_what_a_killed_program_left_is_taken_over(directory, opened, loop_name):
    path = directory("admin") / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    opened.enter_context(Proxy(
        directory("proxy"), "--admin", f"unix:{path}", loop=loop_name))
    wait_until(lambda: answers(Operator(str(path))), "the socket")


def test_a_file_in_its_place_stays(directory, loop_name):
    path = directory("admin") / "file"
    path.write_text("precious")
    with pytest.raises(AssertionError, match="exists, and is no socket"):
        Proxy(directory("proxy"), "--admin", f"unix:{path}", loop=loop_name)
    assert path.read_text() == "precious"


def test_after_an_upgrade_the_new_program_answers(start, make_origin, dial):
    proxy, operator = start()
    tunnel = some_tunnels(proxy, make_origin(echo), dial, 1)[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = f'admin = "127.0.0.1:{port}"\nadmin_token = "{TOKEN}"\n'
    proxy.reload(text)
    operator = Operator(port)
    wait_until(lambda: answers(operator), "the new address")
    assert operator.metrics()["config_generation"] == 2
    proxy.signal(signal.SIGUSR2)
    wait_until(lambda: answers(operator)
               and operator.metrics()["config_generation"] == 1, "the new program")
    for _ in range(20):
        assert operator.get("/readyz") == "serving\n"
    tunnel.close()
    assert proxy.wait_exit() == 0
    assert operator.get("/readyz")
    assert operator.ask("POST", "/drain", **AUTHORIZED)[0] == 202
    wait_until(lambda: not answers(operator), "it has ended too")


# The account at the end

def test_the_last_line_tells_what_was_served(start, make_origin, dial):
    proxy, _operator = start()
    origin = make_origin()
    with proxy.client() as client:
        assert client.get(origin.url()).status == 200
        assert client.get("http://127.0.0.1:1/").status == 502
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    tunnel.send(b"12345")
    assert tunnel.read_exact(5) == b"12345"
    tunnel.close()
    proxy.wait_log(3)
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0
    said = proxy.stderr().splitlines()[-1]
    assert re.fullmatch(
        r"cutthrough: served 2 requests and 1 tunnels, \d+ bytes up and \d+ down, "
        r"at most [12] connections at a time; failures: connection_refused 1",
        said), said


# In a terminal

def command(operator: Operator, *words: str, **environ: str):
    return subprocess.run(
        [sys.executable, "-m", "cutthrough", *words], cwd=ROOT, capture_output=True,
        text=True, timeout=60, check=False, env=clean_environment(
            CUTTHROUGH_ADMIN=f"127.0.0.1:{operator.where}", **environ))


def test_connections_are_listed_and_killed_from_a_terminal(start, make_origin, dial):
    proxy, operator = start()
    origin = make_origin(echo)
    tunnels = some_tunnels(proxy, origin, dial, 2)
    done = command(operator, "conns", "--kind", "tunnel")
    head, *rows = done.stdout.splitlines()
    assert head.split() == [
        "id", "user", "client", "method", "host", "state", "age", "up", "down"]
    assert len(rows) == 2
    assert rows[0].split()[1:6] == [
        USER, "127.0.0.1", "CONNECT", origin.authority, "tunnel"]
    done = command(operator, "conns", "--user", "nobody", "--json")
    assert (done.returncode, done.stdout) == (0, "")
    done = command(operator, "kill", "--user", USER)
    assert done.returncode == 1 and "401: changes take the admin token" in done.stderr
    done = command(operator, "kill", "--user", USER, CUTTHROUGH_ADMIN_TOKEN=TOKEN)
    assert (done.returncode, done.stdout) == (0, "2 cut\n")
    for tunnel in tunnels:
        with pytest.raises(ConnectionResetError):
            tunnel.sock.recv(1)


def test_top_shows_what_goes_on(start, make_origin, dial):
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 1)
    done = command(operator, "top", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    assert "generation 1, 1 workers, 1 connections, 1 tunnels" in done.stdout
    assert "states: tunnel 1" in done.stdout


def test_a_listener_that_is_not_there_is_one_line():
    done = command(Operator(1), "conns")
    assert done.returncode == 1
    assert done.stderr.startswith("cutthrough: 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1
