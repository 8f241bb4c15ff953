"""Plain requests in absolute form: fields passed on or dropped, and responses."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.client import AUTH, CREDENTIALS, Client, build_request
from tests.support.network import OWN_IPV4
from tests.support.origin import OK, answer
from tests.support.stream import Message, chunked
from tests.support.wait import wait_until


def test_both_sides_are_kept_alive(proxy, make_origin, dial):
    origin = make_origin()
    client = dial()
    for n in range(5):
        assert client.get(origin.url(f"/{n}")).body == b"ok"
    assert [r.target for r in origin.requests] == [f"/{n}" for n in range(5)]
    assert len(origin.connections) == 1


def test_an_idle_upstream_connection_serves_another_client(proxy, make_origin, dial):
    origin = make_origin()
    for _ in range(3):
        client = dial()
        assert client.get(origin.url()).status == 200
        client.close()
    assert len(origin.connections) == 1


def test_the_connections_of_many_busy_clients_all_wait_for_the_next_requests(
    start_proxy, make_origin, dial
):
    """256 were kept for one origin: of 300 clients, each answer of the others closed
    a connection, and each request opened one."""

    def script(conn):
        while True:
            conn.read_request()
            all_have_come.wait(600)
            conn.send(OK)

    all_have_come = threading.Barrier(300)
    origin = make_origin(script)
    proxy = start_proxy("--upstream-idle-timeout", "1h")    # a round may take long
    clients = [dial(proxy) for _ in range(300)]
    for _ in range(3):
        for client in clients:
            client.send(build_request("GET", origin.url()))
        for client in clients:
            assert client.read_response().status == 200
    assert len(origin.connections) == 300


def test_the_origin_gets_origin_form_and_the_targets_host(proxy, make_origin, dial):
    """R16, RFC 9112 section 3.2.2: the target wins over Host."""
    origin = make_origin()
    dial().get(origin.url("/a/../b?q=%20x"), host="another.example")
    (request,) = origin.requests
    assert (request.target, request.get("Host")) == ("/a/../b?q=%20x", origin.authority)


@pytest.mark.parametrize(
    ("path", "arrives"),
    [("", "/"), ("?q", "/?q"), ("/", "/"), ("//x", "//x"), ("/;p", "/;p")],
)
def test_the_path_goes_on_as_it_is(proxy, make_origin, dial, path, arrives):
    origin = make_origin()
    assert dial().get(origin.url(path), host="x").status == 200
    assert origin.requests[0].target == arrives


def test_options_of_an_authority_becomes_an_asterisk(proxy, make_origin, dial):
    """RFC 9112 section 3.2.4."""
    origin = make_origin()
    dial().ask("OPTIONS", origin.url(""), host="x")
    assert origin.requests[0].target == "*"


HOP_BY_HOP = [
    "Connection: x-named, close, X-Other",
    "Connection: keep-alive",
    "X-Named: dropped",
    "x-other: dropped",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "TE: trailers",
    "Trailer: X-Sum",
    "Upgrade: nothing/1",
    "Proxy-Authenticate: Basic",
]


def test_hop_by_hop_fields_of_a_request_are_dropped(proxy, make_origin, dial):
    """R14, R15."""
    origin = make_origin()
    dial().get(origin.url(), *HOP_BY_HOP, "X-End: kept")
    (request,) = origin.requests
    names = {name.lower() for name, _ in request.fields}
    assert "x-end" in names
    dropped = {line.partition(":")[0].lower() for line in HOP_BY_HOP} - {"connection"}
    assert not names & (dropped | {"proxy-authorization"})
    assert "dropped" not in request.raw.decode()


def test_connection_cannot_name_away_what_frames_the_message(proxy, make_origin, dial):
    """R14."""
    origin = make_origin()
    fields = "Connection: host, content-length, via", "Content-Length: 4"
    assert dial().ask("POST", origin.url(), *fields, body=b"body").status == 200
    (request,) = origin.requests
    assert (request.get("Host"), request.body) == (origin.authority, b"body")
    assert request.get("Via") == "1.1 test-proxy"


def test_hop_by_hop_fields_of_a_response_are_dropped(proxy, make_origin, dial):
    reply = (
        b"HTTP/1.1 200 Fine By Me\r\nConnection: x-named\r\nX-Named: dropped\r\n"
        b"Keep-Alive: timeout=1\r\nProxy-Authenticate: Basic realm=dropped\r\n"
        b"Proxy-Connection: dropped\r\nX-End: kept\r\nContent-Length: 2\r\n\r\nok"
    )
    got = dial().get(make_origin(answer(reply)).url())
    assert (got.start[2], got.get("X-End"), got.body) == ("Fine By Me", "kept", b"ok")
    assert b"dropped" not in got.raw and got.get("Keep-Alive") is None


def test_via_is_added_in_both_directions(proxy, make_origin, dial):
    """RFC 9110 section 7.6.3: a proxy appends itself, with the version it received."""
    reply = b"HTTP/1.0 200 OK\r\nVia: 1.0 behind\r\nContent-Length: 2\r\n\r\nok"
    origin = make_origin(answer(reply))
    got = dial().get(origin.url(), "Via: 1.0 before")
    joined = ", ".join(origin.requests[0].all("Via")), ", ".join(got.all("Via"))
    assert joined == ("1.0 before, 1.1 test-proxy", "1.0 behind, 1.0 test-proxy")


@pytest.mark.any_loop
def test_via_may_be_off(start_proxy, make_origin, dial):
    """The first `--via` is the tests' own, and the last one counts."""
    reply = b"HTTP/1.0 200 OK\r\nVia: 1.0 behind\r\nContent-Length: 2\r\n\r\nok"
    origin = make_origin(answer(reply))
    client = dial(start_proxy("--via", "off"))
    got = client.get(origin.url(), "Via: 1.0 before")
    assert origin.requests[0].all("Via") == ["1.0 before"]
    assert got.all("Via") == ["1.0 behind"]
    assert client.get(origin.url(), "Via: 1.1 off").status == 200, "no name of ours"
    assert origin.requests[1].all("Via") == ["1.1 off"]


