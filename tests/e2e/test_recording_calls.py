"""Calls of gRPC, recorded and replayed in step when their sides talk in turn: grpcio on
both sides, and no call reaches the server in a replay."""

import queue
import re
import threading
import time

import pytest
from msgspec import structs

from cutthrough.recording.sessions.directory import Sessions
from tests.support.grpc_service import S, Talk, error_of, grpc, talk
from tests.support.grpc_service import channel as channel
from tests.support.grpc_service import proxy as proxy
from tests.support.grpc_service import replay as replay
from tests.support.grpc_service import server as server
from tests.support.recordings import folder as folder
from tests.support.recordings import recorded
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop


SAID = ([[b"ONE", b"eno"], [b"TWO", b"owt"]],
        ([], grpc.StatusCode.OK, {"x-seen": "a trailer"}))


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


def test_an_answer_that_ends_amid_a_message_of_its_request(channel, replay, proxy):
    """The server takes the first message alone, so its window stops the client within
    the second one. The half of it was recorded, and no request matched again."""
    def first(*messages):
        return channel.stream_unary("/t.T/First")(iter(messages), timeout=S)
    long = bytes(3_000_000)
    assert first(b"good", long) == b"fine"
    replay(1)
    for messages in ((b"good", long), (b"good",), (b"good", b"short")):
        assert first(*messages) == b"fine"
    assert {line["reason"] for line in proxy.wait_log(3)} == {"replayed"}


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
