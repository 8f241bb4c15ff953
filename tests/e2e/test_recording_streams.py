"""Streams are replayed: WebSockets, events with their times, HTTP/2 with trailers."""

import time

import pytest
from websockets.frames import Frame, Opcode

from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Recording,
    Request,
    Response,
)
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support.certificates import client_context
from tests.support.chats import (
    KEY,
    accept_of,
    chat,
    enter,
    expect,
    expect_reason,
    frame,
)
from tests.support.client import build_request
from tests.support.http2 import Peer
from tests.support.inside import config as inside
from tests.support.inside import enter as enter_tunnel
from tests.support.recordings import fill, made, recorded
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def talk(client, url):
    """The conversation as it was recorded."""
    head = enter(client, url)
    expect(client, Opcode.TEXT, b"welcome")
    for sent in (b"one", b"two"):
        client.send(frame(Opcode.TEXT, sent))
        while (first := client.read_exact(2)) == frame(Opcode.PING, b"", False):
            pass
        assert first + client.read_exact(3) == frame(Opcode.TEXT, sent.upper(), False)
    expect(client, Opcode.CLOSE, b"\x03\xe8bye")
    client.send(frame(Opcode.CLOSE, b"\x03\xe8"))
    client.close()
    return head


@pytest.fixture
def replaying(start, folder, make_origin, dial):
    """A proxy that replays the conversation, and its URL; the origin is gone."""
    origin = make_origin(chat)
    proxy = start("record")
    url = origin.url("/chat")
    talk(dial(proxy), url)
    wait_until(lambda: recorded(folder) == 1, "one recording")
    write_state(folder, State("replay"))
    wait_until(lambda: "mode replay, session default, 1" in proxy.stderr(), "replay")
    origin.close()
    return proxy, url


def test_a_recorded_conversation_is_replayed_without_the_origin(
        replaying, folder, dial):
    proxy, url = replaying
    session = Sessions(folder).open("default")
    (one,) = session.recordings()
    session.close()
    assert [(each.is_up, each.kind, each.data) for each in one.response.messages] == [
        (False, "text", b"welcome"), (True, "text", b"one"), (False, "text", b"ONE"),
        (True, "text", b"two"), (False, "text", b"TWO"), (False, "close", b"bye"),
        (True, "close", b"")]
    for key in (KEY, "AAAAAAAAAAAAAAAAAAAAAA=="):
        client = dial(proxy)
        head = enter(client, url, key)
        assert b"101" in head and b"X-Room: 7" in head and accept_of(key) in head
        client.close()
        talk(dial(proxy), url)
    client = dial(proxy)
    enter(client, url)
    expect(client, Opcode.TEXT, b"welcome")
    client.send(frame(Opcode.PING, b"are you there"))
    expect(client, Opcode.PONG, b"are you there")
    for part in (Frame(Opcode.TEXT, b"o", fin=False), Frame(Opcode.CONT, b"ne")):
        for byte in part.serialize(mask=True):
            client.send(bytes([byte]))
    expect(client, Opcode.TEXT, b"ONE")


def test_a_message_that_differs_closes_with_the_reason(replaying, dial):
    proxy, url = replaying
    client = dial(proxy)
    enter(client, url)
    expect(client, Opcode.TEXT, b"welcome")
    client.send(frame(Opcode.TEXT, b"onE"))
    expect_reason(client, b"message 2 differs from the recording")
    wait_until(lambda: "a WebSocket ended: message 2 differs" in proxy.stderr(), "why")


def test_a_websocket_is_recorded_once_if_its_rule_caches(
        start, folder, make_origin, dial):
    """It passed with or without a recording, and no recording was made."""
    origin = make_origin(chat)
    proxy = start("cache")
    talk(dial(proxy), origin.url("/chat"))
    wait_until(lambda: recorded(folder) == 1, "one recording")
    write_state(folder, State("cache"))
    wait_until(lambda: "mode cache, session default, 1" in proxy.stderr(), "cache")
    talk(dial(proxy), origin.url("/chat"))
    assert len(origin.connections) == 1
    assert [line["reason"] for line in proxy.wait_log(2)] == ["ok", "replayed"]
    assert recorded(folder) == 1


def test_a_websocket_is_not_recorded_if_its_rule_spies(
        start, folder, make_origin, dial):
    origin = make_origin(chat)
    proxy = start("spy")
    talk(dial(proxy), origin.url("/chat"))
    assert proxy.wait_log(1)[0]["reason"] == "ok" and not recorded(folder)
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1",
                        port=origin.port, path="/chat"),
        response=Response(status=101, messages=(Message(0, False, "text", b"kept"),))))
    write_state(folder, State("spy"))
    wait_until(lambda: "mode spy, session default, 1" in proxy.stderr(), "spy")
    client = dial(proxy)
    enter(client, origin.url("/chat"))
    expect(client, Opcode.TEXT, b"kept")
    assert len(origin.connections) == 1


