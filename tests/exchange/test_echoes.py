"""The forms of a request's secret in its answer, and the search for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.echoes import (
    LEAST,
    Echoes,
    Work,
    octets_of,
    parts_of,
    readings,
    spellings,
)
from cutthrough.exchange.search import Words, has_any

# Halves of characters, too: of JSON, and octets that are no UTF-8
ANY = st.text(st.characters() | st.characters(categories=["Cs"]), min_size=LEAST,
              max_size=40)


@given(ANY)
def test_each_spelling_of_a_secret_has_its_part(secret):
    """So an answer without the part needs no further look."""
    (part,) = parts_of([secret])
    for text in (text for one in readings(secret) for text in spellings(one)):
        assert part in octets_of(text)
        if text.isascii() or max(text) < "\u0100":
            assert part in text.encode("latin-1")
    for octets in Echoes([secret], lambda text: "x")._stand_ins:
        assert has_any((part,), octets)


@given(ANY, st.binary(max_size=9))
def test_each_secret_is_found_as_it_is(secret, around):
    echoes = Echoes([secret], lambda text: "\0")
    if echoes:
        octets = octets_of(secret)
        assert octets not in echoes.cut(around + octets + around)


LATIN = "p\udce4ssw\udcf6rd"


@pytest.mark.parametrize(("secret", "data"), [
    (LATIN, b"p\xe4ssw\xf6rd"), (LATIN, "pässwörd".encode()),
    (LATIN, b"p%E4ssw%F6rd"), (LATIN, b"p%e4ssw%f6rd"), (LATIN, rb"p\u00e4ssw\u00f6rd"),
    ("pä\udce4\ud800ss", b"p\xc3\xa4\xe4\xed\xa0\x80ss"),
    ("p\udc80ssword", "p€ssword".encode()), ("\ud800ssword", rb"\ud800ssword"),
    ("p\xc3\xa4ssword", rb"p\u00e4ssword"), ("p\xc3\xa4ssword", b"p%C3%A4ssword"),
    ("p\xe4ssword", b"p%E4ssword"), ("p\xe4ssword", "pässword".encode())])
def test_a_secret_is_found_in_the_charset_of_its_answer(secret, data):
    """Of a head it is in ISO-8859-1, and of a body perhaps no UTF-8."""
    assert Echoes([secret], lambda text: "x").cut(b"<%b>" % data) in (b"<x>", b"<%x>")


WORDS = st.lists(st.text("ab\0", max_size=5).map(str.encode), max_size=6)


@given(WORDS, st.text("ab\0", max_size=12).map(str.encode), st.integers(0, 12))
def test_words_are_found_at_the_first_place_and_the_longest_there(words, data, begin):
    wanted = next(((at, at + max(map(len, here))) for at in range(begin, len(data)) if (
        here := [one for one in words if one and data.startswith(one, at)])), (-1, -1))
    assert Words(words).find(data, begin, 1 << 40)[:2] == wanted
    assert Words(words).begun(data, 1 << 40)[0] == max(
        (size for one in words for size in range(1, len(one))
         if data.endswith(one[:size])), default=0)


def test_a_search_of_words_ends_at_its_bound():
    """R102."""
    words = Words([b"a" * 9 + b"b", b"c"])
    assert words.find(b"a" * 9000, 0, 1000)[0] == -2
    assert words.begun(b"a" * 9, 10)[0] == -1
    assert words.find(b"a" * 9000, 0, 1 << 40)[0] == -1


def test_what_is_left_of_a_short_secret_is_no_spelling():
    """`=` at its end is perhaps left out: of `a=====` each `a` was replaced."""
    assert Echoes(["a=====", "======"], lambda text: "x").cut(b"a=b=====") == (
        b"a=b=====")


def test_what_remains_beyond_the_bound_goes_as_a_whole():
    echoes, work = Echoes(["s3cr3t-"], lambda text: f"<{len(text)}>"), Work(50_000)
    assert echoes.cut(b"a s3cr3t-", work) == b"a <7>"
    assert [echoes.cut(b"a s3cr3t-", work) for _ in range(9)][-1] == b"<9>"


def test_no_part_is_a_part_of_another():
    assert parts_of(["Bearer s3cr3t-1", "s3cr3t-1", "a=s3cr3t-1; b"]) == (b"s3cr3t-1",)
    assert parts_of([]) == ()


@given(st.lists(st.binary(max_size=4), max_size=4).map(tuple), st.binary(max_size=20))
def test_parts_are_found_where_they_are(parts, data):
    assert has_any(parts, data) == any(one in data for one in parts)


def test_what_is_too_much_to_look_through_may_have_it():
    parts = tuple(b"secret%d" % number for number in range(1000))
    assert has_any(parts, bytes(300_000)) and not has_any(parts, bytes(1000))


def test_a_stand_in_is_no_secret():
    assert not Echoes(["[redacted]", "[redacted:0123456789abcdef]"], lambda text: "x")
    echoes = Echoes(["redacted"], lambda text: "[redacted]")
    assert echoes.cut(b"[redacted] redacted") == b"[redacted] [redacted]"
