"""The key `breakpoint` of a rule, and the fields that an operator gives back."""

import pytest

from cutthrough.exchange.redaction.redactor import Options, Redactor
from cutthrough.filters.breakpoints import merge
from cutthrough.filters.flow import Headers
from cutthrough.policy.source import PolicyError
from tests.support.policies import RULE, read

REDACTOR = Redactor(Options())


@pytest.mark.parametrize("value", ["request", "response", "both"])
def test_a_rule_says_what_is_held(value):
    assert read(RULE + f"breakpoint = '{value}'").rules[0].breakpoint == value
    assert read(RULE).rules[0].breakpoint == ""


@pytest.mark.parametrize("value", ["'body'", "''", "true"])
def test_nothing_else_can_be_held(value):
    with pytest.raises(PolicyError, match="breakpoint"):
        read(RULE + f"breakpoint = {value}")


def test_a_rule_that_denies_holds_nothing():
    with pytest.raises(PolicyError, match="has no effect in a rule that denies"):
        read("[[rules]]\naction = 'deny'\nbreakpoint = 'both'")


def test_hidden_values_return_in_their_order():
    old = Headers([("Set-Cookie", "a"), ("X", "1"), ("Set-Cookie", "b")])
    new = merge(old, [("X", "2"), ("set-cookie", "[redacted]"),
                      ("Set-Cookie", "mine"), ("Set-Cookie", "[redacted]")], REDACTOR)
    assert list(new) == [("X", "2"), ("set-cookie", "a"), ("Set-Cookie", "mine"),
                         ("Set-Cookie", "b")]


def test_framing_cannot_be_edited():
    old = Headers([("Content-Length", "3"), ("X", "1")])
    new = merge(old, [("Content-Length", "0"), ("Transfer-Encoding", "chunked")],
                REDACTOR)
    assert list(new) == [("Content-Length", "3")]


def test_a_value_that_came_may_stay_and_no_other_may_be_like_it():
    """An origin may send control characters: its answer could not be edited at all."""
    old = Headers.as_they_came([("X", "a\x01b"), ("Set-Cookie", "\x7f"), ("Y", "1")])
    new = merge(old, [("X", "a\x01b"), ("Set-Cookie", "[redacted]"), ("Y", "2")],
                REDACTOR)
    assert list(new) == [("X", "a\x01b"), ("Set-Cookie", "\x7f"), ("Y", "2")]
    for name, value in (("X", "a\x02b"), ("Y", "a\x01b"), ("X\r\nY", "1")):
        with pytest.raises(ValueError, match=r"."):
            merge(old, [(name, value)], REDACTOR)