def test_messages_are_compared_by_the_key_of_their_route(start, folder, dial):
    """They were compared octet by octet: if a client's calls had identifiers of its
    own, it got no answer. Answers have these identifiers."""
    said = [(True, b'{"jsonrpc": "2.0", "id": "a-1", "method": "sum"}'),
            (False, b'{"jsonrpc":"2.0","id":"a-1","result":1.0}'),
            (False, b'{"method":"note","id":"other"}'),
            (True, b'{"jsonrpc": "2.0", "id": 7, "method": "stop"}'),
            (False, b'{"id":7,"result":null}')]
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path="/rpc"),
        response=Response(status=101, messages=tuple(
            Message(0, is_up, "text", data) for is_up, data in said))))
    client = dial(start(config="""
[recording_routes.rpc]
paths = ["/rpc"]
body = "json"
ignored_paths = ["$.id"]
"""))
    enter(client, "http://127.0.0.1:9/rpc")
    client.send(frame(Opcode.TEXT, b'{"id":"mine","method":"sum","jsonrpc":"2.0"}'))
    expect(client, Opcode.TEXT, b'{"jsonrpc":"2.0","id":"mine","result":1.0}')
    expect(client, Opcode.TEXT, said[2][1])
    client.send(frame(Opcode.TEXT, b'{"id":9,"method":"go","jsonrpc":"2.0"}'))
    expect_reason(client, b"message 4 differs from the recording")


def test_the_origins_messages_alone_count_if_the_route_says_so(start, folder, dial):
    """More of the client's messages than were recorded, and other ones, or none."""
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path="/feed"),
        response=Response(status=101, messages=(
            Message(0, True, "text", b"subscribe"),
            Message(1, False, "text", b"one"), Message(2, True, "ping", b""),
            Message(3, False, "binary", b"two"), Message(4, True, "text", b"enough"),
            Message(5, True, "close", b"", code=1000)))))
    proxy = start(config='[recording_routes.feed]\nmessages = "server"\n')
    for said in ((), (b"other",), (b"a", b"b", b"c", b"d")):
        client = dial(proxy)
        enter(client, "http://127.0.0.1:9/feed")
        for text in said:
            client.send(frame(Opcode.TEXT, text))
        expect(client, Opcode.TEXT, b"one")
        expect(client, Opcode.BINARY, b"two")
        client.send(frame(Opcode.PING, b"here"))
        expect(client, Opcode.PONG, b"here")
        client.send(frame(Opcode.CLOSE, b"\x03\xe8"))
        expect(client, Opcode.CLOSE, b"\x03\xe8")


def test_the_origins_close_comes_as_recorded(start, folder, dial):
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path="/feed"),
        response=Response(status=101, messages=(
            Message(1, False, "text", b"one"),
            Message(2, False, "close", b"over", code=1001)))))
    client = dial(start(config='[recording_routes.feed]\nmessages = "server"\n'))
    enter(client, "http://127.0.0.1:9/feed")
    client.send(frame(Opcode.TEXT, b"unheard"))
    expect(client, Opcode.TEXT, b"one")
    expect(client, Opcode.CLOSE, b"\x03\xe9over")


def test_a_client_may_say_its_secret_which_the_recording_has_not(start, folder, dial):
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path="/chat", fields=(("Authorization", "Bearer s3kr1t"),)),
        response=Response(status=101, messages=(
            Message(0, True, "text", b"I am s3kr1t"),
            Message(1, False, "text", b"welcome")))))
    client = dial(start())
    enter(client, "http://127.0.0.1:9/chat", KEY, "Authorization: Bearer s3kr1t")
    client.send(frame(Opcode.TEXT, b"I am s3kr1t"))
    expect(client, Opcode.TEXT, b"welcome")


def test_a_plain_request_gets_no_websocket(replaying, dial):
    proxy, url = replaying
    reply = dial(proxy).get(url)
    assert reply.status == 502 and b"recording 1 is a WebSocket" in reply.body
    assert enter(dial(proxy), url + "/other").startswith(b"HTTP/1.1 502 ")


def test_a_pace_is_that_of_the_recording_or_faster(start, folder, dial):
    """Three events in 0.6 s: they come apart, and in a tenth of the time."""
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path="/events"),
        response=Response(
            status=200, head_us=0, fields=(("Content-Type", "text/event-stream"),),
            chunks=tuple(Chunk(200_000 * at, b"data: %d\n\n" % at)
                         for at in range(1, 4)))))
    taken = []
    for pace in ("as_recorded", "10x"):
        client = dial(start(config=f'recording_pace = "{pace}"'))
        begun = time.monotonic()
        client.send(build_request("GET", "http://127.0.0.1:9/events"))
        for at in range(1, 4):
            client.read_until(b"data: %d\n\n" % at)
        taken.append(time.monotonic() - begun)
    assert taken[0] >= 0.6 and taken[1] >= 0.06
    assert taken[1] < taken[0]


