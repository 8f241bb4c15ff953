"""Streams that are left before their end: recorded as they came, and cut again."""

import httpx
import pytest

from cutthrough.recording.model.recording import Chunk, Recording, Request, Response
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support.certificates import client_context
from tests.support.client import build_request
from tests.support.http2 import Peer
from tests.support.inside import config as inside
from tests.support.inside import enter as enter_tunnel
from tests.support.recordings import fill, made, recorded
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

EVENTS = (b"data: 0\n\n", b"data: 1\n\n")
CHUNKED = "Content-Type: {}\r\nTransfer-Encoding: chunked\r\n"


def stream(*pieces, kind="text/event-stream", fields=CHUNKED, stays=True):
    """An origin that sends these, and then nothing until its client leaves."""
    def script(conn):
        conn.read_request()
        fields_text = fields.format(kind)
        conn.send(f"HTTP/1.1 200 OK\r\n{fields_text}\r\n".encode())
        for piece in pieces:
            conn.send(b"%x\r\n%b\r\n" % (len(piece), piece)
                      if "chunked" in fields_text else piece)
        if stays:
            conn.at_eof()
    return script


def leave(dial, proxy, url, last):
    client = dial(proxy)
    client.send(build_request("GET", url))
    client.read_until(last)
    client.reset()


def to_replay(folder, proxy, count=1):
    wait_until(lambda: recorded(folder) == count, "recorded")
    write_state(folder, State("replay"))
    wait_until(lambda: f"mode replay, session default, {count}" in proxy.stderr(),
               "replay")


def only(folder):
    session = Sessions(folder).open("default")
    (one,) = session.recordings()
    session.close()
    return one.response


@pytest.mark.parametrize("fields", [CHUNKED, "Content-Type: {}\r\n"])
def test_events_that_a_client_leaves_are_recorded_and_cut_there(
        start, folder, make_origin, dial, fields):
    """Such a stream often has no other end: it was never recorded."""
    origin = make_origin(stream(*EVENTS, b"data: ha", fields=fields))
    proxy = start("record")
    url = origin.url("/events")
    leave(dial, proxy, url, b"data: ha")
    to_replay(folder, proxy)
    answer = only(folder)
    assert answer.is_cut and answer.body == b"".join(EVENTS)
    for _ in range(2):
        client = dial(proxy)
        client.send(build_request("GET", url))
        got = client.read_rest()
        assert all(event in got for event in EVENTS) and b"ha" not in got
        assert not got.endswith(b"0\r\n\r\n")
    assert [line["reason"] for line in proxy.wait_log(3)[1:]] == ["replayed"] * 2
    assert len(origin.connections) == 1


def test_a_client_that_closes_has_left_when_the_next_event_comes(
        start, folder, make_origin, dial):
    """Its FIN alone may be a half-close."""
    def script(conn):
        stream(*EVENTS, fields="Content-Type: {}\r\n", stays=False)(conn)
        while conn.is_silent(0.05):
            conn.send(b": still here\n\n")

    proxy = start("record")
    client = dial(proxy)
    client.send(build_request("GET", make_origin(script).url("/events")))
    client.read_until(EVENTS[1])
    client.close()
    wait_until(lambda: recorded(folder) == 1, "recorded")
    assert only(folder).is_cut and only(folder).body.startswith(b"".join(EVENTS))


def test_a_client_knows_that_a_replayed_stream_was_cut(start, folder):
    fill(folder, Recording(
        request=made(9, "/events").request,
        response=Response(status=200, is_cut=True, chunks=(Chunk(0, EVENTS[0]),),
                          fields=(("Content-Type", "text/event-stream"),))))
    got = []
    with httpx.Client(proxy=start().url) as client, pytest.raises(
            httpx.RemoteProtocolError, match="incomplete chunked"), client.stream(
            "GET", "http://127.0.0.1:9/events") as reply:
        got += reply.iter_bytes()
    assert b"".join(got) == EVENTS[0]


def test_a_cut_stream_of_http2_is_reset(start, folder, dial):
    pytest.importorskip("cutthrough.http2.transport")
    fill(folder, Recording(
        request=Request(method="GET", scheme="https", host="a.example", port=9,
                        path="/events"),
        response=Response(status=200, is_cut=True, chunks=(Chunk(0, EVENTS[0]),),
                          fields=(("Content-Type", "text/event-stream"),))))
    context = client_context()
    context.set_alpn_protocols(["h2"])
    proxy = start(keys='tls = "intercept"', config=inside())
    peer = Peer(enter_tunnel(proxy, dial(proxy), 9, context=context).sock)
    peer.flush()
    for _ in range(2):
        got = peer.wait(peer.get("https://a.example:9/events"))
        assert got.body == EVENTS[0] and got.reset is not None


def test_an_origin_that_breaks_off_is_recorded_as_cut(start, folder, make_origin, dial):
    origin = make_origin(stream(b'{"n": 0}\n', b'{"n"', kind="application/x-ndjson",
                                stays=False))
    proxy = start("record")
    client = dial(proxy)
    client.send(build_request("GET", origin.url("/lines")))
    client.read_rest()
    wait_until(lambda: recorded(folder) == 1, "recorded")
    assert only(folder).is_cut and only(folder).body == b'{"n": 0}\n'


@pytest.mark.parametrize(("kind", "fields", "config"), [
    ("text/event-stream", "Content-Type: {}\r\nContent-Length: 100\r\n", ""),
    ("text/event-stream", "Content-Type: {}\r\nContent-Length: 100\r\n",
     'recording_cut = "any"'),
    ("text/event-stream", CHUNKED + "Content-Encoding: gzip\r\n", ""),
    ("text/event-stream", CHUNKED, 'recording_cut = "none"'),
    ("application/json", CHUNKED, ""),
])
def test_what_is_no_stream_is_not_recorded_if_it_is_left(
        start, folder, make_origin, dial, kind, fields, config):
    """One with a length, that was cut, is never taken for whole."""
    origin = make_origin(stream(*EVENTS, kind=kind, fields=fields))
    proxy = start("record", config=config)
    leave(dial, proxy, origin.url("/events"), b"data: 1")
    wait_until(lambda: "is not recorded: it ended as client_" in proxy.stderr(), "why")
    assert not recorded(folder)


def test_any_answer_without_a_length_may_be_recorded_as_cut(
        start, folder, make_origin, dial):
    origin = make_origin(stream(b'{"a"', kind="application/json"))
    proxy = start("record", config='recording_cut = "any"')
    leave(dial, proxy, origin.url("/a"), b'{"a"')
    wait_until(lambda: recorded(folder) == 1, "recorded")
    assert only(folder).is_cut and only(folder).body == b'{"a"'
