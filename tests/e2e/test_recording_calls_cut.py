"""Calls of gRPC that a side leaves before their end: recorded as cut, and replayed up
to the cut. grpcio on both sides."""

import pytest

from cutthrough.recording.sessions.directory import Sessions
from tests.support.certificates import client_context
from tests.support.grpc_service import S, Talk, error_of, grpc, talk
from tests.support.grpc_service import channel as channel
from tests.support.grpc_service import replay as replay
from tests.support.grpc_service import server as server
from tests.support.http2 import Peer
from tests.support.inside import config as inside
from tests.support.inside import enter
from tests.support.recordings import folder as folder
from tests.support.recordings import recorded
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop
LEFT_S = 1.0                                 # a deadline that passes


@pytest.fixture
def cuts():
    return "streams"


@pytest.fixture
def proxy(start, cuts):
    return start("record", 'tls = "intercept"', inside(f'recording_cut = "{cuts}"\n'))


def answers(folder):
    session = Sessions(folder).open("default")
    found = [one.response for one in session.recordings()]
    session.close()
    return found


def tick(channel, n, timeout=S):
    return channel.unary_stream("/t.T/Tick")(b"%d" % n, timeout=timeout)


def test_a_call_that_its_client_cancels_is_replayed_to_that_place(
        channel, replay, folder):
    """The replay waits for its client, as the origin did: a reset might overtake the
    messages before it."""
    def both():
        call = tick(channel, 3)
        heard = [next(call) for _ in range(3)]
        call.cancel()
        one = Talk(channel)
        heard += one.ask(b"one")
        one.say(b"two")
        heard += one.hear(2)
        one.call.cancel()
        return heard, error_of(lambda: list(call)), error_of(one.hear)
    live = both()
    assert live[0] == [b"0", b"1", b"2", b"ONE", b"eno", b"TWO", b"owt"]
    replay(2)
    assert all(one.is_cut and one.cut_by_client for one in answers(folder))
    for _ in range(3):
        assert both() == live


def heard_before(call):
    heard = []

    def hear():
        for one in call:
            heard.append(one)

    return error_of(hear)[0], heard


LATE = (grpc.StatusCode.DEADLINE_EXCEEDED, [b"0", b"1"])


def test_a_deadline_passes_in_the_replay_too(channel, replay, proxy):
    """At a deadline the server may be the first to end, and the call is whole then."""
    assert heard_before(tick(channel, 2, LEFT_S)) == LATE
    call = tick(channel, 2)
    assert [next(call), next(call)] == LATE[1]
    call.cancel()
    replay(2)
    for _ in range(3):
        assert heard_before(tick(channel, 2, LEFT_S)) == LATE
    assert [line["reason"] for line in proxy.wait_log(3)[1:]] == ["client_reset"] * 2


def test_a_call_goes_on_from_where_another_client_has_left_it(channel, replay):
    left = Talk(channel)
    assert left.ask(b"one") == [b"ONE", b"eno"]
    left.call.cancel()
    whole = talk(channel, b"one", b"two")
    replay(2)
    assert talk(channel, b"one", b"two") == whole
    other = Talk(channel)
    other.ask(b"one")
    other.say(b"three")
    code, told = error_of(other.hear)
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "message 2" in told


def test_a_client_that_is_gone_has_left_its_call(proxy, server, dial, folder):
    """Its connection is reset, amid a message of its own."""
    context = client_context()
    context.set_alpn_protocols(["h2"])
    client = enter(proxy, dial(proxy), server[0], context=context)
    peer = Peer(client.sock)
    stream = peer.get(f"https://a.example:{server[0]}/t.T/Talk", (
        "content-type", "application/grpc"), ("te", "trailers"), method="POST",
        ends=False)
    peer.send(stream, b"\0\0\0\0\x01a")
    while len(peer.answers[stream].body) < 12:
        assert peer.read()
    peer.send(stream, b"\0\0\0\0\x05amid")
    client.reset()
    wait_until(lambda: recorded(folder) == 1, "recorded")
    session = Sessions(folder).open("default")
    (one,) = session.recordings()
    session.close()
    assert one.request.body == b"\0\0\0\0\x01a"
    assert one.response.cut_by_client and one.response.body == (
        b"\0\0\0\0\x01A\0\0\0\0\x01a")


def cancelled(channel, service):
    """Two calls that get no answer: one has sent all, the other sends more. They are
    cancelled, because at a deadline the server might be the first to end."""
    before = service.called
    whole = channel.unary_unary("/t.T/Slow").future(b"x", timeout=S)
    one = Talk(channel, "/t.T/Wait")
    one.say(b"x")
    wait_until(lambda: service.called == before + 2, "they are there")
    for call in (whole, one.call):
        call.cancel()
    with pytest.raises(grpc.FutureCancelledError):
        whole.result()
    return error_of(one.hear)[0]


@pytest.mark.parametrize("cuts", ["streams", "none"])
def test_a_call_without_any_answer_is_not_recorded(
        channel, proxy, folder, cuts, server):
    """In `cache` no client would get an answer from then on."""
    cancelled(channel, server[1])
    if cuts == "none":
        call = tick(channel, 2)
        assert [next(call), next(call)] == LATE[1]
        call.cancel()
    wait_until(lambda: "is not recorded: it ended as client_reset" in proxy.stderr(),
               proxy.stderr)
    assert not recorded(folder)


@pytest.mark.parametrize("cuts", ["any"])
def test_any_call_without_an_answer_gets_none_again(
        channel, replay, folder, cuts, server):
    cancelled(channel, server[1])
    replay(2)
    assert [one.status for one in answers(folder)] == [0, 0]
    ask = channel.unary_unary("/t.T/Slow")
    assert error_of(lambda: ask(b"x", timeout=LEFT_S))[0] is (
        grpc.StatusCode.DEADLINE_EXCEEDED)
    one = Talk(channel, "/t.T/Wait", LEFT_S)
    one.say(b"x")
    assert error_of(one.hear)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    one = Talk(channel, "/t.T/Wait")
    one.say(b"y")
    assert error_of(one.hear)[0] is grpc.StatusCode.FAILED_PRECONDITION
