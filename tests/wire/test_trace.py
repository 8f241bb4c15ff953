"""`traceparent` in a head: found by C as by the writer's Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.storage.traced import find_trace
from tests.doors.wire import trace_in, with_trace_of
from tests.support.traces import INVALID, SPAN, TRACE, VALID, head


@pytest.mark.parametrize("value", VALID)
@pytest.mark.parametrize("field", [
    "traceparent: {}", "TraceParent:{}", "traceparent: \t{} "])
def test_a_valid_value_is_found(field, value):
    text = f"GET / HTTP/1.1\r\nHost: a\r\n{field.format(value)}\r\nVia: 1.1 a\r\n\r\n"
    assert trace_in(text.encode()) == value.encode()
    assert with_trace_of(text.encode(), VALID[0].encode()) is None


@pytest.mark.parametrize("values", [(value,) for value in INVALID] + [VALID[:2], ()])
def test_without_a_valid_one_a_head_gets_another(values):
    text = head(*values).encode()
    assert trace_in(text) is None
    assert with_trace_of(text, VALID[0].encode()) == (
        text[:-2] + f"traceparent: {VALID[0]}\r\n\r\n".encode())


HEX = st.text("0123456789abcdefA", min_size=1, max_size=34)


@given(st.lists(st.builds(
    "{}-{}-{}-{}".format, st.sampled_from(["00", "01", "ff", "0"]),
    st.one_of(st.just(TRACE), HEX), st.one_of(st.just(SPAN), HEX),
    st.sampled_from(["01", "00", "01-x", "1"])), max_size=2))
def test_both_readers_agree(values):
    text = head(*values)
    assert (trace_in(text.encode()) is None) == (find_trace(text) is None)
