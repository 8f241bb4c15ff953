"""Origins of intercepted connections by HTTP/2: `origin_http2`."""

import hashlib
import threading

import pytest

from tests.support.admin import administered
from tests.support.client import USER
from tests.support.http2 import REFUSED_STREAM
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import ALL, ask, config, enter, okay, over_tls, send
from tests.support.origin import Connection, Script
from tests.support.scripted_http2 import ON, say, speak
from tests.support.scripted_http2 import reach as reach
from tests.support.scripted_http2 import start as start
from tests.support.wait import wait_until

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

MEGABYTES = bytes(range(256)) * 4096 * 5


def test_a_client_of_http1_is_answered(start, make_origin, dial) -> None:
    proxy, seen = start(), []

    def answer(speaker: Speaker, stream: int) -> None:
        seen.append(speaker.questions[stream].fields)
        say(speaker, stream)

    origin = make_origin(speak(answer))
    client = enter(proxy, dial(proxy), origin.port)
    for path in ("/one", "/two", "/three"):
        got = ask(client, "GET", path)
        assert (got.status, got.body) == (200, path.encode())
    assert len(origin.connections) == 1, "each request has a stream of it"
    assert dict(seen[0])[":authority"] == f"a.example:{origin.port}"
    assert dict(seen[0])[":scheme"] == "https"
    records = proxy.wait_log(4)
    assert [one["reason"] for one in records] == ["ok"] * 4
    assert [one["user"] for one in records] == [USER] * 4
    assert len({one["peer"] for one in records}) == 1


def test_it_is_offered_unless_it_is_off(start, make_origin, dial) -> None:
    proxy, origin = start(""), make_origin(speak(say))
    assert ask(enter(proxy, dial(proxy), origin.port)).body == b"/"
    proxy = start('origin_http2 = "off"\n')
    origin = make_origin(over_tls(okay, alpn=("h2", "http/1.1")))
    assert ask(enter(proxy, dial(proxy), origin.port)).body == b"ok"


