"""The admin listener's door: its refusals, its addresses, and its terminal."""

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys

import pytest

from cutthrough.admin.server import MOST_CONNECTIONS
from cutthrough.tools.console import summary
from tests.support.admin import (
    AUTHORIZED,
    TOKEN,
    Operator,
    administered,
    some_tunnels,
)
from tests.support.client import USER
from tests.support.origin import answer, echo
from tests.support.proxy import ROOT, Proxy, clean_environment, fd_kinds
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text="", token=TOKEN: administered(
        opened, directory("proxy"), loop_name, text, token)


# Refusals

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
    """A page of that name is same-origin with any server at its address."""
    _, operator = start()
    for host in ("rebound.example", "rebound.example:80", "localhost.rebound.example",
                 "127.0.0.1.rebound.example", ""):
        for path in ("/", "/metrics", "/config", "/connections", "/events", "/nothing"):
            status, text = operator.ask("GET", path, Host=host)
            assert status == 421, (host, path, text)
        assert operator.ask("POST", "/drain", Host=host, **AUTHORIZED)[0] == 421


def say(operator: Operator, data: bytes) -> bytes:
    """Sends this; returns the first line of the answer."""
    with socket.create_connection(("127.0.0.1", operator.where), 10) as sock:
        sock.sendall(data)
        return sock.makefile("rb").readline()


def test_who_names_no_host_is_no_browser(start):
    """The name of this host was looked up meanwhile; no other client should wait for
    that."""
    _, operator = start()
    assert say(operator, b"GET /healthz HTTP/1.0\r\n\r\n") == b"HTTP/1.0 200 OK\r\n"


@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"GET / HTTP/1.1\r\nb d: x\r\n\r\n", b"GET / HTTP/1.1\r\nnothing\r\n\r\n",
    b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_request_is_a_400_and_nothing_to_be_told(start, data):
    """Each was a traceback on standard error, as many as a client liked."""
    proxy, operator = start()
    assert say(operator, data).startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert "rror" not in proxy.stderr()


def test_who_asks_nothing_gives_way(start, opened):
    """Descriptors are the supervisor's: with the last one gone no worker began."""
    proxy, operator = start()
    watcher = opened.enter_context(contextlib.closing(operator.connection()))
    watcher.request("GET", "/events")
    stream = watcher.getresponse()
    before = fd_kinds(proxy.process.pid)["socket"]
    for _ in range(MOST_CONNECTIONS + 50):
        slow = opened.enter_context(
            socket.create_connection(("127.0.0.1", operator.where)))
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
    assert operator.get("/healthz")
    wait_until(lambda: fd_kinds(proxy.process.pid)["socket"]
               <= before + MOST_CONNECTIONS, "the oldest went")
    with proxy.client() as client:
        assert client.get("http://127.0.0.1:1/").status == 502
    assert stream.readline().startswith(b"data: "), "a watcher stays"


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
    assert wait_until(lambda: moved.answers(), "the new address")
    wait_until(lambda: not operator.answers(), "the old one is closed")
    assert dial(proxy).get(f"http://127.0.0.1:{port}/metrics").status == 508
    proxy.reload("")
    wait_until(lambda: not moved.answers(), "it is off")


def test_who_moves_it_is_answered_where_he_asked(start):
    """It waits for new workers: by then the old address had been closed."""
    proxy, operator = start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    proxy.write_config(f'admin = "127.0.0.1:{port}"\nworkers = 2\n')
    assert operator.ask("POST", "/reload", **AUTHORIZED) == (
        200, "generation 2: workers 1 -> 2, admin 127.0.0.1:0 -> "
             f"127.0.0.1:{port}, admin_token\n")
    assert Operator(port).answers()
    wait_until(lambda: not operator.answers(), "the old one is closed")


