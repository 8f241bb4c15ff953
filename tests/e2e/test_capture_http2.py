"""Captures of HTTP/2, of TLS and of time: versions, trailers, handshakes and the reason
if one failed, and the time that filters held a message."""

import json
import time

import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.captures import flows, wait_rows
from tests.support.certificates import Authority, client_context
from tests.support.flows import get
from tests.support.http2 import Peer
from tests.support.inside import HERE, OK, ask, config, enter, okay, over_tls
from tests.support.open_flows import wait_open
from tests.support.origin import Connection, answer
from tests.support.scripted_http2 import speak
from tests.support.wait import wait_until

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

POLICY = (f'[[rules]]\nname = "inside"\naction = "allow"\n{HERE}tls = "intercept"\n'
          'capture = "{}"\n')
HOLDING = """
    [filters.Hold]
    code = "holds:Hold"
    budget = "10s"
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    hosts = ["127.0.0.1"]
    filters = ["Hold"]
    capture = "full"
"""
HOLDS = """
    import asyncio

    class Hold:
        async def on_request_body(self, flow, body):
            await asyncio.sleep(0.2)

        async def on_response_head(self, flow):
            await asyncio.sleep(0.2)

        async def on_response_body(self, flow, body):
            await asyncio.sleep(0.2)
"""
DELAY_S = 0.2
CLOSING = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.fixture
def database(tmp_path):
    return tmp_path / "flows.db"


@pytest.fixture
def start(start_policy, database):
    def run(mode="full", more=""):
        return start_policy(POLICY.replace("{}", mode),
                            config(f'capture_file = "{database}"\n{more}'))
    return run


def exported(database) -> dict:
    """The requests of the archive by path."""
    log = json.loads(flows(database, "export").stdout)["log"]
    return {"/" + one["request"]["url"].split("/", 3)[-1]: one
            for one in log["entries"] if one["request"]["method"] != "CONNECT"}


def shown(database, number: int) -> str:
    return flows(database, "show", str(number)).stdout


def test_the_version_of_each_side_is_kept_and_no_field_that_nobody_sent(
        start, make_origin, dial, database):
    """Before, an origin of HTTP/2 had "HTTP/1.1 200" and "Connection: close"."""
    def say(speaker, stream):
        path = dict(speaker.questions[stream].fields)[":path"]
        body = b"" if path == "/empty" else b"body"
        length = [("content-length", "4")] if path == "/length" else []
        speaker.answer(stream, [(":status", "200"), ("x-one", "1"), *length], body)

    proxy, origin = start(), make_origin(speak(say))
    client = enter(proxy, dial(proxy), origin.port)
    for path in ("/chunks", "/empty", "/length"):
        assert ask(client, "GET", path).status == 200
    ask(client, "POST", "/up", "Transfer-Encoding: chunked",
        body=b"2\r\nhi\r\n0\r\n\r\n")
    connect, *found = wait_rows(database, 5)
    assert (connect["client_http"], connect["origin_http"]) == ("1.1", "2")
    for row in found:
        assert (row["client_http"], row["origin_http"]) == ("1.1", "2")
        assert row["peer_tls_version"] == "1.3"
        path = row["url"].removeprefix(f"https://a.example:{origin.port}")
        length = "content-length: 4\r\n" if path == "/length" else ""
        assert row["response_head"] == f"HTTP/2 200\r\nx-one: 1\r\n{length}\r\n"
        line, host, *rest = row["request_head"].split("\r\n")
        assert (line, host) == (f"{row['method']} {path} HTTP/2",
                                f"Host: a.example:{origin.port}")
        assert [one.split(":")[0] for one in rest] == ["Via", "", ""]
        assert row["response_head_bytes"] is None, "they went compressed"
    assert found[-1]["request_body"] == "hi"
    for entry in exported(database).values():
        assert entry["request"]["httpVersion"] == "HTTP/2.0"
        assert entry["response"]["httpVersion"] == "HTTP/2.0"
        assert entry["_clientHttpVersion"] == "HTTP/1.1"
    text = shown(database, found[0]["id"])
    assert "HTTP/2 200" in text and "Connection" not in text
    assert "origin_http             2\n" in text
    lines = proxy.wait_log(5)
    assert [one.get("origin_http") for one in lines[1:]] == ["2"] * 4
    assert "client_http" not in lines[1]


