"""Calls of gRPC, recorded and replayed in step when their sides talk in turn: grpcio on
both sides, and no call reaches the server in a replay."""

import queue
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import structs

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support.certificates import authority
from tests.support.inside import certificate
from tests.support.inside import config as inside
from tests.support.recordings import folder as folder
from tests.support.recordings import recorded
from tests.support.recordings import start as start
from tests.support.wait import wait_until

grpc = pytest.importorskip("grpc")
pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

S = 20


class Service(grpc.GenericRpcHandler):
    called = 0

    def service(self, call):
        self.called += 1
        return {
            "/t.T/Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "/t.T/Greet": grpc.stream_stream_rpc_method_handler(self.greet),
            "/t.T/Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "/t.T/First": grpc.stream_unary_rpc_method_handler(self.first),
            "/t.T/Count": grpc.unary_stream_rpc_method_handler(self.count),
            "/t.T/Echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "/t.T/Tick": grpc.unary_stream_rpc_method_handler(self.tick),
            "/t.T/Slow": grpc.unary_unary_rpc_method_handler(self.slow),
            "/t.T/Wait": grpc.stream_unary_rpc_method_handler(self.slow),
        }.get(call.method)

    def talk(self, requests: Iterator[bytes], context) -> Iterator[bytes]:
        context.set_trailing_metadata((("x-seen", "a trailer"),))
        for one in requests:
            yield from (one.upper(), one[::-1])

    def greet(self, requests: Iterator[bytes], context) -> Iterator[bytes]:
        yield b"welcome"
        yield from requests

    def sum(self, requests: Iterator[bytes], context) -> bytes:
        return str(sum(len(one) for one in requests)).encode()

    def first(self, requests: Iterator[bytes], context) -> bytes:
        if next(requests) == b"bad":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first is bad")
        return b"fine"

    def count(self, request: bytes, context) -> Iterator[bytes]:
        yield from (b"%d" % n for n in range(int(request)))

    def echo(self, request: bytes, context) -> bytes:
        return request

    def tick(self, request: bytes, context) -> Iterator[bytes]:
        yield from self.count(request, context)
        self.slow(request, context)

    def slow(self, request: bytes, context) -> bytes:
        left = threading.Event()
        if context.add_callback(left.set):   # the call has not ended yet
            left.wait(S)
        return b"too late"


@pytest.fixture
def server():
    service = Service()
    made = grpc.server(ThreadPoolExecutor(8), handlers=(service,))
    chain, key = certificate().pem
    port = made.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    made.start()
    yield port, service
    made.stop(0).wait(S)


@pytest.fixture
def proxy(start):
    return start("record", 'tls = "intercept"', inside())


@pytest.fixture
def channel(proxy, server):
    trust = authority().own.certificate.read_bytes()
    with grpc.secure_channel(
            f"a.example:{server[0]}", grpc.ssl_channel_credentials(trust), options=[
                ("grpc.http_proxy", proxy.url), ("grpc.enable_retries", 0),
                ("grpc.use_local_subchannel_pool", 1)]) as made:
        yield made


@pytest.fixture
def replay(proxy, folder, server):
    """From now on this mode holds; behind the last time the server is not called."""
    before = 0

    def run(n, mode="replay"):
        nonlocal before
        wait_until(lambda: recorded(folder) == n, proxy.stderr)
        write_state(folder, State(mode))
        wait_until(lambda: f"mode {mode}, session default, {n}" in proxy.stderr(),
                   "the mode")
        proxy.mark()
        before = server[1].called

    yield run
    assert server[1].called == before


class Talk:
    """A client that sends a message when it has the answer to the last one."""

    def __init__(self, channel, method="/t.T/Talk", timeout=S):
        self._queue = queue.SimpleQueue()
        self.call = channel.stream_stream(method)(
            iter(self._queue.get, None), timeout=timeout)

    def say(self, message):
        self._queue.put(message)

    def ask(self, message, n=2):
        self.say(message)
        return self.hear(n)

    def hear(self, n=1):
        return [next(self.call) for _ in range(n)]

    def end(self):
        self.say(None)
        return list(self.call), self.call.code(), dict(self.call.trailing_metadata())


def talk(channel, *messages):
    one = Talk(channel)
    return [one.ask(message) for message in messages], one.end()


SAID = ([[b"ONE", b"eno"], [b"TWO", b"owt"]],
        ([], grpc.StatusCode.OK, {"x-seen": "a trailer"}))


def error_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def test_sides_that_talk_in_turn_are_replayed_in_step(channel, replay, proxy, folder):
    """The client waits for an answer before it goes on: the body of its request was
    read to its end first, so the call ended by its deadline."""
    assert talk(channel, b"one", b"two") == SAID
    replay(1)
    for _ in range(2):
        assert talk(channel, b"one", b"two") == SAID
    assert {line["reason"] for line in proxy.wait_log(2)} == {"replayed"}
    with_positions(folder)


def test_a_call_that_an_operator_has_cut_ends_without_its_trailers(
        channel, replay, folder):
    talk(channel, b"one", b"two")
    replay(1)
    session = Sessions(folder).open("default")
    (one,) = session.recordings()
    answer = structs.replace(one.response, is_cut=True)
    session.edit(structs.replace(one, response=answer))
    session.close()

    def is_cut():
        call = Talk(channel)
        for message in (b"one", b"two"):
            call.ask(message)
        try:
            call.end()
        except grpc.RpcError:
            return True
        return False                         # it was read before the edit

    wait_until(is_cut, "the edit")


