"""Checks of a named origin's servers, and the connections to them: options."""

import pytest

from tests.support.admin import administered
from tests.support.certificates import authority
from tests.support.client import Client
from tests.support.origin import Connection, answer
from tests.support.origins import HOST, met, named, say
from tests.support.wait import wait_until
from tests.wire.twin_proxy import read_proxy_header

pytestmark = pytest.mark.any_loop

NAMED = 'origin = "api"\n'


@pytest.fixture
def start(start_proxy):
    """A proxy whose requests in origin form are all for this origin."""
    return lambda *servers, **more: start_proxy(config=NAMED + toml(*servers, **more))


@pytest.fixture
def watched(loop_name, directory, opened):
    """The same, and its operator."""
    return lambda *servers, **more: administered(
        opened, directory("proxy"), loop_name, NAMED + toml(*servers, **more))


def toml(*servers, **more: object) -> str:
    return named(*servers, **more).replace("= False", "= false")


def test_a_check_by_tcp_asks_for_nothing(watched, make_origin, dial):
    first, second = make_origin(say("a")), make_origin(say("b"))
    proxy, _ = watched(first, second, choose="failover", check="tcp",
                       check_interval="200ms")
    wait_until(lambda: len(first.connections) > 1, "it is checked")
    assert not first.requests
    assert met(dial, proxy, 1) == ["a"]
    first.close()
    wait_until(lambda: "check failed: origin_unreachable" in proxy.stderr(), "it fails")
    assert met(dial, proxy, 2) == ["b", "b"]


def test_a_check_by_tcp_of_a_server_with_tls_makes_the_handshake(
        watched, make_origin):
    def script(conn: Connection) -> None:
        conn.send(b"HTTP/1.1 400 this is plain\r\n\r\n")
    server = make_origin(script)
    proxy, _ = watched(server, scheme="https", check="tcp", check_interval="200ms",
                       ca=str(authority().own.certificate))
    wait_until(lambda: "check failed: origin_tls" in proxy.stderr(), "it fails")


def test_the_statuses_of_a_check_and_how_many_in_a_row_count(
        watched, make_origin, dial):
    state = {"status": 204, "checks": 0}

    def script(conn: Connection) -> None:
        while True:
            if conn.read_request().target == "/healthz":
                state["checks"] += 1
                conn.send(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n"
                          % state["status"])
            else:
                conn.send(b"HTTP/1.1 200 x\r\nContent-Length: 1\r\n\r\na")
    first, second = make_origin(script), make_origin(answer(
        b"HTTP/1.1 204 x\r\n\r\n"))
    proxy, operator = watched(
        first, second, choose="failover", check="/healthz", check_interval="100ms",
        check_status=["204", "500-503"], check_failures=3, check_successes=2)
    labels = f'origin="api",result="{{}}",server="127.0.0.1:{first.port}"'

    def counted(result: str) -> float:
        return operator.metrics().get(
            f"origin_checks_total{{{labels.format(result)}}}", 0)

    def turn(status: int) -> int:
        """Returns the checks until then."""
        state["status"] = status
        return int(state["checks"])
    wait_until(lambda: counted("ok") >= 2, "it passes")
    turn(503)
    passed = counted("ok")
    wait_until(lambda: counted("ok") > passed + 1, "a range counts")
    before = turn(200)
    wait_until(lambda: "its check failed" in proxy.stderr(), "another status does not")
    assert state["checks"] >= before + 3
    wait_until(lambda: met(dial, proxy, 1) == [""], "it is passed over")
    before = turn(204)
    wait_until(lambda: "its check works again" in proxy.stderr(), "it comes back")
    assert state["checks"] >= before + 2
    wait_until(lambda: met(dial, proxy, 1) == ["a"], "it gets requests")


def test_a_server_gets_a_proxy_header_on_each_connection(
        start, make_origin, opened):
    def script(conn: Connection) -> None:
        data = b""
        while (named := read_proxy_header(data)) is None:
            data += conn.read_exact(1)
        heard.append((named.address, named.port))
        say("a")(conn)
    heard, expected = [], []
    server = make_origin(script)
    for version in ("v1", "v2"):
        proxy = start(server, proxy_protocol=version)
        client = opened.enter_context(Client(proxy.port, source="127.0.0.9"))
        for _ in range(2):
            assert client.get("/", host=HOST).body == b"a"
            expected.append((b"\x7f\0\0\x09", client.sock.getsockname()[1]))
    assert heard == expected


def test_a_connection_may_be_for_one_request_alone(start, make_origin, dial):
    server = make_origin(say("a"))
    proxy = start(server, reuse=False)
    client = dial(proxy)
    for _ in range(3):
        assert client.get("/", host=HOST).body == b"a"
    assert len(server.connections) == 3
