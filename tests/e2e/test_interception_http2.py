"""HTTP/2 inside an intercepted connection: each stream is a request (R54, R56, R62)."""

import hashlib
import ssl
import subprocess
import threading

import pytest

from tests.support.captures import wait_rows
from tests.support.certificates import authority, client_context
from tests.support.client import USER
from tests.support.filters import FILTERS
from tests.support.hostile_http2 import MALFORMED
from tests.support.http2 import (
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    PROTOCOL_ERROR,
    RST_STREAM,
    frame,
)
from tests.support.inside import ALL, HERE, OK, config, enter, okay, over_tls
from tests.support.inside_http2 import reach as reach
from tests.support.origin import Connection, answer
from tests.support.wait import wait_until

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

PATHS = (f'[[rules]]\nname = "outer"\naction = "allow"\nmethods = ["CONNECT"]\n{HERE}'
         'tls = "intercept"\n'
         f'[[rules]]\nname = "api"\naction = "allow"\n{HERE}paths = ["/api/**"]\n')


@pytest.fixture
def start(keep_policy):
    return lambda policy=ALL, more="": keep_policy(policy, config(more))


def test_requests_inside_are_requests(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    for path in ("/one?q=1", "/two"):
        got = peer.wait(peer.get(f"https://a.example{path}"))
        assert (got.status, got.body, got.ended) == (200, b"ok", True)
    assert [one.target for one in origin.requests] == ["/one?q=1", "/two"]
    assert len(origin.connections) == 1, "the connection to the origin is kept"
    assert origin.requests[0].all("host") == [f"a.example:{origin.port}"]
    assert origin.requests[0].get("via").startswith("2 ")
    records = proxy.wait_log(3)
    assert [one["method"] for one in records] == ["CONNECT", "GET", "GET"]
    assert [one["url"] for one in records[1:]] == [
        f"https://a.example:{origin.port}/one?q=1",
        f"https://a.example:{origin.port}/two"]
    for one in records:
        assert (one["intercepted"], one["reason"], one["rule"], one["user"]) == (
            True, "ok", "inside", USER)
        assert (one["sni"], one["tls_version"]) == ("a.example", "1.3")
    assert records[1]["client_tls_version"] == "1.3"
    assert len({one["client"] for one in records}) == 1


@pytest.mark.parametrize("offered", [("h2",), ("http/1.1", "h2")])
def test_it_is_preferred(start, make_origin, reach, offered) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    peer = reach(proxy, origin.port, *offered)
    assert peer.wait(peer.get("https://a.example/")).status == 200


def test_it_can_be_switched_off(start, make_origin, dial) -> None:
    proxy = start(more='intercept_http2 = "off"\n')
    origin = make_origin(over_tls(okay))
    context = client_context()
    context.set_alpn_protocols(("h2", "http/1.1"))
    client = enter(proxy, dial(proxy), origin.port, context=context)
    assert client.sock.tls.selected_alpn_protocol() == "http/1.1"
    context.set_alpn_protocols(("h2",))
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        enter(proxy, dial(proxy), origin.port, context=context)
    proxy.wait_reason("tls_unshared")


def test_many_streams_at_a_time(start, make_origin, reach) -> None:
    barrier = threading.Barrier(30, timeout=20)

    def script(conn: Connection) -> None:
        request = conn.read_request()
        barrier.wait()
        body = request.target.encode() * 100
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)

    proxy, origin = start(), make_origin(over_tls(script))
    peer = reach(proxy, origin.port)
    streams = [peer.get(f"https://a.example/{n}") for n in range(30)]
    peer.wait(*streams)
    for n, stream in enumerate(streams):
        assert peer.answers[stream].body == f"/{n}".encode() * 100


def test_paths_count_inside(start, make_origin, reach) -> None:
    """R56: one connection, allowed and refused requests."""
    proxy, origin = start(PATHS), make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    for path, status in (("/api/a", 200), ("/admin", 403), ("/api/../admin", 403),
                         ("/api/b", 200), ("/api/%2e%2e/admin", 403)):
        got = peer.wait(peer.get(f"https://a.example{path}"))
        assert got.status == status, path
    assert [one.target for one in origin.requests] == ["/api/a", "/api/b"]
    assert [one["reason"] for one in proxy.wait_log(6)] == [
        "ok", "ok", "path_denied", "path_denied", "ok", "path_denied"]


@pytest.mark.parametrize("url", [
    "https://b.example/", "https://a.example:1/", "https://127.0.0.1/",
    "http://a.example/", "https://a.example.b.example/"])
def test_another_host_is_misdirected(start, make_origin, reach, url) -> None:
    """R56: and only this stream ends."""
    proxy, origin = start(), make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get(url)).status == 421
    assert not origin.requests
    assert proxy.wait_reason("misdirected")["intercepted"] is True
    assert peer.wait(peer.get("https://a.example/")).body == b"ok"


def test_a_connect_inside_is_misdirected(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.connect("a.example:443")).status == 421


def test_extended_connect_is_not_offered(start, make_origin, reach) -> None:
    """By SETTINGS (RFC 8441 section 3); a client that asks for it gets the reason."""
    proxy, origin = start(), make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    stream = peer.request([
        (":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"),
        (":authority", "a.example"), (":path", "/ws")], ends=False)
    assert peer.wait(stream).status == 501
    assert 8 not in peer.settings
    proxy.wait_reason("unsupported_protocol")
    assert peer.wait(peer.get("https://a.example/")).body == b"ok"