def with_positions(folder):
    session = Sessions(folder).open("default")
    (one,) = session.recordings()
    session.close()
    answer = one.response
    assert answer.head_asked == 8 and {each.asked for each in answer.chunks} == {8, 16}
    assert answer.end_asked == -1 and len(one.request.body) == 16


def test_calls_of_each_kind(channel, replay, proxy):
    def all_kinds():
        greeted = Talk(channel, "/t.T/Greet")
        heard = greeted.hear()
        heard += greeted.ask(b"x", 1)
        return [
            heard, greeted.end()[:2], talk(channel, b"a"),
            channel.stream_unary("/t.T/Sum")(iter([b"12", b"345"]), timeout=S),
            list(channel.unary_stream("/t.T/Count")(b"50", timeout=S)),
            channel.unary_unary("/t.T/Echo")(b"hello", timeout=S)]
    live = all_kinds()
    assert live[0] == [b"welcome", b"x"] and live[3] == b"5" and live[5] == b"hello"
    replay(5)
    assert all_kinds() == live
    assert {line["reason"] for line in proxy.wait_log(5)} == {"replayed"}


def reason_of(told):
    """Behind it is the request's number, and nothing of the recording (R74)."""
    return re.fullmatch(r"recording_missed: (.*) \(request \d+-\d+\)", told)[1]


def test_a_message_that_differs_ends_the_call_with_the_reason(channel, replay, proxy):
    talk(channel, b"one", b"two")
    replay(1)
    late = Talk(channel)
    assert late.ask(b"one") == [b"ONE", b"eno"]
    late.say(b"twO")
    code, told = error_of(late.hear)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert reason_of(told) == "message 2 differs from recording 1"
    early = Talk(channel)
    early.say(b"One")
    code, told = error_of(early.hear)
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "message 1" in told
    more = Talk(channel)
    for message in (b"one", b"two"):
        more.ask(message)
    more.say(b"three")
    assert reason_of(error_of(more.hear)[1]) == (
        "message 3 comes behind the last one of recording 1")
    other = Talk(channel, "/t.T/Other")      # which waits for an answer, in vain
    code, told = error_of(other.hear)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert reason_of(told) == "no recording matches"
    less = Talk(channel)
    less.ask(b"one")
    assert reason_of(error_of(less.end)[1]) == (
        "the request ends behind message 1 of 2 of recording 1")
    lines = proxy.wait_log(5)
    assert {line["reason"] for line in lines} == {"recording_missed"}
    assert lines[0]["hook"].startswith("message 2 differs from recording 1")


def test_calls_that_begin_in_the_same_way_are_told_apart_later(channel, replay):
    said = [talk(channel, *messages) for messages in (
        (b"a", b"b"), (b"a", b"c"), (b"a", b"c", b"d"), (b"z",))]
    replay(4)
    for messages, wanted in zip(((b"a", b"b"), (b"a", b"c"), (b"a", b"c", b"d"),
                                 (b"z",)), said, strict=True):
        assert talk(channel, *messages) == wanted
    assert "b'q'" not in str(error_of(lambda: talk(channel, b"a", b"q")))


def test_an_answer_that_ends_before_its_request(channel, replay, proxy):
    def both():
        ended = []
        for word in (b"good", b"bad"):
            messages = queue.SimpleQueue()
            messages.put(word)
            call = channel.stream_unary("/t.T/First").future(
                iter(messages.get, None), timeout=S)
            try:
                ended.append((call.result(), ""))
            except grpc.RpcError as error:
                ended.append((error.code(), error.details()))
            messages.put(None)
        return ended
    live = both()
    assert live == [(b"fine", ""),
                    (grpc.StatusCode.INVALID_ARGUMENT, "the first is bad")]
    replay(2)
    assert both() == live


def test_a_cache_asks_for_a_call_that_goes_on_in_another_way(channel, replay, folder):
    assert talk(channel, b"one", b"two") == SAID
    replay(1, "cache")
    assert talk(channel, b"one", b"two") == SAID
    assert recorded(folder) == 1
    live = talk(channel, b"three")           # differs before anything was answered
    assert live[0] == [[b"THREE", b"eerht"]]
    other = Talk(channel, "/t.T/Greet")
    assert other.hear() == [b"welcome"] and other.end()[0] == []
    replay(3)
    assert talk(channel, b"three") == live


def test_a_client_that_never_ends_is_bounded(channel, replay, proxy):
    talk(channel, b"one")
    replay(1)
    stop = threading.Event()

    def endless():
        while not stop.is_set():
            yield b"one"

    begun = time.monotonic()
    _, told = error_of(lambda: list(channel.stream_stream("/t.T/Talk")(
        endless(), timeout=S)))
    stop.set()
    assert "message 2 comes behind the last one" in told
    assert time.monotonic() - begun < S / 2
    assert "recording_body" in error_of(lambda: list(channel.stream_stream(
        "/t.T/Talk")(iter([b"x" * (5 << 20)]), timeout=S)))[1]
