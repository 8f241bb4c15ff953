"""Expressions of users and files run in linear time, or are refused."""

import time

import pytest

from cutthrough.exchange.bounds import KeyMistake, TooMuch
from cutthrough.exchange.expressions import compile_expression

pytest.importorskip("re2")


@pytest.mark.parametrize("text", [
    "(", "[a", "(?=a)", "(a)\\1", "a" * 5000, "(a?){1000}b", "\\pL{300}",
    "((a{30}){30}){30}", "\ud800"])
def test_what_is_none_or_too_large_is_refused(text):
    """R66. `(a?){1000}b` took 40 s for 1 MiB, though in linear time."""
    with pytest.raises(KeyMistake):
        compile_expression(text)


@pytest.mark.parametrize("text", [
    "(a|a)*$", "(a+)+b", "(a*)*b", "(.*a){12}z", "(x+x+)+y", "[ab]*a[ab]{12}c",
    "(?:a?){50}b", "(.*)(.*)(.*)(.*)x", "^(a|ab|b)*c$", "a.*b|a"])
@pytest.mark.parametrize("subject", ["a" * (1 << 17), "ab" * (1 << 16)])
def test_every_search_is_bounded(text, subject):
    """R66. Python's `re` takes longer than the sun will shine."""
    expression = compile_expression(text)
    begun = time.thread_time()
    try:
        expression.search(subject)
        expression.fullmatch(subject)
    except TooMuch:
        pass
    assert time.thread_time() - begun < 10


def test_all_matches_are_not_found_if_each_reads_all_that_follows():
    """R66: the square of the text, with a linear search."""
    begun = time.thread_time()
    with pytest.raises(TooMuch):
        for _ in compile_expression("a[^b]*b|a").finditer("a" * (1 << 17)):
            pass
    assert time.thread_time() - begun < 20
    assert len([*compile_expression("a").finditer("a" * 20_000)]) == 20_000


def test_letters_match_in_either_case_if_that_is_wished():
    assert compile_expression("aé", ignore_case=True).search("AÉ")
    assert not compile_expression("aé").search("AÉ")