def test_a_client_of_http2_and_an_origin_of_http1(start, make_origin, dial, database):
    proxy, origin = start("head"), make_origin(over_tls(okay))
    context = client_context()
    context.set_alpn_protocols(("h2",))
    peer = Peer(enter(proxy, dial(proxy), origin.port, context=context).sock)
    peer.flush()
    stream = peer.get("https://a.example/a")
    peer.wait(stream)
    row = wait_rows(database, 2)[1]
    assert (row["client_http"], row["origin_http"]) == ("2", "1.1")
    assert row["response_head"] == OK.decode().removesuffix("ok")
    entry = exported(database)["/a"]
    assert (entry["request"]["httpVersion"], entry["response"]["httpVersion"],
            entry["_clientHttpVersion"]) == ("HTTP/1.1", "HTTP/1.1", "HTTP/2.0")


@pytest.mark.parametrize(("sent", "state"), [
    (0, "incomplete"), (5000, "incomplete"), (20_000, None)])
def test_an_upload_that_was_answered_early_is_no_whole_body(
        start, make_origin, dial, database, sent, state):
    """R71: the part that has passed is kept, and the state shows that it is not all."""
    def script(conn: Connection) -> None:
        conn.read_until(b"\r\n\r\n")
        conn.read_exact(sent)
        conn.send(b"HTTP/1.1 413 x\r\nContent-Length: 6\r\n\r\nno way")
        conn.stall()
    proxy, origin = start(), make_origin(over_tls(script))
    context = client_context()
    context.set_alpn_protocols(("h2",))
    peer = Peer(enter(proxy, dial(proxy), origin.port, context=context).sock)
    peer.flush()
    stream = peer.request([
        (":method", "POST"), (":scheme", "https"), (":authority", "a.example"),
        (":path", "/"), ("content-length", "20000")], False)
    peer.send(stream, b"x" * sent, sent == 20_000)
    assert peer.wait(stream).status == 413
    peer.sock.close()
    row = next(one for one in wait_rows(database, 2) if one["method"] == "POST")
    assert (row["request_body_bytes"], row["request_body_state"]) == (sent, state)
    assert len(row["request_body"] or b"") == sent


def test_a_stream_of_http2_is_read_while_it_is_open(
        start, make_origin, dial, database):
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
                  b"data: one\n\n")
        conn.stall()

    proxy = start(more=DOOR)
    operator, origin = operator_of(proxy), make_origin(over_tls(script))
    context = client_context()
    context.set_alpn_protocols(("h2",))
    peer = Peer(enter(proxy, dial(proxy), origin.port, context=context).sock)
    peer.flush()
    peer.get("https://a.example/events")
    (row,) = wait_open(operator)
    assert row["url"] == f"https://a.example:{origin.port}/events"
    path = f"/flows/open/{row['request']}"
    assert json.loads(get(operator, path)[2])["client_http"] == "2"
    wait_until(lambda: b"one" in get(operator, f"{path}/messages")[2], "the event")


def test_trailers_are_kept_and_redacted(start, make_origin, dial, database):
    """Before, they were lost: the status of gRPC is one."""
    def say(speaker, stream):
        speaker.answer(stream, [(":status", "200")], b"body", [
            ("grpc-status", "5"), ("grpc-message", "gone"), ("set-cookie", "s3cret")])

    proxy, origin = start(), make_origin(speak(say))
    client = enter(proxy, dial(proxy), origin.port)
    ask(client, "POST", "/up", "Transfer-Encoding: chunked", "Trailer: X-Sum",
        body=b"2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n")
    row = wait_rows(database, 2)[1]
    assert row["response_trailers"] == (
        "grpc-status: 5\r\ngrpc-message: gone\r\nset-cookie: [redacted]\r\n")
    assert row["request_trailers"] == "X-Sum: 7\r\n"
    assert (row["request_body"], row["response_body"]) == ("hi", "body")
    entry = exported(database)["/up"]
    assert entry["request"]["_trailers"] == [{"name": "X-Sum", "value": "7"}]
    assert entry["response"]["_trailers"][0] == {"name": "grpc-status", "value": "5"}
    assert "grpc-message: gone" in shown(database, row["id"])


def test_trailers_of_http1_are_kept(start, make_origin, dial, database):
    reply = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
             b"2\r\nhi\r\n0\r\nX-Sum: 7\r\nX-More: 8\r\n\r\n")
    proxy, origin = start(), make_origin(over_tls(answer(reply)))
    ask(enter(proxy, dial(proxy), origin.port), "GET", "/", "TE: trailers")
    assert wait_rows(database, 2)[1]["response_trailers"] == (
        "X-Sum: 7\r\nX-More: 8\r\n")