def test_an_origin_without_it_is_spoken_to_by_http1(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == ask(client).body == b"ok"
    assert len(origin.connections) == 1


def test_clients_share_a_connection(start, make_origin, dial, reach) -> None:
    """Once a request has been made by it; until then it is its client's own."""
    proxy, origin = start(), make_origin(speak(say))
    first = enter(proxy, dial(proxy), origin.port)
    assert ask(first, "GET", "/a").body == b"/a"
    peer = reach(proxy, origin.port)
    streams = [peer.get(f"https://a.example/{n}") for n in range(40)]
    peer.wait(*streams)
    assert [bytes(peer.answers[one].body) for one in streams] == [
        b"/%d" % n for n in range(40)]
    assert ask(first, "POST", "/b", "Content-Length: 3", body=b"abc").body == b"/b"
    assert len(origin.connections) == 2


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_bodies_both_ways(start, make_origin, dial, framing) -> None:
    def answer(speaker: Speaker, stream: int) -> None:
        body = bytes(speaker.questions[stream].body)
        speaker.h2.send_headers(stream, [
            (":status", "200"), ("x-sum", hashlib.sha256(body).hexdigest()),
            ("content-length", str(len(body)))])
        while body:
            n = min(len(body), 16384, speaker.h2.local_flow_control_window(stream))
            if n == 0:
                assert speaker.read()
                continue
            speaker.h2.send_data(stream, body[:n])
            body = body[n:]
            speaker.flush()
        speaker.h2.end_stream(stream)

    proxy, origin = start(), make_origin(speak(answer))
    client = enter(proxy, dial(proxy), origin.port)
    if framing == "length":
        length = f"Content-Length: {len(MEGABYTES)}"
        got = ask(client, "POST", "/", length, body=MEGABYTES)
    else:
        chunks = b"".join(b"%x\r\n%b\r\n" % (65536, MEGABYTES[at:at + 65536])
                          for at in range(0, len(MEGABYTES), 65536)) + b"0\r\n\r\n"
        got = ask(client, "POST", "/", "Transfer-Encoding: chunked", body=chunks)
    assert got.get("x-sum") == hashlib.sha256(MEGABYTES).hexdigest()
    assert hashlib.sha256(got.body).hexdigest() == hashlib.sha256(MEGABYTES).hexdigest()


def test_trailers_come_to_a_client_of_http2(start, make_origin, reach) -> None:
    def answer(speaker: Speaker, stream: int) -> None:
        speaker.answer(stream, [(":status", "200")], b"\0\0\0\0\1x",
                       [("grpc-status", "0")])

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    got = peer.wait(peer.get("https://a.example/a.B/c", ("te", "trailers")))
    assert (bytes(got.body), got.trailers) == (b"\0\0\0\0\1x", [("grpc-status", "0")])


def test_trailers_that_are_announced_come_beside_a_length(
        start, make_origin, dial, reach) -> None:
    """Go's server sends both, if an answer is small. The length was kept, for which
    HTTP/1.1 has no trailers, and these were dropped."""
    def answer(speaker: Speaker, stream: int) -> None:
        received = speaker.questions[stream]
        speaker.answer(stream, [(":status", "200"), ("content-length", "1"),
                                ("trailer", "x-sum"),
                                ("x-received", repr(received.trailers))],
                       b"x", [("x-sum", "7")])

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    stream = peer.get("https://a.example/", ("content-length", "2"), ("trailer", "x-t"),
                      method="POST", ends=False)
    peer.send(stream, b"ab")
    peer.h2.send_headers(stream, [("x-t", "u")], end_stream=True)
    peer.flush()
    got = peer.wait(stream)
    assert (got.body, got.trailers) == (b"x", [("x-sum", "7")])
    assert dict(got.fields)["x-received"] == repr([("x-t", "u")])
    got = ask(enter(proxy, dial(proxy), origin.port))
    assert (got.body, got.trailers) == (b"x", [("x-sum", "7")])


@pytest.mark.parametrize("n", [100, 1000])
def test_trailers_of_any_number_come_whole(start, make_origin, dial, reach, n) -> None:
    """gRPC's last one may be its status."""
    trailers = [(f"x-{at}", "some-metadata") for at in range(n)]
    trailers.append(("grpc-status", "5"))

    def answer(speaker: Speaker, stream: int) -> None:
        speaker.answer(stream, [(":status", "200")], b"x", trailers)

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    got = peer.wait(peer.get("https://a.example/"))
    assert (got.body, got.trailers) == (b"x", trailers)
    got = ask(enter(proxy, dial(proxy), origin.port))
    assert (got.body, got.trailers) == (b"x", trailers)


def test_a_reset_ends_one_request(start, make_origin, reach) -> None:
    def answer(speaker: Speaker, stream: int) -> None:
        if dict(speaker.questions[stream].fields)[":path"] == "/bad":
            speaker.h2.reset_stream(stream, 2)
        else:
            say(speaker, stream)

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get("https://a.example/a")).status == 200
    assert peer.wait(peer.get("https://a.example/bad", method="POST")).status == 502
    assert peer.wait(peer.get("https://a.example/b")).body == b"/b"
    assert len(origin.connections) == 1
    assert proxy.wait_reason("origin_reset")


def test_a_refused_request_is_sent_again(start, make_origin, reach) -> None:
    """By a new connection, whatever its method: the origin has not read it."""
    refused = []

    def answer(speaker: Speaker, stream: int) -> None:
        if dict(speaker.questions[stream].fields)[":path"] == "/b" and not refused:
            refused.append(stream)
            speaker.h2.reset_stream(stream, REFUSED_STREAM)
        else:
            say(speaker, stream)

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get("https://a.example/a")).body == b"/a"
    assert peer.wait(peer.get("https://a.example/b", method="POST")).body == b"/b"
    assert len(refused) == 1 and len(origin.connections) == 2


def test_behind_goaway_is_a_new_connection(start, make_origin, dial) -> None:
    def answer(speaker: Speaker, stream: int) -> None:
        say(speaker, stream)
        speaker.h2.close_connection(last_stream_id=stream)

    proxy, origin = start(), make_origin(speak(answer))
    client = enter(proxy, dial(proxy), origin.port)
    for path in ("/a", "/b", "/c"):
        assert ask(client, "GET", path).body == path.encode()
    assert len(origin.connections) == 3


def test_a_dead_connection_is_replaced(start, make_origin, dial) -> None:
    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock)
        speaker.flush()
        while not speaker.questions[1].ended:
            assert speaker.read()
        say(speaker, 1)

    proxy, origin = start(), make_origin(over_tls(script, alpn=("h2",)))
    client = enter(proxy, dial(proxy), origin.port)
    for path in ("/a", "/b"):
        assert ask(client, "GET", path).body == path.encode()