@pytest.mark.any_loop
def test_a_parent_gets_no_via_if_it_is_off(start_proxy, make_origin, dial):
    def script(conn):
        heads.append(conn.read_head())
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")

    heads: list[Message] = []
    parent = make_origin(script)
    proxy = start_proxy("--via", "off", config=(
        f'route = "next"\n[parents.next]\nurl = "http://127.0.0.1:{parent.port}"\n'))
    assert dial(proxy).connect("192.0.2.1:443").status == 200
    assert heads[0].all("Via") == []


def test_fields_keep_their_order_case_and_repetition(proxy, make_origin, dial):
    origin = make_origin()
    fields = [
        "X-A: 1",
        "x-b: 2",
        "X-A: 3",
        "Cookie: a=b; c=d",
        "X-Empty:",
        "X-High: \xe9",
    ]
    dial().get(origin.url(), *fields)
    kept = [f"{name}: {value}".rstrip() for name, value in origin.requests[0].fields]
    assert [line for line in kept if line in fields] == fields


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "DELETE", "PATCH", "PROPFIND", "X-1!"]
)
def test_any_method_goes_on(proxy, make_origin, dial, method):
    origin = make_origin()
    assert dial().ask(method, origin.url(), "Content-Length: 0").status == 200
    assert origin.requests[0].method == method


@pytest.mark.parametrize(
    ("version", "fields", "stays"),
    [
        ("HTTP/1.1", (), True),
        ("HTTP/1.1", ("Connection: close",), False),
        ("HTTP/1.1", ("Connection: x, Close",), False),
        ("HTTP/1.0", (), False),
        ("HTTP/1.0", ("Connection: close",), False),
    ],
)
def test_the_client_connection_stays_as_the_version_says(
    proxy, make_origin, dial, version, fields, stays
):
    """RFC 9112 section 9.3."""
    origin = make_origin()
    client = dial()
    got = client.get(origin.url(), *fields, version=version)
    assert got.body == b"ok"
    if stays:
        assert client.get(origin.url()).status == 200
    else:
        assert client.at_eof()


def test_an_http_1_0_client_gets_no_chunked_body(proxy, make_origin, dial):
    """RFC 9112 section 6.1: a 1.0 client cannot read it: the data ends by close."""
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(
        [b"he", b"llo"]
    )
    client = dial()
    got = client.get(make_origin(answer(raw)).url(), version="HTTP/1.0")
    assert (got.framing, got.body) == ("close", b"hello")