def test_the_proxy_never_goes_to_its_own_admin_listener(start, dial):
    """R39: by then the peer is loopback for every client."""
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
    wait_until(lambda: operator.answers(), "the socket")
    assert path.stat().st_mode & 0o777 == 0o660
    assert operator.ask("GET", "/healthz", Host="any.name")[0] == 200
    with pytest.raises(AssertionError, match="Address already in use"):
        Proxy(directory("proxy"), "--admin", f"unix:{path}", loop=loop_name)
    assert operator.ask("POST", "/drain", **AUTHORIZED)[0] == 202
    assert proxy.wait_exit() == 0
    assert list(path.parent.iterdir()) == []


def test_a_reload_that_is_refused_leaves_nothing_of_its_listener(start, directory):
    """It stayed bound until the next reload, and then took that reload's with it."""
    proxy, _ = start()
    path = directory("admin") / "socket"
    bad = f'admin = "unix:{path}"\naccess_log = "/no/such/folder/log"\n'
    assert "reload refused" in proxy.reload(bad)
    assert list(path.parent.iterdir()) == []
    proxy.reload(f'admin = "unix:{path}"\n')
    wait_until(Operator(str(path)).answers, "the socket")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bad = f'admin = "127.0.0.1:{port}"\naccess_log = "/no/such/folder/log"\n'
    assert "reload refused" in proxy.reload(bad)
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
    assert Operator(str(path)).answers()


def test_what_a_killed_program_left_is_taken_over(directory, opened, loop_name):
    path = directory("admin") / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    opened.enter_context(Proxy(
        directory("proxy"), "--admin", f"unix:{path}", loop=loop_name))
    wait_until(lambda: Operator(str(path)).answers(), "the socket")


def test_a_file_in_its_place_stays(directory, loop_name):
    path = directory("admin") / "file"
    path.write_text("precious")
    with pytest.raises(AssertionError, match="exists and is not a socket"):
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
    wait_until(lambda: operator.answers(), "the new address")
    assert operator.metrics()["config_generation"] == 2
    proxy.signal(signal.SIGUSR2)
    wait_until(lambda: operator.answers()
               and operator.metrics()["config_generation"] == 1, "the new program")
    for _ in range(20):
        assert operator.get("/readyz") == "serving\n"
    tunnel.close()
    assert proxy.wait_exit() == 0
    assert operator.get("/readyz")
    assert operator.ask("POST", "/drain", **AUTHORIZED)[0] == 202
    wait_until(lambda: not operator.answers(), "it has ended too")


# The account at the end

def test_the_last_line_tells_what_was_served(start, make_origin, dial):
    """final_recipient, a 200, was counted among the failures."""
    proxy, _operator = start()
    origin = make_origin()
    with proxy.client() as client:
        assert client.get(origin.url()).status == 200
        assert client.ask("OPTIONS", origin.url(), "Max-Forwards: 0").status == 200
        assert client.get("http://127.0.0.1:1/").status == 502
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    tunnel.send(b"12345")
    assert tunnel.read_exact(5) == b"12345"
    tunnel.close()
    proxy.wait_log(4)
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0
    said = proxy.stderr().splitlines()[-1]
    assert re.fullmatch(
        r"cutthrough: served 3 requests and 1 tunnel, \d+ bytes up and \d+ down, "
        r"at most [12] connections? at a time; failures: connection_refused 1",
        said), said


# In a terminal

def command(operator: Operator, *words: str, **environ: str):
    return run_apart(*words, CUTTHROUGH_ADMIN=f"127.0.0.1:{operator.where}", **environ)


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
    done = command(operator, "conns", "--trace", rows[0].split()[0])
    assert done.returncode == 0 and done.stdout.splitlines()[0].split() == head.split()
    events = done.stdout.split("\n\n")[1].splitlines()
    assert events[0].startswith("0.000 accepted port=")
    assert events[-1].endswith(" down bytes=5")
    done = command(operator, "conns", "--trace", "0-999")
    assert done.returncode == 1 and "no open connection has this id" in done.stderr
    done = command(operator, "kill", "--user", USER)
    assert done.returncode == 1 and (
        "401: changes require the admin token; give the token with --token-file or "
        "CUTTHROUGH_ADMIN_TOKEN\n" in done.stderr)
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
    assert "generation 1, 1 worker, 1 connection, 1 tunnel" in done.stdout
    assert "states: tunnel 1" in done.stdout


