"""Which exchanges are traced, by the field traceparent and by the ratio."""

import pytest

from cutthrough.storage.traced import find_trace, sample
from tests.support.traces import INVALID, SAMPLED, SPAN, TRACE, VALID, head


@pytest.mark.parametrize("value, flag", list(zip(
    VALID, (True, False, True, True), strict=True)))
def test_a_valid_field_names_trace_span_and_flag(value, flag):
    assert find_trace(head(value)) == (TRACE, SPAN, flag)


@pytest.mark.parametrize("value", INVALID)
def test_an_invalid_field_is_none(value):
    assert find_trace(head(value)) is None


def test_of_several_fields_none_is_valid():
    assert find_trace(head(SAMPLED, SAMPLED)) is None


def test_a_share_of_those_without_a_field_is_traced():
    traced = sum(sample(head(), 0.25) is not None for _ in range(4000))
    assert 850 < traced < 1150              # six deviations
    assert all(sample(head(), 1.0) for _ in range(100))
    assert not any(sample(head(), 0.0) for _ in range(100))


def test_a_field_behind_our_via_is_a_trace_that_we_have_begun():
    begun = head("00-1")[:-2] + f"traceparent: {SAMPLED}\r\n\r\n"
    assert sample(begun, 0) == (bytes.fromhex(TRACE), bytes.fromhex(SPAN), b"")
    numbers = sample(head(SAMPLED), 0)
    assert numbers is not None
    assert numbers[0].hex() == TRACE and numbers[2].hex() == SPAN != numbers[1].hex()
