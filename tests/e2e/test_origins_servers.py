"""The servers of a named origin: choice, failures, checks, TLS and reloads."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.admin import administered
from tests.support.certificates import Authority, authority, localhost
from tests.support.client import Client, build_request
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.origin import Connection, stall
from tests.support.origins import HOST, met, named, say
from tests.support.tls_listener import table
from tests.support.tls_parents import over_tls, server_context
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

NAMED = 'origin = "api"\n'


@pytest.fixture
def start(start_proxy):
    """A proxy whose requests in origin form are all for this origin."""
    return lambda *servers, config="", **more: start_proxy(
        config=NAMED + config + named(*servers, **more))


@pytest.fixture
def watched(loop_name, directory, opened):
    """The same, and its operator."""
    return lambda *servers, config="", **more: administered(
        opened, directory("proxy"), loop_name,
        NAMED + config + named(*servers, **more))


@pytest.fixture
def trio(make_origin):
    return [make_origin(say(word)) for word in "abc"]


# The choice


def test_servers_take_turns_by_weight(start, trio, dial):
    proxy = start(*trio[:2], weights=[2, 1])
    assert met(dial, proxy, 6) == ["a", "b", "a", "a", "b", "a"]


def test_least_connections_counts_what_is_open(start, make_origin, dial):
    servers = [make_origin(stall) for _ in range(2)]
    proxy = start(*servers, choose="least_connections")
    for n in range(1, 7):
        client = dial(proxy)
        client.send(build_request("GET", "/", host=HOST))
        wait_until(lambda n=n: sum(len(one.connections) for one in servers) == n,
                   "it arrives")
    assert [len(one.connections) for one in servers] == [3, 3]


def test_a_hash_of_host_is_the_same_in_every_worker(start, trio):
    proxy = start(*trio, config="workers = 2\n", choose="hash_destination")
    hosts = [f"h{n}.test" for n in range(12)]
    seen: dict[str, set[bytes]] = {host: set() for host in hosts}
    for host in 4 * hosts:
        with Client(proxy.port) as client:
            seen[host].add(client.get("/", host=host).body)
    assert all(len(bodies) == 1 for bodies in seen.values())
    assert len(set().union(*seen.values())) > 1


def test_several_workers_share_the_load(start, trio):
    proxy = start(*trio, config="workers = 3\n")

    def ask(_: int) -> bytes:
        with Client(proxy.port) as client:
            return client.get("/", host=HOST).body

    with ThreadPoolExecutor(6) as pool:
        bodies = Counter(pool.map(ask, range(60)))
    assert sum(bodies.values()) == 60 and set(bodies) == {b"a", b"b", b"c"}
    assert {one["reason"] for one in proxy.wait_log(60)} == {"ok"}


# Failures


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_refuses_is_passed_over_for_any_method(
        start, trio, dial, method):
    """No byte of the request was sent."""
    dead = trio[0]
    proxy = start(*trio[:2])
    dead.close()
    assert met(dial, proxy, 8, method) == ["b"] * 8
    assert {one["reason"] for one in proxy.wait_log(8)} == {"ok"}


def test_a_circuit_opens_after_three_failures_and_an_answer_closes_it(
        watched, make_origin, dial):
    state = {"works": False}

    def script(conn: Connection) -> None:
        if state["works"]:
            say("a")(conn)
    first, second = make_origin(script), make_origin(say("b"))
    proxy, operator = watched(first, second)

    def states() -> dict[str, str]:
        return {one["server"]: one["workers"][0]["state"]
                for api in json.loads(operator.get("/origins"))["origins"]
                for one in api["servers"]}
    assert met(dial, proxy, 5) == ["b"] * 5, "it closes without an answer"
    expected = {first.authority: "open", second.authority: "up"}
    wait_until(lambda: states() == expected, "its circuit is open")
    held = len(first.connections)
    assert held == 3
    state["works"] = True
    wait_until(lambda: "a" in met(dial, proxy, 1), "one request tries it again")
    assert sorted(met(dial, proxy, 4)) == ["a", "a", "b", "b"]
    found = operator.metrics()
    server = f'server="127.0.0.1:{first.port}"'
    labels = f'origin="api",{server}'
    lost = f'origin_failures_total{{origin="api",reason="origin_closed",{server}}}'
    assert found[lost] == 3
    up = f'origin_workers{{{labels},state="up"}}'
    wait_until(lambda: operator.metrics()[up] == 1, "and it is up")
    assert found[f"origin_requests_total{{{labels}}}"] >= 3
    still = f"origin_open_requests{{{labels}}}"
    wait_until(lambda: operator.metrics()[still] == 0, "each retry is counted out")


def test_a_request_that_cannot_be_sent_twice_is_not(start, make_origin, dial):
    """R19."""
    def script(conn: Connection) -> None:
        conn.read_request()
    first, second = make_origin(script), make_origin(say("b"))
    proxy = start(first, second, choose="failover")
    reply = dial(proxy).ask("POST", "/", "Content-Length: 4", host=HOST, body=b"body")
    assert reply.status == 502
    assert proxy.wait_log(1)[0]["reason"] == "origin_closed"
    assert not second.requests
    assert dial(proxy).get("/", host=HOST).body == b"b", "a GET is"


def test_a_part_of_an_answer_is_no_reason_to_ask_again(start, make_origin, dial):
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 200")
    first, second = make_origin(script), make_origin(say("b"))
    proxy = start(first, second, choose="failover")
    assert dial(proxy).get("/", host=HOST).status == 502
    assert not second.requests


def test_without_a_server_the_answer_says_so(start, make_origin, dial):
    servers = [make_origin(), make_origin()]
    proxy = start(*servers)
    for server in servers:
        server.close()
    for _ in range(4):
        reply = dial(proxy).get("/", host=HOST)
        assert reply.status == 503 and b"named origin" in reply.body
    assert int(reply.get("Retry-After")) >= 1
    lines = proxy.wait_log(4)
    assert {one["reason"] for one in lines} == {"origin_unreachable"}


def test_a_silent_server_is_passed_over_later(start, make_origin, dial):
    first, second = make_origin(stall), make_origin(say("b"))
    proxy = start(first, second, choose="failover",
                  config='response_timeout = "200ms"\n')
    for _ in range(3):
        assert dial(proxy).get("/", host=HOST).status == 504
    assert met(dial, proxy, 2) == ["b", "b"]
    assert [one["reason"] for one in proxy.wait_log(5)][:3] == ["response_timeout"] * 3


# Checks


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_check_passes_a_server_over_and_brings_it_back(
        watched, make_origin, dial, scheme):
    state = {"status": 200}

    def script(conn: Connection) -> None:
        while True:
            request = conn.read_request()
            if request.target == "/healthz":
                conn.send(b"HTTP/1.1 %d x\r\n" % state["status"],
                          b"Content-Length: 0\r\n\r\n")
            else:
                conn.send(b"HTTP/1.1 200 x\r\nContent-Length: 1\r\n\r\na")
    scripts, keys = [script, say("b")], {}
    if scheme == "https":
        scripts = [over_tls(one) for one in scripts]
        keys = {"scheme": "https", "ca": str(authority().own.certificate)}
    first, second = map(make_origin, scripts)
    proxy, operator = watched(first, second, choose="failover", check="/healthz",
                              check_interval="200ms", host="check.test", **keys)
    first.wait_requests(2)
    checked = first.requests[0]
    assert (checked.method, checked.target) == ("GET", "/healthz")
    assert checked.all("Host") == ["check.test"]
    assert met(dial, proxy, 2) == ["a", "a"]
    state["status"] = 503
    name = f"origin api/127.0.0.1:{first.port}"
    wait_until(lambda: met(dial, proxy, 1) == ["b"], "the check fails")
    assert f"{name}: its check failed: bad_response" in proxy.stderr()
    state["status"] = 302
    wait_until(lambda: met(dial, proxy, 1) == ["a"], "it succeeds")
    assert f"{name}: its check works again" in proxy.stderr()
    failed = (f'origin_checks_total{{origin="api",result="failed",'
              f'server="127.0.0.1:{first.port}"}}')
    wait_until(lambda: operator.metrics().get(failed, 0) >= 1, "it is counted")
    assert all("healthz" not in line for line in proxy.lines())


# TLS


def test_an_https_server_is_verified_by_its_authority(start, make_origin, dial):
    names = []
    context = server_context()
    context.sni_callback = lambda _tls, given, _context: names.append(given)
    server = make_origin(over_tls(say("tls"), context))
    proxy = start(server, scheme="https", ca=str(authority().own.certificate),
                  server_name="localhost", host="url")
    client = dial(proxy)
    for _ in range(2):
        assert client.get("/", host=HOST).body == b"tls"
    reply = client.ask("POST", "/", "Content-Length: 1", host=HOST, body=b"x")
    assert reply.body == b"tls"
    assert server.requests[0].all("Host") == [f"127.0.0.1:{server.port}"]
    assert set(names) == {"localhost"}
    lines = proxy.wait_log(3)
    assert {one["reason"] for one in lines} == {"ok"}
    assert "origin_tls_ms" in lines[0]


def test_a_certificate_of_another_authority_is_refused(start, make_origin, dial):
    server = make_origin(over_tls(say("tls"), server_context(
        Authority("other").sign("IP:127.0.0.1"))))
    proxy = start(server, scheme="https", ca=str(authority().own.certificate))
    assert dial(proxy).get("/", host=HOST).status == 502
    assert proxy.wait_log(1)[0]["reason"] == "origin_certificate"
    assert "its certificate is not accepted" in proxy.stderr()
    assert not server.requests


def test_a_server_without_tls_gets_no_request(start, make_origin, dial):
    def script(conn: Connection) -> None:
        conn.fill()
        conn.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    server = make_origin(script)
    proxy = start(server, scheme="https", ca=str(authority().own.certificate))
    assert dial(proxy).get("/", host=HOST).status == 502
    assert proxy.wait_log(1)[0]["reason"] == "origin_tls"
    assert not server.requests


def test_our_certificate_is_shown(start, make_origin, dial):
    made = authority().sign(subject="/CN=the proxy")
    server = make_origin(over_tls(say("tls"), server_context(clients=authority())))
    proxy = start(server, scheme="https", ca=str(authority().own.certificate),
                  certificate=str(made.certificate), certificate_key=str(made.key))
    assert dial(proxy).get("/", host=HOST).body == b"tls"


def test_nginx_behind_an_origin_of_both_schemes(start_proxy, nginx, dial):
    proxy = start_proxy(config=NAMED + (
        f'[origins.api]\nurls = ["http://127.0.0.1:{nginx.port}", '
        f'"https://127.0.0.1:{nginx.tls_port}"]\nca = "{nginx.ca}"\n'))
    client = dial(proxy)
    for _ in range(4):
        assert client.get("/128k", host=HOST).body == nginx.payload("128k")
        assert client.get("/echo-host", host="named.test").body == b"named.test"
    body = nginx.payload("1m")
    for name in ("o-1", "o-2"):
        assert client.ask("PUT", f"/store/{name}", f"Content-Length: {len(body)}",
                          host=HOST, body=body).status in (201, 204)
        assert nginx.stored(name) == body


def test_a_client_of_http2_is_served(start, make_origin, reach):
    server = make_origin(say("h2"))
    proxy = start(server, config=table(localhost(), **BOTH), forwarded="both")
    peer = reach(proxy)
    answer = peer.wait(peer.request([
        (":method", "GET"), (":scheme", "https"), (":authority", HOST),
        (":path", "/x"), LOGIN]))
    assert (answer.status, answer.body) == (200, b"h2")
    (request,) = server.requests
    assert request.target == "/x"
    assert request.all("X-Forwarded-Proto") == ["https"]
    assert request.all("Forwarded") == [f'for=127.0.0.1;host="{HOST}";proto=https']


# Reloads


def test_a_reload_changes_the_servers_under_load(start, make_origin):
    servers = [make_origin(say(word)) for word in "abcd"]
    proxy = start(*servers[:2])
    ends, wrong = threading.Event(), []

    def ask() -> None:
        while not ends.is_set():
            with Client(proxy.port) as client:
                for _ in range(5):
                    reply = client.get("/", host=HOST)
                    if reply.status != 200:
                        wrong.append(reply.raw)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for pair in (servers[2:], servers[1:3], servers[:2], servers[2:]):
            before = [len(one.requests) for one in pair]
            assert "refused" not in proxy.reload(NAMED + named(*pair))
            wait_until(lambda pair=pair, before=before: all(
                len(one.requests) > n + 3
                for one, n in zip(pair, before, strict=True)), "the new ones are met")
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not wrong
    with Client(proxy.port) as client:
        assert {client.get("/", host=HOST).body for _ in range(4)} == {b"c", b"d"}


def test_an_origin_that_stays_keeps_its_connections(start, make_origin, dial):
    server = make_origin()
    proxy = start(server)
    client = dial(proxy)
    assert client.get("/", host=HOST).status == 200
    proxy.reload(NAMED + 'head_timeout = "9s"\n' + named(server, host="url"))
    assert client.get("/", host=HOST).status == 200
    assert len(server.connections) == 1
    assert [one.get("Host") for one in server.requests] == [
        HOST, f"127.0.0.1:{server.port}"]
