"""Streams of events without secrets, whatever their lines are (R79)."""

import time

import pytest

from cutthrough.exchange.redaction.parts import MOST_LINES
from cutthrough.exchange.redaction.redactor import Unreadable
from tests.support.memory import peak_of
from tests.support.redaction import redactor

EVENTS = "text/event-stream; charset=utf-8"
MIB = 1 << 20


def kept(text: bytes, **options: tuple[str, ...]) -> bytes:
    return redactor(**options).content(text, EVENTS)


@pytest.mark.parametrize("text", [
    b'{"error": 1, "token": "s3cret"}', b'{\n "error": 1,\n\n "token": "s3cret"\n}\n',
    b'\xef\xbb\xbf{"token": "s3cret"}', b'\n\n[1, {"token": "s3cret"}]',
    b'{\r\n "token": "s3cret", }\r\n', b'{\n "token": "s3cret"',
    b'data: {"a": 1}\n\n{\n "token": "s3cret"\n}', b'cb({\n "token": "s3cret"\n});',
    b'data: 1\n{\n "a": [],\n\n "token": "s3cret"\n}\n\ndata: 2\n\n',
    b'id: {"token": "s3cret"}\ndata: x\n\n', b'event: {"token": "s3cret"}\n\n',
    b': {"token": "s3cret"}\n\n', b':{\n: "token": "s3cret"\n:}\n\n',
    b'id:[{"token": "s3cret"}]\ndata: {"a": 1}\n\n', b'retry: {"token": "s3cret"',
    b'datum: {"token": "s3cret"}\n', b'data: {"token":\nid: 1\ndata: "s3cret"}\n\n',
    b'data: {"a": "", "token": "s3cret"', b"data: [s3cret, {'token': s3cret\n\n",
])
def test_documents_in_other_lines_than_data_are_without_secrets(text: bytes) -> None:
    """R79. An origin may say of JSON that it is a stream of events."""
    assert b"s3cret" not in kept(text, json=("$..token",))


@pytest.mark.parametrize("text", [
    b"id: s3cret\n: key s3cret\ndata: x\n\n", b"s3cret", b"data: 1\n\nretry: s3cret",
    b"id: caf\xe9 s3cret\n\n", b"data: x\nevent: s3cret\n\n", b"s3cret: x\r\n\r\n"])
def test_expressions_search_all_lines(text: bytes) -> None:
    """R79."""
    made = kept(text, body=("s3cre[t]",))
    assert made == text.replace(b"s3cret", b"[redacted]")


def test_other_lines_that_cannot_be_searched_go_line_by_line() -> None:
    text = b'id: 1\r\n\r\nid: {"a"\r\nevent: b\r\ndata: x\r\n\r\n'
    assert kept(text, json=("a",)) == (
        b"[redacted]\r\n\r\n[redacted]\r\n[redacted]\r\ndata: x\r\n\r\n")


@pytest.mark.parametrize("event", [
    b"&".join([b"token=s3cret"] * 4097), b"[s3cret: token=s3cret",
    b"{token: s3cret}", b"token=s3cret [" + b"token=s3cret&" * 4097])
@pytest.mark.parametrize("before", [b"data: ", b"id: ", b""])
def test_an_event_that_cannot_be_searched_goes_as_a_whole(
        event: bytes, before: bytes) -> None:
    """R79. One of 4097 values was kept with all of them."""
    text = b"data: 1\n\n" + before + event + b"\n\ndata: 2\n\n"
    made = kept(text, query=("token",), json=("$..token",))
    assert b"s3cret" not in made
    assert made.startswith(b"data: 1\n\n") and made.endswith(b"\n\ndata: 2\n\n")


@pytest.mark.parametrize("text", [
    b"event: a\nid: 7\nretry: 9\n: [x] y\ndata: [DONE]\n\n", b"\r\r\rdata\r\r",
    b"", b"\xef\xbb\xbfdata: 1\n\n", b"data: a\ndata:  b\nid\n\n\ndata",
    b"data:\ndata:\n\n"])
def test_what_has_no_secret_stays(text: bytes) -> None:
    assert kept(text, json=("$..token",), query=("token",), body=("s3cret",)) == text


def test_changed_data_stands_behind_the_other_lines_of_its_event() -> None:
    text = b'\xef\xbb\xbfdata: {"a":\r\nid: 1\r\ndata: 2}\r\n: b\r\n\r\ndata: 3\r\n\r\n'
    assert kept(text, json=("a",)) == (
        b'\xef\xbb\xbfid: 1\r\ndata: {"a":\r\ndata: "[redacted]"}\r\n: b\r\n\r\n'
        b"data: 3\r\n\r\n")


@pytest.mark.parametrize("piece", [
    b"\n", b"data\n", b"a\n", b"data: a\na\n\n", b"data: ab\n", b"[\n", b"id: {\n",
    b"data\n[\n", b"data: [:\n\n"])
def test_a_stream_of_any_lines_takes_little_memory_and_time(piece: bytes) -> None:
    """R63."""
    made = redactor(query=("token",), json=("$..token",), body=("s3cret",))
    made.content(b"data: 1\n\nid: 1\n\n", EVENTS)
    text = piece * min(MIB // 4 // len(piece), MOST_LINES // piece.count(b"\n"))
    begun = time.thread_time()
    made.content(text, EVENTS)
    assert time.thread_time() - begun < 3
    assert peak_of(lambda: made.content(text, EVENTS)) < 4 * MIB


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_of_too_many_lines_is_not_kept(line_end: bytes) -> None:
    """R63, R99. 4 MiB of empty events, 8 KB in gzip, took 1 to 2.5 s of the writer."""
    most = b"data" + line_end * MOST_LINES
    begin = time.process_time()
    assert kept(most, json=("$..token",), query=("token",)) == most
    assert time.process_time() - begin < 4
    with pytest.raises(Unreadable):
        kept(most + line_end, query=("token",))
    assert kept(most + line_end) == most + line_end
