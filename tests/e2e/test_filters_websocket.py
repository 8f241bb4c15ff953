"""Messages of WebSockets in the hands of filters: a real client and origin, and frames
that no library sends."""

import contextlib
import os
import threading
import time

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from cutthrough.recording.sessions.modes import State, write_state
from tests.support.client import build_request
from tests.support.inside import HERE, config
from tests.support.origin import echo
from tests.support.recordings import recorded
from tests.support.wait import wait_until
from tests.support.websockets import UPGRADE, frame, mirror, origin_context, through

pytestmark = pytest.mark.any_loop

MODULE = """
import asyncio
import sys
import time

class Talk:
    async def on_websocket_message(self, flow, message):
        side = "client" if message.from_client else "origin"
        if message.is_text and message.text == "drop":
            message.drop()
        elif message.is_text and message.text == "refuse":
            flow.refuse("not this word")
        elif message.is_text and message.text == "fail":
            raise RuntimeError("told to")
        elif message.is_text and message.text == "wait":
            await asyncio.sleep(5)
        elif message.is_text:
            message.text += f" by {side}"
        else:
            message.content = message.content.replace(b"a", b"b")

    async def on_end(self, flow):
        print("ended", flow.outcome, file=sys.stderr, flush=True)

class Other:
    async def on_websocket_message(self, flow, message):
        if message.is_text:
            message.text += "!"
"""


@pytest.fixture
def begin(start_policy):
    def run(keys='budget = "20s"', rule="", options=""):
        return start_policy(
            f'[filters.talk]\ncode = "talks:Talk"\n{keys}\n'
            f'[filters.other]\ncode = "talks:Other"\n{keys}\n'
            f'[[rules]]\naction = "allow"\n{HERE}tls = "intercept"\n'
            f'filters = ["talk", "other"]\n{rule}', config(
                options + 'upstream_idle_timeout = "100ms"\n'),
            modules={"talks": MODULE})
    return run


@pytest.fixture
def origin(make_origin):
    """Sends back each frame's content, without its mask."""
    def script(conn):
        conn.read_request()
        conn.send(UPGRADE + frame(Opcode.TEXT, b"welcome", mask=False))
        while True:
            got = read_frame(conn)
            conn.send(Frame(got.opcode, got.data, got.fin).serialize(mask=False))
            if got.opcode is Opcode.CLOSE:
                return
    return make_origin(script)


def read_frame(stream):
    first, second = stream.read_exact(2)
    size = second & 127
    if size >= 126:
        size = int.from_bytes(stream.read_exact(2 if size == 126 else 8))
    key = stream.read_exact(4) if second & 128 else b""
    data = stream.read_exact(size) if size else b""
    if key:
        data = bytes(byte ^ key[n & 3] for n, byte in enumerate(data))
    return Frame(Opcode(first & 15), data, bool(first & 128))


def upgraded(client, origin):
    client.send(build_request(
        "GET", origin.url("/chat"), "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Extensions: permessage-deflate"))
    assert client.read_head().status == 101
    return client


def hears(client, data, code=Opcode.TEXT):
    got = read_frame(client)
    assert (got.opcode, got.data) == (code, data)


def test_a_real_client_and_origin_agree_upon_no_compression_and_get_what_filters_made(
        begin):
    proxy = begin()
    with mirror(origin_context()) as port, through(proxy, port) as client:
        assert client.response.headers.get("Sec-WebSocket-Extensions") is None
        client.send("hello")
        assert client.recv() == "hello by client! by origin!"
        client.send("drop")
        client.send(b"banana" * 50_000)
        assert client.recv() == b"bbnbnb" * 50_000
        client.send(["in ", "three ", "fragments"])
        assert client.recv() == "in three fragments by client! by origin!"
        assert client.ping().wait(20)
    wait_until(lambda: "ended ok" in proxy.stderr(), "on_end")
    line = wait_until(lambda: proxy.log(method="GET"), "the line")[0]
    assert (line["status"], line["reason"], line["changed"]) == (101, "ok", "request")