def test_handshakes_are_phases_of_their_own(start, make_origin, dial, database):
    """Before, the origin's was a part of `send`, or of no phase."""
    secured = over_tls(answer(CLOSING))

    def late(conn: Connection) -> None:
        time.sleep(DELAY_S)             # the delay that the capture has to show
        secured(conn)

    proxy, origin = start("head"), make_origin(late)
    client = enter(proxy, dial(proxy), origin.port)
    for path in ("/spare", "/own"):
        assert ask(client, "GET", path).body == b"ok"
    connect, spare, own = wait_rows(database, 3)
    for row in (connect, own):
        # The origin's delay may begin before the worker has seen that it is connected
        assert DELAY_S * 0.5e6 <= row["origin_tls_us"] < row["total_us"]
        assert row["connect_us"] < DELAY_S * 1e6
    assert 0 < connect["client_tls_us"] < connect["total_us"] - DELAY_S * 1e6
    assert own["send_us"] < DELAY_S * 1e6
    assert spare["origin_tls_us"] is spare["client_tls_us"] is None, "made before"
    assert own["client_tls_us"] is None
    assert connect["intercepted"], "the page shows that handshake after the origin's"
    timings = exported(database)["/own"]["timings"]
    assert timings["ssl"] == own["origin_tls_us"] / 1000
    assert timings["connect"] == pytest.approx(
        (own["connect_us"] + own["origin_tls_us"]) / 1000)
    assert exported(database)["/spare"]["timings"]["ssl"] == -1
    assert "origin_tls_ms" in shown(database, own["id"])
    lines = proxy.wait_log(3)
    assert lines[0]["client_tls_ms"] == connect["client_tls_us"] / 1000
    assert lines[2]["origin_tls_ms"] == own["origin_tls_us"] / 1000


def test_reply_log_and_flow_say_why_a_certificate_is_not_accepted(
        start, make_origin, dial, database):
    """Before, only the error log had the reason, now and then."""
    made = Authority("strangers").sign("DNS:a.example", "IP:127.0.0.1", days=30)
    scripts = [over_tls(okay, made), over_tls(answer(CLOSING)), over_tls(okay, made)]
    proxy, origin = start("head"), make_origin(lambda conn: scripts.pop(0)(conn))
    with pytest.raises(OSError, match="UNKNOWN_CA"):
        enter(proxy, dial(proxy), origin.port)
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"ok"
    why = "unable to get local issuer certificate"
    reply = ask(client)
    text, _, number = reply.body.decode().partition("\nrequest ")
    assert (reply.status, text) == (502, f"502 origin_certificate: {why}")
    rows, lines = wait_rows(database, 4), proxy.wait_log(4)
    assert number.strip() == rows[3]["request"] == lines[3]["id"]
    for row, line in ((rows[0], lines[0]), (rows[3], lines[3])):
        assert (row["reason"], row["detail"]) == ("origin_certificate", why)
        assert (line["reason"], line["hook"]) == ("origin_certificate", why)
        assert why in shown(database, row["id"])
    assert exported(database)["/"]["_detail"] == why
    assert why in proxy.stderr()


def test_the_time_in_which_filters_hold_a_message_is_neither_sending_nor_receiving(
        start_policy, make_origin, dial, database):
    """Before, it was in both."""
    proxy = start_policy(HOLDING, f'capture_file = "{database}"\n',
                         modules={"holds": HOLDS})
    origin = make_origin(okay)
    assert dial(proxy).ask("POST", origin.url("/a"), "Content-Length: 2",
                           body=b"hi").body == b"ok"
    (row,) = wait_rows(database)
    assert row["held_us"] >= 600_000
    assert row["send_us"] < DELAY_S * 1e6 and row["receive_us"] < DELAY_S * 1e6
    parts = [row[f"{name}_us"] or 0 for name in (
        "head", "auth", "hook", "dns", "connect", "send", "wait", "receive", "held")]
    assert sum(parts) <= row["total_us"]
    assert "held_ms " in shown(database, row["id"])
    timings = exported(database)["/a"]["timings"]
    assert timings["_held"] == row["held_us"] / 1000
    assert timings["blocked"] >= 600
