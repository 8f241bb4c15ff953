"""The key `capture` of a rule."""

import pytest

from cutthrough.policy.source import PolicyError
from tests.support.policies import RULE, read


@pytest.mark.parametrize("value", ["head", "full"])
def test_a_rule_says_what_is_captured(value):
    assert read(RULE + f"capture = '{value}'").rules[0].capture == value
    assert read(RULE + f"capture = '{value}'").captures
    assert not read(RULE).captures


@pytest.mark.parametrize("value", ["'body'", "''", "true"])
def test_nothing_else_can_be_captured(value):
    with pytest.raises(PolicyError, match="capture"):
        read(RULE + f"capture = {value}")
