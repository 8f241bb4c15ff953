"""The wire room against its slow, obvious twin: same verdict, fields and body."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cutthrough.wire.target import read_authority
from tests.doors.wire import read_request, read_response
from tests.wire import twin
from tests.wire.against import (
    NUMBERS,
    same_body,
    same_chunks,
    same_head,
    same_reply_body,
    same_target,
)
from tests.wire.replay import parse_every_way
from tests.wire.strategies import (
    AUTHORITIES,
    CHUNKED,
    MESSAGES,
    REPLIES,
    REQUESTS,
    RESPONSES,
    spoiled,
)

LENGTH = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


@given(spoiled(REQUESTS) | spoiled(MESSAGES))
@settings(max_examples=1500, deadline=None)
@example(LENGTH % (2**63 - 1))
@example(LENGTH % 2**63)
def test_a_request_is_what_its_twin_reads(data: bytes) -> None:
    # R9, R10, R16: the head, its destination and the length of its body.
    theirs = twin.read_request(data)
    if same_head(parse_every_way(read_request, data), theirs):
        same_body(data, theirs)
        same_target(data, theirs)


@given(spoiled(RESPONSES) | spoiled(REPLIES), st.sampled_from(sorted(NUMBERS)))
@settings(max_examples=1500, deadline=None)
def test_a_response_is_what_its_twin_reads(data: bytes, method: bytes) -> None:
    # R9, R17, R18.
    theirs = twin.read_response(data)
    if same_head(parse_every_way(read_response, data), theirs):
        same_reply_body(data, theirs, method)


@given(spoiled(REQUESTS), spoiled(RESPONSES), st.integers(1, 60), st.integers(1, 120),
       st.integers(0, 3))
@settings(max_examples=500, deadline=None)
@example(b"\r\n", b"", 1, 1, 0)
@example(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200\r\n\r\n", 14, 16, 0)
def test_limits_refuse_what_their_twin_refuses(
    request: bytes, response: bytes, line_bytes: int, head_bytes: int, n_fields: int
) -> None:
    limits = {"line_bytes": line_bytes, "head_bytes": head_bytes, "n_fields": n_fields}
    same_head(read_request(request, **limits), twin.read_request(request, **limits))
    same_head(read_response(response, **limits), twin.read_response(response, **limits))


@given(AUTHORITIES, st.sampled_from([0, 80]))
@settings(max_examples=1000, deadline=None)
def test_an_authority_is_what_its_twin_reads(text: bytes, port: int) -> None:
    # R16, R25: and with it policy, DNS and the Host field that is sent on.
    ours, theirs = read_authority(text, port), twin.read_authority(text, port)
    if theirs is None:
        assert ours == "bad_target"
    else:
        assert (ours["host"], ours["kind"], ours["port"]) == theirs


@given(spoiled(CHUNKED))
@settings(max_examples=1500, deadline=None)
def test_a_chunked_body_is_what_its_twin_reads(data: bytes) -> None:
    # R11, R18.
    same_chunks(data)


@pytest.mark.parametrize("body", [
    b"1;" + b"x" * 4095 + b"\r\na\r\n0\r\n\r\n", b"1;" + b"x" * 4096,
    b"0\r\nA:" + b"x" * 8187 + b"\r\n\r\n", b"0\r\nA:" + b"x" * 8188 + b"\r\n\r\n",
    b"0\r\nA:" + b"x" * 8190, b"0\r\nA:" + b"x" * 8191,
    b"1;%b\r\nx\r\n" % (b"y" * 4078) * 4 + b"0;" + b"y" * 157 + b"\r\n\r\n",
    b"1;%b\r\nx\r\n" % (b"y" * 4078) * 4 + b"0;" + b"y" * 158 + b"\r\n\r\n",
    b"0" * 15 + b"\r\n\r\n", b"0" * 16])
def test_the_limits_of_chunks_are_those_of_the_twin(body: bytes) -> None:
    same_chunks(body)


@pytest.mark.parametrize("name", sorted(twin.NOT_IN_TRAILERS))
def test_a_trailer_that_the_twin_refuses_is_refused(name: bytes) -> None:
    for spelling in (name, name.upper(), name[:-1], b"x" + name):
        same_chunks(b"0\r\n" + spelling + b": a\r\n\r\n")