def test_hostile_heads_have_the_verdicts_of_a_listener(start, make_origin, reach
                                                       ) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    inside = {(":scheme", "http"): (":scheme", "https"),
              (":authority", "a.b"): (":authority", "a.example")}
    for name, fields in MALFORMED.items():
        stream = peer.request([inside.get(one, one) for one in fields])
        assert peer.wait(stream).reset == PROTOCOL_ERROR, name
    proxy.wait_log(1 + len(MALFORMED))
    proxy.wait_log(len(MALFORMED), reason="bad_stream")
    assert not origin.requests


def test_bodies_and_trailers_go_both_ways(start, make_origin, reach) -> None:
    size = 2 << 20

    def script(conn: Connection) -> None:
        while True:
            request = conn.read_request()
            digest = hashlib.sha256(request.body).hexdigest().encode()
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Digest: "
                      + digest + b"\r\n\r\n%x\r\n" % size + b"d" * size
                      + b"\r\n0\r\nX-Sum: 7\r\n\r\n")

    proxy, origin = start(), make_origin(over_tls(script))
    peer = reach(proxy, origin.port)
    body = b"u" * size
    stream = peer.get("https://a.example/", method="POST", ends=False)
    sent = 0
    while sent < size:
        n = peer.send(stream, body[sent:sent + 100_000], ends=sent + 100_000 >= size)
        sent += n
        if n < 100_000 and sent < size:
            peer.read()
    got = peer.wait(stream)
    assert got.body == b"d" * size
    assert dict(got.fields)["x-digest"] == hashlib.sha256(body).hexdigest()
    assert got.trailers == [("x-sum", "7")]


def test_curl(start, make_origin) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    done = subprocess.run(
        ["curl", "-sS", "--http2", "--noproxy", "", "-x", proxy.url, "--cacert",
         authority().own.certificate, "-w", "%{http_version}\n",
         f"https://a.example:{origin.port}/1", f"https://a.example:{origin.port}/2"],
        capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("ok2\nok2\n", "")
    assert [one.target for one in origin.requests] == ["/1", "/2"]


def test_a_rate_is_each_streams(start, make_origin, reach) -> None:
    proxy = start(ALL + '[limits.default]\nrequests_per_second = 1\nburst = 2\n')
    origin = make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    found = {peer.wait(peer.get("https://a.example/")).status for _ in range(4)}
    assert found == {200, 429}
    assert proxy.wait_reason("rate_limited")["intercepted"] is True


def test_filters_see_them(start_policy, make_origin, reach) -> None:
    proxy = start_policy(
        '[filters.Change]\ncode = "sieve:Change"\n'
        + ALL.replace("tls =", 'filters = ["Change"]\ntls ='), config(),
        modules={"sieve": FILTERS})
    origin = make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    got = peer.wait(peer.get("https://a.example/old/x", ("x-secret", "1")))
    assert (got.status, got.body) == (203, b"ok")
    assert dict(got.fields)["x-seen"] == "yes"
    assert origin.requests[0].target == "/new/x"
    assert origin.requests[0].get("x-secret") is None
    assert origin.requests[0].get("via").startswith("2 ")


def test_they_are_captured(start, make_origin, reach, tmp_path) -> None:
    database = tmp_path / "flows.db"
    proxy = start(ALL + 'capture = "full"\n', f'capture_file = "{database}"\n')
    origin = make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    body = peer.wait(peer.get("https://a.example/kept")).body
    assert body == b"ok"
    found = wait_rows(database, 2)
    place = f"a.example:{origin.port}"
    assert [(row["method"], row["url"].rpartition("//")[2], row["status"],
             row["response_body"]) for row in found] == [
        ("CONNECT", place, 200, None), ("GET", f"{place}/kept", 200, "ok")]


# --- ends


def test_rapid_resets_inside_end_the_connection(start, make_origin, reach) -> None:
    """CVE-2023-44487"""
    proxy, origin = start(), make_origin(over_tls(okay))
    quiet, peer = reach(proxy, origin.port), reach(proxy, origin.port)
    data = b""
    for _ in range(600):
        stream = peer.h2.get_next_available_stream_id()
        block = peer.h2.encoder.encode([
            (":method", "GET"), (":scheme", "https"), (":authority", "a.example"),
            (":path", "/")])
        peer.h2.highest_outbound_stream_id = stream
        data += frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
        data += frame(RST_STREAM, 0, stream, bytes([0, 0, 0, 8]))
    peer.sock.sendall(data)
    code, _ = peer.wait_end()
    assert code == ENHANCE_YOUR_CALM
    assert proxy.wait_reason("http2_resets")["intercepted"] is True
    assert quiet.wait(quiet.get("https://a.example/")).status == 200


def test_an_origin_that_closes_while_it_waits(start, make_origin, reach) -> None:
    count = []

    def script(conn: Connection) -> None:
        count.append(conn)
        if len(count) > 1:
            okay(conn)

    proxy, origin = start(), make_origin(over_tls(script))
    peer = reach(proxy, origin.port)
    wait_until(lambda: len(count) == 1, "the first connection")
    stream = peer.get("https://a.example/", ("content-length", "1"), method="POST",
                      ends=False)
    peer.send(stream, b"x", ends=True)
    assert peer.wait(stream).body == b"ok"


def test_nothing_is_left(start, make_origin, reach) -> None:
    last = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    proxy, origin = start(), make_origin(over_tls(answer(last)))
    worker = proxy.worker.pid
    proxy.take_baseline()
    for n in range(4):
        peer = reach(proxy, origin.port)
        if n:                               # the first one leaves the origin unused
            peer.wait(*[peer.get("https://a.example/") for _ in range(10)])
        peer.sock.close()
    proxy.wait_settled()
    assert proxy.worker.pid == worker
