"""The messages of a request come, and the recorded response is due step by step."""

import msgspec
import pytest

from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Chunk, Recording, Request, Response
from cutthrough.recording.play.calls import (
    ALL,
    NEVER,
    Answering,
    Call,
    CallDiffers,
    Frames,
    make_steps,
    refusal_trailers,
    split,
)


def message(data):
    return b"\0" + len(data).to_bytes(4) + data


def asked(*words):
    return Request(method="POST", scheme="https", host="a", port=443, path="/s/M",
                   body=b"".join(map(message, words)))


def made(number, *words, asks=(8,), **more):
    return Recording(number=number, request=asked(*words), response=Response(
        status=200, chunks=tuple(Chunk(at, b"%d" % at, place)
                                 for at, place in enumerate(asks)), **more))


def call(*recordings, routes=()):
    matcher = Matcher(routes)
    for one in recordings:
        matcher.add(one)
    return Call(matcher, asked(), 1000)


@pytest.mark.parametrize("body, found", [
    (b"", []), (message(b"a") + message(b""), [message(b"a"), message(b"")]),
    (message(b"a") + b"\0", None), (b"\0\xff\xff\xff\xff", None)])
def test_a_body_is_split_into_messages(body, found):
    assert split(body) == found


def test_messages_come_in_any_pieces():
    frames = Frames(1000)
    whole = message(b"ab") + message(b"c")
    found = [one for at in range(len(whole)) for one in frames.take(whole[at:at + 1])]
    assert found == [message(b"ab"), message(b"c")] and not frames.is_amid
    with pytest.raises(CallDiffers, match="longer than 1000 bytes"):
        list(frames.take(b"\0\0\0\xff\xff"))


def test_a_step_is_behind_so_many_whole_messages():
    """A head without a place is due with the first piece that has one."""
    one = made(1, b"one", b"two", asks=(8, 9, 16, ALL))
    assert [(step.messages, step.data) for step in make_steps(one)] == [
        (1, b""), (1, b"0"), (1, b"1"), (2, b"2"), (ALL, b"3"), (ALL, b"")]


def test_a_call_that_its_client_has_left_has_no_end():
    one = made(1, b"one", b"two", is_cut=True, cut_by_client=True)
    assert [step.messages for step in make_steps(one)] == [1, 1, NEVER]
    one = call(one)
    for word in (b"one", b"two"):
        one.take(message(word))
        assert one.look().number == 1
    one.take(message(b"three"))
    with pytest.raises(CallDiffers, match="message 3 comes behind the last one"):
        one.look()


def test_a_call_that_got_no_answer_is_followed_and_not_answered():
    silent = msgspec.structs.replace(made(1, b"one"), response=Response(
        status=0, is_cut=True, cut_by_client=True))
    one = call(silent, made(2, b"one", b"two", asks=(16,)))
    one.take(message(b"one"))
    assert one.look() is None and one.instead(b"").number == 2
    one.take(message(b"two"))
    assert one.look().number == 2


def test_a_call_is_found_among_any_number_of_its_path():
    """The oldest 2000 were looked at, for up to 120 ms, and no others."""
    matcher = Matcher()
    for number in range(1, 2502):
        matcher.add(made(number, b"%d" % number))
    for number in (2501, 1):
        one = Call(matcher, asked(), 1000)
        one.take(message(b"%d" % number))
        assert one.look().number == number
    matcher.remove(2501)
    one = Call(matcher, asked(), 1000)
    one.take(message(b"2501"))
    with pytest.raises(CallDiffers, match="no recording of the call has its message 1"):
        one.look()


def test_a_recording_is_due_when_its_messages_have_come():
    one = call(made(1, b"one", b"two"), made(2, b"one", b"six", asks=(16,)))
    one.take(message(b"one")[:4])
    assert one.look() is None and not one.is_silent
    one.take(message(b"one")[4:])
    assert one.look().number == 1
    one.take(message(b"six"))
    assert one.look().number == 2
    one.take(message(b"ten"))
    with pytest.raises(CallDiffers, match="message 3 comes behind the last one of"):
        one.look()


def test_another_recording_takes_the_place_if_it_has_begun_in_the_same_way():
    first, second = made(1, b"one", b"two"), made(2, b"one", b"six", asks=(8, 16))
    one = call(first, second)
    one.take(message(b"one"))
    one.follow(one.look())
    one.take(message(b"six"))
    one.look()
    assert not one.follows(first) and one.instead(b"0") is not None
    assert one.instead(b"x") is None
    assert [step.data for step in Answering(
        second, make_steps(second), True, 1).left] == [b"1", b""]
    one.end()
    with pytest.raises(CallDiffers, match="ends behind message 1 of 2 of recording 1"):
        ended = call(first)
        ended.take(message(b"one"))
        ended.look()
        ended.end()


def test_an_early_answer_does_not_depend_on_what_comes_later():
    """Its client was stopped somewhere behind the first message; another one sends more
    before it hears of the answer. A recording with the same messages comes first."""
    early = made(1, b"one", b"two", end_asked=8)
    whole = made(2, b"one", b"two", b"six", asks=(-1,))
    for recordings, number in (((early,), 1), ((early, whole), 2)):
        every = call(*recordings)
        every.take(asked(b"one", b"two", b"six").body)
        ended = every.look_early()
        assert (ended.number if ended else 2) == number
    other = call(early)
    other.take(asked(b"one", b"ten", b"six").body)
    assert other.look_early() is None
    amid = call(early)
    amid.take(asked(b"one", b"two", b"six").body[:-1])
    assert amid.look_early() is None and amid.look().number == 1
    equal = call(early)
    equal.take(early.request.body)
    assert equal.look_early() is None        # any request with this body finds it


def test_messages_are_compared_by_the_key_of_their_route():
    route = Route(key=Key(body="json", ignored_paths=("$.id",)))
    one = call(made(1, b'{"id":1,"a":2}', asks=(19,)), routes=(route,))
    one.take(message(b'{"a": 2, "id": 7}'))
    assert one.look().number == 1


def test_what_a_call_has_begun_with_finds_its_recording_among_many():
    """A bounded number of recordings is read. A silent client uses up none of them."""
    one = call(*[made(n + 1, b"%03d" % n) for n in range(300)])
    assert one.is_silent and one.look() is None
    one.take(message(b"299"))
    assert one.look().number == 300


def test_a_path_without_recordings_is_unknown():
    assert call().is_unknown and not call(made(1, b"a")).is_unknown
    route = Route(key=Key(path=False))
    assert not call(routes=(route,)).is_unknown


def test_the_reason_is_one_line_of_ascii():
    trailers = dict(refusal_trailers("50 % of \u2026\n"))
    assert trailers["grpc-message"] == (
        "recording_missed: 50 %25 of %E2%80%A6%0A")
