"""A tunnel's protocol by its first bytes, of the client or of the origin."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.wire.openings import PROTOCOLS
from tests.doors.wire_hello import read_client_opening, read_origin_opening
from tests.wire.replay import Parser, parse_every_way
from tests.wire.twin_hello import build_hello, named

HELLO = build_hello(named(b"example.com"))
CLIENTS = {
    b"SSH-2.0-OpenSSH_9.2p1\r\n": "ssh", b"GET / HTTP/1.1\r\n": "http",
    b"POST /x HTTP/1.1\r\n": "http", b"PUT /": "http", b"PATCH /": "http",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "http2", b"OPTIONS * HTTP/1.1": "http",
    b"EHLO relay.example\r\n": "smtp", b"HELO relay\r\n": "smtp",
    b"<?xml version='1.0'?><stream:stream ": "xmpp", b"<stream:stream to='x'": "xmpp",
    b"\x13BitTorrent protocol" + bytes(8): "bittorrent",
    b"\0\0\0\x08\x04\xd2\x16\x2f": "postgresql",
    b"\0\0\0\x29\0\3\0\0user\0": "postgresql",
    b"\3\0\0\x13\x0e\xe0\0\0\0\0\0\1\0\x08\0\3\0\0\0": "rdp",
    b"RFB 003.008\n": "vnc", HELLO: "tls", HELLO[:5] + b"\2" + HELLO[6:]: "unknown",
    b"get / http/1.1\r\n": "unknown", b"GETS": "unknown", b"\xff": "unknown",
    b"\x16\x03\x01\0\x05hello": "unknown", b"PROPOSE": "unknown"}
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


READERS = [(CLIENTS, read_client_opening), (ORIGINS, read_origin_opening)]


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
