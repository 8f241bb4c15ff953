"""The forms of a request's secret in its answer, and the search for them."""

from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.echoes import LEAST, Echoes, parts_of, spellings
from cutthrough.exchange.search import has_any


@given(st.text(min_size=LEAST, max_size=40))
def test_each_spelling_of_a_secret_has_its_part(secret):
    """So an answer without the part needs no further look."""
    (part,) = parts_of([secret])
    for text in spellings(secret):
        for charset in ("utf-8", "latin-1"):
            try:
                octets = text.encode(charset)
            except UnicodeError:
                continue
            assert part in octets
            if charset == "utf-8":
                assert has_any((part,), text)


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