def test_an_origin_that_dies_within_a_body_cuts_it(start, make_origin, reach) -> None:
    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock)
        speaker.flush()
        while not (speaker.questions[1].ended and speaker.questions[3].ended):
            assert speaker.read()
        for stream in (1, 3):
            speaker.answer(stream, [(":status", "200")], b"part", ends=False)

    proxy, origin = start(), make_origin(over_tls(script, alpn=("h2",)))
    peer = reach(proxy, origin.port)
    streams = [peer.get(f"https://a.example/{n}") for n in range(2)]
    peer.wait(*streams)
    assert [peer.answers[one].ended for one in streams] == [False, False]
    assert all(peer.answers[one].reset is not None for one in streams)
    proxy.wait_log(3)


def test_more_requests_than_the_origin_takes_make_a_connection(
        start, make_origin, reach) -> None:
    barrier = threading.Barrier(4, timeout=20)

    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock, streams=1)
        speaker.flush()
        while not speaker.questions[1].ended:
            assert speaker.read()
        barrier.wait()
        say(speaker, 1)
        while speaker.read():
            pass

    proxy, origin = start(), make_origin(over_tls(script, alpn=("h2",)))
    peer = reach(proxy, origin.port)
    wait_until(lambda: origin.connections, "the first connection")
    streams = []
    for n in range(4):
        streams.append(peer.get(f"https://a.example/{n}"))
        wait_until(lambda n=n: len(origin.connections) > n, f"its connection {n}")
    peer.wait(*streams)
    assert [peer.answers[one].status for one in streams] == [200] * 4


@pytest.mark.parametrize("bounds, idle", [
    ("upstream_idle_per_origin = 2", 4), ("upstream_idle = 3", 3),
    ("upstream_idle_per_origin = 0", 0)])
@pytest.mark.parametrize("first", ["h2", "http/1.1"])
def test_idle_connections_are_bounded(
        start, make_origin, dial, bounds, idle, first) -> None:
    """Each tunnel dials, and leaves its connection; both kinds share the places."""
    proxy = start(f"{ON}{bounds}\n")
    before = proxy.sockets()
    origins = [make_origin(speak(say)), make_origin(over_tls(okay))]
    for origin in origins if first == "h2" else reversed(origins):
        for _ in range(5):
            client = enter(proxy, dial(proxy), origin.port)
            assert ask(client).status == 200
            client.close()
    assert [len(origin.connections) for origin in origins] == [5, 5]
    wait_until(lambda: proxy.sockets() - before == idle,
               lambda: f"{proxy.sockets()} sockets, {before} before")


def test_idle_connections_are_in_the_gauge(
        loop_name, directory, opened, make_origin, dial, tmp_path) -> None:
    (tmp_path / "policy.toml").write_text(ALL)
    proxy, operator = administered(
        opened, directory("proxy"), loop_name,
        f'policy = "{tmp_path}/policy.toml"\n{config(ON)}')
    for script in (speak(say), over_tls(okay)):
        client = enter(proxy, dial(proxy), make_origin(script).port)
        assert ask(client).status == 200
        client.close()
    wait_until(lambda: operator.metrics()['upstream_pool{state="idle"}'] == 2,
               lambda: operator.metrics())