def test_top_keeps_to_its_terminal(start, make_origin, dial):
    """Lines that wrapped pushed the first ones out."""
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 9)
    ours, theirs = pty.openpty()
    with open(ours, "rb", 0) as screen:
        done = subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "top", "--interval", "0.1", "--count",
             "1", "--admin", f"127.0.0.1:{operator.where}"], cwd=ROOT, stdout=theirs,
            env=clean_environment(COLUMNS="30", LINES="8"))
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):   # its end
            while data := screen.read(4096):
                shown += data
        assert done.wait(60) == 0
    lines = shown.decode().removeprefix("\x1b[H\x1b[2J").splitlines()
    assert len(lines) == 7 and max(map(len, lines)) == 30
    assert command(operator, "top", "--count", "-1").returncode == 2


def test_top_after_an_upgrade_counts_from_nothing():
    """The next program's counters begin at nothing: so many requests less a second."""
    then = {"config_generation": 3.0, "tunnels": 0.0, 'requests_total{code="200"}': 9.0}
    now = {"config_generation": 1.0, "tunnels": 0.0, 'requests_total{code="200"}': 2.0}
    assert summary(then, now, 1.0)[1].startswith("0.0 requests/s, ")


def test_a_selector_that_is_none_exits_2(start):
    """It was sent, refused with 400, and the exit status was that of a refusal."""
    _, operator = start()
    for words, said in ((("--older", "soon"), "--older: 'soon' is not a duration"),
                        (("--older", "-1"), "--older: '-1' is not a duration"),
                        (("--bytes", "many"), "--bytes: 'many' is not a size"),
                        (("--state", "tunnle"), "state: 'tunnle' is not one of head, "),
                        (("--kind", "x"), "kind: 'x' is not one of tunnel, "),
                        (("--client", "ann"), "client: 'ann' is not an IP address")):
        for verb in ("kill", "conns"):
            done = command(operator, verb, *words, CUTTHROUGH_ADMIN_TOKEN=TOKEN)
            assert (done.returncode, done.stdout) == (2, ""), words
            assert said in done.stderr and done.stderr.count("\n") == 1
    done = command(operator, "top", "--interval", "-1")
    assert done.returncode == 2 and "--interval" in done.stderr


def test_ages_and_sizes_are_said_as_in_options(start, make_origin, dial):
    proxy, operator = start()
    some_tunnels(proxy, make_origin(echo), dial, 1)
    for words, lines in ((("--older", "0.001"), 2), (("--older", "1ms"), 2),
                         (("--older", "1h"), 1), (("--bytes", "10B"), 2),
                         (("--bytes", "1KiB"), 1), (("--client", "127.0.0.1"), 2)):
        done = command(operator, "conns", *words)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == lines, words


def test_who_is_no_admin_listener_is_told_in_one_line(make_origin):
    """Another program's /metrics was a KeyError, its page a JSONDecodeError."""
    page = b"<h1>\x1b[31m</h1>\n"
    other = make_origin(answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
        len(page), page)))
    for words in (("top",), ("conns",), ("kill", "--all")):
        done = command(Operator(other.port), *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (f"cutthrough: 127.0.0.1:{other.port}: is not an "
                               "admin listener of cutthrough\n")


def test_a_listener_that_is_not_there_is_one_line():
    done = command(Operator(1), "conns")
    assert done.returncode == 1
    assert done.stderr == "cutthrough: 127.0.0.1:1: Connection refused\n"
    assert done.stderr.count("\n") == 1
