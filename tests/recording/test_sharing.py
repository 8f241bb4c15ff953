"""The owner of a recording, and the requests that it may answer in `cache` (R75)."""

import pytest
from msgspec import structs

from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match, Miss
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.sharing import (
    ANONYMOUS,
    NOBODYS,
    Reader,
    mark_of,
    may_read,
)
from tests.recording.answers import recording, request

ANN, EVE, NOBODY = (Reader(one, False) for one in ("ann", "eve", ANONYMOUS))
SHARING = Reader("eve", True)


def of(owner, number=1, sent=(), got=(), path="/a"):
    one = recording(number, request(path, fields=sent), owner=owner)
    return structs.replace(one, response=structs.replace(one.response, fields=got))


def readers(one):
    mark = mark_of(one)
    return [name for name, reader in (
        ("ann", ANN), ("eve", EVE), ("nobody", NOBODY), ("shared", SHARING))
        if may_read(mark, reader)]


def test_a_recording_answers_its_user_and_others_if_the_rule_shares():
    assert readers(of("ann")) == ["ann", "shared"]
    assert readers(of(ANONYMOUS)) == ["nobody", "shared"]
    assert readers(of("")) == ["ann", "eve", "nobody", "shared"]


@pytest.mark.parametrize(("sent", "got"), [
    ((("Authorization", "[redacted:0123456789abcdef]"),), ()),
    ((("COOKIE", "a=b"),), ()), ((), (("set-cookie", "a=[redacted]"),)),
    ((), (("Cache-Control", "max-age=9, Private"),)),
    ((), (("Cache-Control", 'private="x-a"'),)),
    ((), (("Cache-Control", "public"), ("cache-control", "no-store"))),
])
def test_what_may_be_meant_for_one_user_is_never_shared(sent, got):
    assert readers(of("ann", sent=sent, got=got)) == ["ann"]
    assert readers(of(ANONYMOUS, sent=sent, got=got)) == []
    assert len(readers(of("", sent=sent, got=got))) == 4, "imported"


@pytest.mark.parametrize(("after", "of_ann", "of_eve"), [
    ("repeat", [4, 4, 4], [4, 4, 4]), ("miss", [1, 3, 4, 0], [2, 4, 0]),
    ("cycle", [1, 3, 4, 1], [2, 4, 2])])
def test_a_cache_has_the_newest_recording_unless_its_route_counts_them(
        after, of_ann, of_eve):
    matcher = Matcher([Route(key=Key(), after=after)])
    for number, owner in enumerate(["ann", "eve", "ann", ""], 1):
        matcher.add(of(owner, number))

    def take(reader, times):
        results = [matcher.match(request("/a"), reader=reader) for _ in range(times)]
        return [result.recording.number if isinstance(result, Match) else 0
                for result in results]

    assert take(ANN, len(of_ann)) == of_ann
    assert take(EVE, len(of_eve)) == of_eve
    assert take(None, 4) == [1, 2, 3, 4]
    matcher.remove(4)
    assert take(NOBODY, 1) == [0]
    assert isinstance(matcher.match(request("/a"), reader=NOBODY), Miss)


@pytest.mark.parametrize("reader", [None, ANN])
def test_a_miss_takes_no_place(reader):
    """In `cache`, each waited for a lock of all workers: 120 us in place of 40."""
    def hold(lane, numbers):
        raise AssertionError(f"{lane} was held")

    matcher = Matcher([Route(key=Key(), after="miss")], shared=hold)
    assert matcher.match(request("/a"), reader=reader).reason == "nothing is recorded"
    matcher.add(of("ann"))
    assert matcher.match(request("/b"), reader=reader).reason == "no recording matches"
    with pytest.raises(AssertionError):
        matcher.match(request("/a"), reader=reader)


def test_a_variant_answers_requests_with_the_same_fields():
    """R75. RFC 9111 section 4.1: a client that decodes nothing got gzip."""
    matcher = Matcher()
    gzip, plain = (("Accept-Encoding", "gzip"),), ()
    vary = (("Vary", "accept-encoding, X-Unsent"),)
    matcher.add(of("ann", 1, gzip, vary))

    def ask(fields, reader=ANN):
        result = matcher.match(request("/a", fields=fields), reader=reader)
        return result.recording.number if isinstance(result, Match) else 0

    assert [ask(gzip), ask(plain), ask((("accept-encoding", " gzip "),))] == [1, 0, 1]
    assert ask(plain, None) == 1, "of no cache"
    matcher.add(of("ann", 2, plain, vary))
    assert [ask(gzip), ask(plain), ask((*gzip, ("x-unsent", "")))] == [1, 2, 0]
    matcher.add(of("ann", 3, gzip, (("vary", "*"),)))
    assert ask(gzip) == 1
    matcher.add(of("", 4, (), vary))
    assert ask((("accept-encoding", "br"),)) == 4, "imported"
    matcher.remove(4)
    assert matcher.readable.has_variants
    assert matcher.readable.mark(1) == NOBODYS
    for number in (1, 2, 3):
        matcher.remove(number)
    assert not matcher.readable.has_variants


def test_calls_are_of_their_reader_too():
    matcher = Matcher()
    for number, owner in ((1, "ann"), (2, "eve")):
        matcher.add(of(owner, number))
    found, is_all = matcher.recordings_at(request("/a"), None, EVE)
    assert [one.number for one in found] == [2] and is_all