def test_a_filter_closes_a_websocket_with_its_reason(begin):
    proxy = begin()
    with mirror(origin_context()) as port, through(proxy, port) as client:
        client.send("refuse")
        with pytest.raises(ConnectionClosed) as caught:
            client.recv()
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (
            1008, "talk: not this word")
    line = wait_until(lambda: proxy.log(reason="filter_refused"), "the line")[0]
    assert line["hook"] == "talk: not this word"


def test_a_message_that_came_with_the_101_is_filtered(begin, origin, dial):
    client = upgraded(dial(begin()), origin)
    assert origin.requests[0].get("Sec-WebSocket-Extensions") is None
    hears(client, b"welcome by origin!")
    client.send(frame(Opcode.TEXT, b"x"))
    hears(client, b"x by client! by origin!")


def test_control_frames_pass_between_fragments(begin, origin, dial):
    client = upgraded(dial(begin()), origin)
    hears(client, b"welcome by origin!")
    client.send(Frame(Opcode.TEXT, b"o", fin=False).serialize(mask=True),
                frame(Opcode.PING, b"p"))
    hears(client, b"p", Opcode.PING)
    client.send(Frame(Opcode.CONT, b"ne").serialize(mask=True))
    hears(client, b"one by client! by origin!")
    client.send(frame(Opcode.CLOSE, b"\x03\xe8"))
    hears(client, b"\x03\xe8", Opcode.CLOSE)
    assert client.at_eof()


@pytest.mark.parametrize("bad", [
    b"\xc1\x80abcd",                         # RSV1 without an extension
    b"\x83\x80abcd",                         # an opcode that nothing has
    b"\x81\x01x",                            # no mask
    b"\x80\x80abcd",                         # a continuation of nothing
    b"\x89\xfe\x00\x7eabcd",                 # a ping of 126 octets
    b"\x81\xff\xff" + b"\0" * 7 + b"abcd"])  # a length with its first bit
def test_bytes_that_are_no_frames_end_the_websocket(begin, origin, dial, bad):
    proxy = begin()
    client = upgraded(dial(proxy), origin)
    hears(client, b"welcome by origin!")
    client.send(bad)
    hears(client, b"\x03\xeabad_framing", Opcode.CLOSE)
    assert client.at_eof()
    client.close()
    assert wait_until(lambda: proxy.log(reason="bad_framing"), "the line")


@pytest.mark.parametrize(("on_fault", "reason"), [
    ("refuse", "filter_failed"), ("pass", "ok")])
def test_a_message_beyond_the_bound(begin, origin, dial, on_fault, reason):
    proxy = begin(f'on_fault = "{on_fault}"\nmax_body = "100KiB"\nbudget = "20s"')
    client = upgraded(dial(proxy), origin)
    hears(client, b"welcome by origin!")
    data = os.urandom(300_000)
    sender = threading.Thread(target=client.send, args=(
        Frame(Opcode.BINARY, data[:90_000], fin=False).serialize(mask=True),
        Frame(Opcode.CONT, data[90_000:]).serialize(mask=True),
        frame(Opcode.TEXT, b"x"), frame(Opcode.CLOSE, b"")))
    sender.start()
    got = read_frame(client)
    if on_fault == "refuse":
        assert (got.opcode, got.data) == (Opcode.CLOSE, b"\x03\xf3filter_failed")
    else:
        whole = got.data
        while not got.fin:
            got = read_frame(client)
            whole += got.data
        assert whole == data
        hears(client, b"x by client! by origin!")
        hears(client, b"", Opcode.CLOSE)
    sender.join()
    client.read_rest()
    client.close()
    assert wait_until(lambda: proxy.log(reason=reason), "the line")


