"""A tunnel's protocol by its first bytes, of the client or of the origin."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.wire.openings import PROTOCOLS
from tests.doors.wire_hello import (
    read_client_opening,
    read_inner_opening,
    read_origin_opening,
)
from tests.wire.first_bytes import CLIENTS, HELLO
from tests.wire.replay import Parser, parse_every_way

ORIGINS = {
    b"SSH-2.0-dropbear\r\n": "ssh", b"220 mail.example ESMTP Postfix\r\n": "smtp",
    b"220 mail.example\n": "smtp", b"220-mail.example ESMTP\r\n220 x\r\n": "smtp",
    b"220 (vsFTPd 3.0.3)\r\n": "ftp", b"220 ProFTPD Server\r\n": "ftp",
    b"220 " + b"x" * 508: "smtp", b"220 " + b"x" * 505 + b"FTP": "ftp",
    b"* OK [CAPABILITY IMAP4rev1] ready\r\n": "imap", b"* BYE\r\n": "imap",
    b"+OK POP3 ready\r\n": "pop3", b"RFB 003.008\n": "vnc",
    b"J\0\0\0\x0a8.0.36\0": "mysql", b"HTTP/1.1 408 Request Timeout\r\n": "http",
    b"\x15\x03\x01\0\2\2\x28": "unknown", b"hello\r\n": "unknown",
    b"221 bye": "unknown"}
# Bytes are HTTP if an origin might read them as a request, well formed or not
INSIDE = {
    b"GET / HTTP/1.1\r\n": "http", b"GET ": "http", b"\r\n GET /": "http",
    b"REPORT / HTTP/1.1\r\n": "http", b"get / http/1.1\r\n": "http",
    b"EHLO / HTTP/1.1\n": "http", b"SSH-2.0 / HTTP/1.1\n": "http",
    b"GETS\r/\rHTTP/1.1\n": "http", b"X \0 HTTP/1.0\n": "http",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "http",
    b"EHLO relay.example\r\n": "smtp", b"SSH-2.0-OpenSSH_9.2p1\r\n": "ssh",
    b"\x0b\x1c GET /": "http", b"\x0c\xa0GET /": "http", b"GET\x0b/": "http",
    b"POST\r\n": "http", b"P@ST / HTTP/1.1": "http", b"POST: / HTTP/1.1": "http",
    b"PING\r\n": "unknown", b"*1\r\n$4\r\nPING\r\n": "unknown",
    b"a1 LOGIN x y\r\n": "unknown", b"NICK http/\n": "http", b"NICK http\n": "unknown"}
# An opening without text is decided by the bytes that have come
AT_ONCE = {
    b"AMQP\0\0\x09\1": "unknown", b"\x10\x0c\0\4MQTT": "unknown",
    b"\0\x1d\0\0": "unknown", b"<?xml version='1.0'?>": "xmpp", b"<a>": "unknown",
    b"{": "unknown", HELLO: "unknown", b"\0GET / HTTP/1.1\r\n": "http",
    b"GET\0 / HTTP/1.1": "http", b"\xd6 / http/1.1": "http", b"/x HTTP/1.1": "http",
    b'"GET" / HTTP/1.1': "http", b"\0\0\n HTTP/1.1": "unknown", b"<": None}


READERS = [(CLIENTS, read_client_opening), (ORIGINS, read_origin_opening),
           (INSIDE, read_inner_opening)]


@pytest.mark.parametrize(("read", "data", "word"), [
    (read, data, word) for table, read in READERS for data, word in table.items()])
def test_the_first_bytes_are_known(read: Parser, data: bytes, word: str) -> None:
    shown = next(n for n in range(len(data) + 1) if read(data[:n]))
    assert parse_every_way(read, data[:shown]) == word


def test_every_word_is_one_that_a_parser_returns() -> None:
    assert {*CLIENTS.values(), *ORIGINS.values(), "silent", ""} == {*PROTOCOLS}


@given(st.binary(max_size=40), st.sampled_from([read for _, read in READERS]))
def test_more_bytes_do_not_change_a_decision(data: bytes, read: Parser) -> None:
    answers = [read(data[:n]) for n in range(len(data) + 1)]
    first = next((n for n, answer in enumerate(answers) if answer), len(answers))
    assert len({*answers[first:]}) <= 1


@pytest.mark.parametrize(("table", "read"), READERS)
def test_two_openings_in_one_change_no_decision(
        table: dict[bytes, str], read: Parser) -> None:
    for one, other in permutations(table, 2):
        for n in range(1, 6):
            test_more_bytes_do_not_change_a_decision.hypothesis.inner_test(
                one[:n] + other, read)


def test_a_line_without_an_end_is_http_at_last() -> None:
    for start in (b"X ", b"X", b" "):
        data = start.ljust(4096, start[-1:])
        assert read_inner_opening(data[:-1]) is None
        assert read_inner_opening(data) == "http"


@pytest.mark.parametrize(("data", "word"), AT_ONCE.items())
def test_bytes_that_are_no_text_wait_for_no_line(data: bytes, word: str | None) -> None:
    """Their protocol may have none."""
    assert read_inner_opening(data) == word