def test_an_upgrade_has_a_connection_of_http1(start, make_origin, dial) -> None:
    def script(conn: Connection) -> None:
        if conn.sock.tls.selected_alpn_protocol() == "h2":
            speaker = Speaker(conn.sock)
            speaker.flush()
            while speaker.read():
                pass
            return
        conn.read_request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                  b"Connection: upgrade\r\n\r\nhello")

    proxy = start()
    origin = make_origin(over_tls(script, alpn=("h2", "http/1.1")))
    client = enter(proxy, dial(proxy), origin.port)
    send(client, "GET", "/", "Upgrade: websocket", "Connection: upgrade",
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
    assert client.read_head().status == 101
    assert client.read_exact(5) == b"hello"


def test_nothing_is_left(start, make_origin, dial, reach) -> None:
    """A client that goes resets its stream alone; at the end nothing is open."""
    proxy = start(ON + "upstream_idle_timeout = \"1s\"\n")
    come = threading.Event()

    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock)
        speaker.flush()
        answered = set()
        while speaker.read():
            for stream, question in list(speaker.questions.items()):
                path = dict(question.fields).get(":path")
                if path == "/wait":
                    come.set()
                elif question.ended and stream not in answered:
                    answered.add(stream)
                    say(speaker, stream)

    origin = make_origin(over_tls(script, alpn=("h2",)))
    first, second = reach(proxy, origin.port), reach(proxy, origin.port)
    assert first.wait(first.get("https://a.example/a")).status == 200
    first.get("https://a.example/wait")
    assert come.wait(20)
    first.sock.close()
    assert second.wait(second.get("https://a.example/b")).body == b"/b"
    second.sock.close()
    proxy.wait_log(5)
    proxy.wait_settled()
    for conn in origin.connections:
        wait_until(lambda conn=conn: conn.sock.fileno() < 0, "its end")


# --- many requests at a time


def shaken(alpn: tuple[str, ...] = ("h2",)) -> tuple[Script, threading.Event]:
    """An origin's script that ends its first connection behind one answer, and begins
    no other one before the event."""
    go = threading.Event()

    def script(conn: Connection) -> None:
        if not first:
            assert go.wait(20)
        speaker = Speaker(conn.sock)
        speaker.flush()
        answered: set[int] = set()
        while speaker.read():
            for stream, question in list(speaker.questions.items()):
                if stream and question.ended and stream not in answered:
                    answered.add(stream)
                    if question.reset is None:
                        say(speaker, stream)
            if first and answered:
                first.clear()
                return
    first = [True]
    return over_tls(script, alpn=alpn), go


def test_many_requests_wait_for_one_connection(start, make_origin, reach) -> None:
    """The origin has ended the connection that the client's requests shared."""
    script, go = shaken()
    proxy, origin = start(), make_origin(script)
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get("https://a.example/a")).body == b"/a"
    wait_until(lambda: origin.connections[0].sock.fileno() < 0, "its end")
    streams = [peer.get(f"https://a.example/{n}", method="POST" if n % 2 else "GET")
               for n in range(90)]
    peer.flush()
    wait_until(lambda: len(origin.connections) == 2, "the second connection")
    go.set()
    peer.wait(*streams)
    assert [bytes(peer.answers[one].body) for one in streams] == [
        b"/%d" % n for n in range(90)]
    assert len(origin.connections) == 2


def test_who_waits_dials_if_the_first_one_goes(start, make_origin, reach) -> None:
    script, go = shaken()
    proxy, origin = start(), make_origin(script)
    first, second = reach(proxy, origin.port), reach(proxy, origin.port)
    assert first.wait(first.get("https://a.example/a")).body == b"/a"
    wait_until(lambda: origin.connections[0].sock.fileno() < 0, "its end")
    first.get("https://a.example/b")
    wait_until(lambda: len(origin.connections) == 3, "its connection")
    streams = [second.get(f"https://a.example/{n}") for n in range(9)]
    second.flush()
    first.sock.close()
    go.set()
    second.wait(*streams)
    assert [second.answers[one].status for one in streams] == [200] * 9


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_wait_than_the_origin_takes(start, make_origin, reach, most) -> None:
    """The others dial meanwhile: no connection begins before all of them are there."""
    barrier, first = threading.Barrier(12 // most, timeout=20), [True]

    def script(conn: Connection) -> None:
        was_first = bool(first)
        first.clear()
        if not was_first:
            barrier.wait()
        speaker = Speaker(conn.sock, streams=most)
        speaker.flush()
        answered: set[int] = set()
        while not (was_first and answered) and speaker.read():
            for stream, question in list(speaker.questions.items()):
                if stream and question.ended and stream not in answered:
                    answered.add(stream)
                    say(speaker, stream)

    proxy, origin = start(), make_origin(over_tls(script, alpn=("h2",)))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get("https://a.example/a")).body == b"/a"
    wait_until(lambda: origin.connections[0].sock.fileno() < 0, "its end")
    streams = [peer.get(f"https://a.example/{n}") for n in range(12)]
    peer.wait(*streams)
    assert [bytes(peer.answers[one].body) for one in streams] == [
        b"/%d" % n for n in range(12)]
    assert len(origin.connections) == 1 + 12 // most