def test_an_answer_to_a_body_may_come_late(start, folder, dial):
    """When the body was read, the wait for the player had no time: 504 at once, for
    answers that do not go out in one piece."""
    fill(folder, Recording(
        request=Request(method="POST", scheme="http", host="127.0.0.1", port=9,
                        path="/a", body=b"asked"),
        response=Response(status=200, chunks=(Chunk(0, b"late"),)), delay_us=100_000))
    reply = dial(start()).ask("POST", "http://127.0.0.1:9/a", "Content-Length: 5",
                              body=b"asked")
    assert (reply.status, reply.body) == (200, b"late")


def test_a_message_of_a_websocket_comes_when_it_came(start, folder, dial):
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path="/chat"),
        response=Response(status=101, messages=(
            Message(200_000, False, "text", b"one"),
            Message(500_000, False, "text", b"two")))))
    client = dial(start(config='recording_pace = "as_recorded"'))
    enter(client, "http://127.0.0.1:9/chat")
    begun = time.monotonic()
    expect(client, Opcode.TEXT, b"one")
    assert time.monotonic() - begun >= 0.15
    expect(client, Opcode.TEXT, b"two")
    assert time.monotonic() - begun >= 0.45
    client.send(frame(Opcode.TEXT, b"more"))
    expect(client, Opcode.CLOSE, (1008).to_bytes(2) + b"4 bytes come behind the last "
           b"message of the recording")


def test_a_call_of_grpc_keeps_its_messages_and_trailers(start, folder, dial):
    """Twice and at once, over one connection of HTTP/2; each is a message of RFC's five
    bytes and the rest."""
    pytest.importorskip("cutthrough.http2.transport")
    messages = [b"\0" + len(data).to_bytes(4) + data
                for data in (b"one", b"two" * 9000)]
    fill(folder, Recording(
        request=Request(method="POST", scheme="https", host="a.example", port=9,
                        path="/s.Service/Call", body=messages[0]),
        response=Response(
            status=200, fields=(("content-type", "application/grpc"),),
            chunks=tuple(Chunk(0, data) for data in messages),
            trailers=(("grpc-status", "0"), ("grpc-message", "fine")))))
    context = client_context()
    context.set_alpn_protocols(["h2"])
    proxy = start(keys='tls = "intercept"', config=inside())
    peer = Peer(enter_tunnel(proxy, dial(proxy), 9, context=context).sock)
    peer.flush()
    for _ in range(3):
        asked = [peer.get("https://a.example:9/s.Service/Call", method="POST",
                          ends=False) for _ in range(4)]
        for stream in asked:
            peer.send(stream, messages[0], ends=True)
        for stream in asked:
            got = peer.wait(stream)
            assert (got.status, got.body) == (200, b"".join(messages))
            assert dict(got.trailers) == {"grpc-status": "0", "grpc-message": "fine"}


def test_a_slow_reader_gets_all_of_answers_that_are_looked_up(start, folder, dial):
    """Head and body go out in one write, as far as the client takes them."""
    fill(folder, *[made(9, f"/{n}", body=b"%03d" % n * 10_000) for n in range(150)])
    client = dial(start())
    for n in range(150):
        client.send(build_request("GET", f"http://127.0.0.1:9/{n}"))
    for n in range(150):
        assert client.read_response("GET").body == b"%03d" % n * 10_000


def test_a_client_that_waits_for_100_gets_it_before_its_answer(start, folder, dial):
    fill(folder, made(9, "/p", method="POST", sent=b"x=1", body=b"one"))
    client = dial(start())
    for _ in range(2):
        client.send(build_request("POST", "http://127.0.0.1:9/p", "Content-Length: 3",
                                  "Expect: 100-continue"))
        assert b" 100 " in client.read_until(b"\r\n\r\n")
        client.send(b"x=1")
        assert client.read_response("POST").body == b"one"


def test_a_client_that_is_gone_ends_its_replay_alone(start, folder, dial):
    fill(folder, *[made(9, f"/{n}", body=b"q" * 30_000) for n in range(60)])
    proxy = start()
    for n in range(0, 60, 20):
        client = dial(proxy)
        client.send(*[build_request("GET", f"http://127.0.0.1:9/{n + k}")
                      for k in range(20)])
        client.reset()
    assert dial(proxy).get("http://127.0.0.1:9/1").body == b"q" * 30_000


def test_an_answer_of_many_small_chunks_is_replayed_whole(start, folder, dial):
    """30 000 chunks of one byte are sent as 180 000: their framing was not counted,
    and a client that did not read all at once was reset."""
    fill(folder, *[Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path=f"/{n}"),
        response=Response(status=200, chunks=(Chunk(0, b"x"),) * 30_000))
        for n in range(4)])
    client = dial(start())
    for n in range(4):
        client.send(build_request("GET", f"http://127.0.0.1:9/{n}"))
    for _ in range(4):
        assert client.read_response("GET").body == b"x" * 30_000