def test_a_refusal_ends_though_the_filter_left_bytes_untaken(begin, origin, dial):
    """As many as a side holds: nothing was read any more, not even the end of the
    stream, and the exchange stayed until half_closed_timeout."""
    proxy = begin('on_fault = "refuse"\nbudget = "1s"')
    client = upgraded(dial(proxy), origin)
    hears(client, b"welcome by origin!")
    sender = threading.Thread(target=client.send, args=(
        frame(Opcode.TEXT, b"wait"), frame(Opcode.BINARY, bytes(300_000))))
    sender.start()
    hears(client, b"\x03\xf3filter_timeout", Opcode.CLOSE)
    sender.join()
    client.read_rest()
    client.close()
    assert wait_until(lambda: proxy.log(reason="filter_timeout"), "the line")


@pytest.mark.parametrize("on_fault", ["refuse", "pass"])
@pytest.mark.parametrize(("word", "reason"), [
    (b"fail", "filter_failed"), (b"wait", "filter_timeout")])
def test_a_fault_closes_the_websocket_or_lets_the_message_pass(
        begin, origin, dial, on_fault, word, reason):
    proxy = begin(f'on_fault = "{on_fault}"\nbudget = "200ms"')
    client = upgraded(dial(proxy), origin)
    hears(client, b"welcome by origin!")
    client.send(frame(Opcode.TEXT, word))
    if on_fault == "pass":
        hears(client, word + b"! by origin!")
        return
    hears(client, b"\x03\xf3" + reason.encode(), Opcode.CLOSE)
    client.close()
    assert wait_until(lambda: proxy.log(reason=reason), "the line")


def test_a_slow_filter_holds_up_its_own_direction_alone(begin, make_origin, dial):
    proxy = begin()
    talking, waiting = threading.Event(), threading.Event()

    def script(conn):
        conn.read_request()
        conn.send(UPGRADE)
        talking.wait(20)
        conn.send(frame(Opcode.TEXT, b"meanwhile", mask=False))
        waiting.wait(20)
        echo(conn)

    origin = make_origin(script)
    client = upgraded(dial(proxy), origin)
    client.send(frame(Opcode.TEXT, b"wait"))
    other = upgraded(dial(proxy), origin)
    begun = time.monotonic()
    talking.set()
    hears(client, b"meanwhile by origin!")
    hears(other, b"meanwhile by origin!")
    assert time.monotonic() - begun < 5, "as long as the filter waits"
    waiting.set()


def test_a_client_that_reads_nothing_stops_its_origin(begin, make_origin, dial):
    """The proxy holds 128 KiB of each direction at most; TCP holds the sender back."""
    stopped, sent, proxy = threading.Event(), [], begin()
    piece = frame(Opcode.BINARY, b"x" * 60_000, mask=False)

    def script(conn):
        conn.read_request()
        conn.send(UPGRADE)
        conn.sock.settimeout(2)
        with contextlib.suppress(TimeoutError):
            while len(sent) < 1000:
                conn.send(piece)
                sent.append(len(piece))
        stopped.set()
        conn.stall()

    client = upgraded(dial(proxy), make_origin(script))
    assert stopped.wait(60)
    assert len(sent) < 1000, "60 MB are more than all buffers of the kernel"
    for _ in range(len(sent)):
        hears(client, b"x" * 60_000, Opcode.BINARY)


def test_a_conversation_is_recorded_as_its_origin_spoke_and_replayed_through_filters(
        begin, directory):
    folder = directory("sessions")
    proxy = begin(rule='recording = "record"\n',
                  options=f'recording_directory = "{folder}"\n')
    with mirror(origin_context()) as port:
        def talk():
            with through(proxy, port) as client:
                client.send("hello")
                return client.recv()
        assert talk() == "hello by client! by origin!"
        wait_until(lambda: recorded(folder) == 1, proxy.stderr)
        write_state(folder, State("replay"))
        wait_until(lambda: "mode replay, session default, 1" in proxy.stderr(), "mode")
        assert talk() == "hello by client! by origin!"
    assert wait_until(lambda: proxy.log(reason="replayed"), "the line")