def test_an_http_1_0_client_gets_no_interim_response(proxy, make_origin, dial):
    """RFC 9110 section 15.2."""
    raw = b"HTTP/1.1 100 Continue\r\n\r\n" + OK
    client = dial()
    client.send(
        build_request("GET", make_origin(answer(raw)).url(), version="HTTP/1.0")
    )
    assert client.read_response(interim=True).status == 200


def test_an_http_1_0_client_without_host_is_served(proxy, make_origin, dial):
    origin = make_origin()
    client = dial()
    client.send(f"GET {origin.url()} HTTP/1.0\r\n{AUTH}\r\n".encode())
    assert client.read_response().body == b"ok"
    assert origin.requests[0].get("Host") == origin.authority


@pytest.mark.parametrize("close", [b"Connection: close\r\n", b"Connection: Close\r\n"])
def test_an_origin_that_says_close_is_not_reused(proxy, make_origin, dial, close):
    raw = b"HTTP/1.1 200 OK\r\n" + close + b"Content-Length: 2\r\n\r\nok"
    origin = make_origin(answer(raw))
    client = dial()
    for _ in range(2):
        assert client.get(origin.url()).body == b"ok"
    assert len(origin.connections) == 2


def test_one_empty_line_before_a_request_is_skipped(proxy, make_origin, dial):
    """RFC 9112 section 2.2."""
    client = dial()
    client.send(b"\r\n" + build_request("GET", make_origin().url()))
    assert client.read_response().status == 200


def test_who_guesses_the_one_password_has_to_wait(start_proxy, make_origin):
    """R24: it was compared without an end."""
    proxy, origin = start_proxy(), make_origin()

    def ask(password: str) -> Message:
        pair = base64.b64encode(f"user:{password}".encode()).decode()
        with Client(proxy.port, source=OWN_IPV4) as client:     # loopback never waits
            return client.get(origin.url(), auth=f"Basic {pair}")

    assert [ask(f"guess {n}").status for n in range(5)] == [407] * 5
    with ThreadPoolExecutor(3) as pool:
        replies = [*pool.map(ask, ("a", "b", "c"))]
    refused = [reply for reply in replies if reply.status == 429]
    assert len(refused) == 2, "one try is held, for as long as it has to wait"
    assert all(int(reply.get("Retry-After")) >= 1 for reply in refused)
    assert proxy.wait_reason("auth_throttled")["user"] is None
    wait_until(lambda: ask("pass:word").status == 200, "the end of the wait")
    with ThreadPoolExecutor(8) as pool:
        statuses = {reply.status for reply in pool.map(ask, map(str, range(8)))}
    assert statuses == {407, 429}
    assert ask("pass:word").status == 200, "what was right does not wait"
    assert len(origin.requests) == 2


def test_the_whole_password_counts(start_proxy, make_origin, dial):
    """A password may hold a colon; neither a part of it nor more will do (R22)."""
    origin = make_origin()
    proxy = start_proxy()       # its own: a client waits after five failures
    client_ok = dial(proxy).get(origin.url())
    assert client_ok.status == 200
    for pair in (
        "user:pass",
        "user:pass:wor",
        "user:pass:word ",
        "user:",
        ":pass:word",
        "user",
    ):
        wrong = "Basic " + base64.b64encode(pair.encode()).decode()
        assert dial(proxy).get(origin.url(), auth=wrong).status == 407
    token = CREDENTIALS.split()[1]
    for field in (
        f"Basic {token[:-2]}!!",
        "Basic",
        f"Bearer {token}",
        token,
        f"Basic {token} x",
    ):
        assert dial(proxy).get(origin.url(), auth=field).status == 407
    assert len(origin.requests) == 1


def test_an_empty_line_behind_a_body_begins_no_request(start_proxy, make_origin, dial):
    """RFC 9112 section 2.2: it began one, and head_timeout sent a 408 that nobody had
    asked for."""
    proxy, origin = start_proxy("--head-timeout", "300ms"), make_origin()
    client = dial(proxy)
    client.send(build_request(
        "POST", origin.url(), "Content-Length: 1", body=b"x") + b"\r\n")
    assert client.read_response().status == 200
    assert client.is_silent(1)
    assert client.get(origin.url()).status == 200
    client.close()
    assert [line["status"] for line in proxy.wait_log(2)] == [200, 200]
