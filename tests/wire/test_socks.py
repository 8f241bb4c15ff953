"""SOCKS 5, 4 and 4a: messages that are read, refused and written (R51)."""

import ipaddress
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.outcome import TABLE
from tests.doors.wire import (
    read_datagram_header,
    read_greeting,
    read_password,
    read_socks4_request,
    read_socks5_request,
    write_datagram_header,
    write_socks4_reply,
    write_socks5_reply,
)
from tests.wire import twin_socks
from tests.wire.replay import guarded, parse_every_way

BAD = "bad_socks"
BAD_TARGET = "bad_target"
TWINS: dict[Callable[..., Any], Callable[[bytes], Any]] = {
    read_greeting: twin_socks.read_greeting, read_password: twin_socks.read_password,
    read_socks5_request: twin_socks.read_socks5_request,
    read_socks4_request: twin_socks.read_socks4_request}


def read(parser: Callable[..., Any], data: bytes) -> Any:
    """The answer, the same however the bytes arrive; the twin agrees."""
    got = parse_every_way(parser, data)
    assert got == TWINS[parser](data)
    if isinstance(got, dict):
        assert got["length"] == len(data)
    return got


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def port_of(number: int) -> bytes:
    return struct.pack(">H", number)


def request(address: bytes, port: int = 443, command: int = 1) -> bytes:
    return bytes((5, command, 0)) + address + port_of(port)


def named(host: bytes) -> bytes:
    return bytes((3, len(host))) + host


def request4(address: str, rest: bytes = b"\0", port: int = 443,
             command: int = 1) -> bytes:
    return bytes((4, command)) + port_of(port) + packed(address) + rest


# Greeting and credentials


@pytest.mark.parametrize(("methods", "none", "password"), [
    (b"", False, False), (b"\0", True, False), (b"\2", False, True),
    (b"\1", False, False), (b"\0\1\2", True, True), (b"\2\2\0", True, True),
    (b"\xff\x80", False, False), (bytes(range(255)), True, True),
    (b"\1" * 254 + b"\2", False, True)])
def test_a_greeting_lists_its_methods(methods, none, password) -> None:
    got = read(read_greeting, bytes((5, len(methods))) + methods)
    assert (got["offers_none"], got["offers_password"]) == (none, password)


@pytest.mark.parametrize("octets", [
    b"\0", b"\4\1", b"\6\1\0", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\xff"])
def test_a_greeting_of_another_protocol_is_refused(octets: bytes) -> None:
    assert read(read_greeting, octets) == BAD
    assert read_greeting(octets[:1]) == BAD


@pytest.mark.parametrize("name", [b"", b"a", b"alice", b"a:b", b"\0\xff", b"n" * 255])
@pytest.mark.parametrize("secret", [b"", b"b", b":", b"\0", b"s" * 255])
def test_credentials_are_any_octets(name: bytes, secret: bytes) -> None:
    # RFC 1929 allows no empty ones; a client without a password sends one
    data = bytes((1, len(name))) + name + bytes((len(secret),)) + secret
    got = read(read_password, data)
    assert (got["name"], got["secret"]) == (name, secret)


@pytest.mark.parametrize("octets", [b"\0\1a\1b", b"\5\1a\1b", b"\2", b"\xff\1a\1b"])
def test_credentials_of_another_version_are_refused(octets: bytes) -> None:
    assert read(read_password, octets) == BAD


# Requests of version 5


@pytest.mark.parametrize("address", ["203.0.113.9", "0.0.0.0", "127.0.0.1", "::",
                                     "2001:db8::9", "::ffff:203.0.113.9"])
@pytest.mark.parametrize("command", [0, 1, 2, 3, 4, 255])
def test_an_address_is_read_whatever_the_command(address: str, command: int) -> None:
    octets = packed(address)
    kind = b"\1" if len(octets) == 4 else b"\4"
    got = read(read_socks5_request, request(kind + octets, 4711, command))
    assert (got["command"], got["port"]) == (command, 4711)
    assert ipaddress.ip_address(got["host"]) == ipaddress.ip_address(address)
    assert got["address"] == octets


@pytest.mark.parametrize(("text", "host"), [
    (b"a.test", "a.test"), (b"A.Test.", "a.test"), (b"x_y-z.test", "x_y-z.test"),
    (b"127.1", "127.0.0.1"), (b"0x7f.0.0.1", "127.0.0.1"), (b"2130706433", "127.0.0.1"),
    (b"::1", "::1"), (b"2001:DB8:0::9", "2001:db8::9"), (b"::ffff:7f00:1",
                                                        "::ffff:127.0.0.1"),
    (b".".join([b"a" * 63] * 3 + [b"b" * 61]), ".".join(["a" * 63] * 3 + ["b" * 61]))])
def test_two_spellings_of_a_host_are_one_destination(text: bytes, host: str) -> None:
    # As CONNECT reads them (R16): a rule for 127.0.0.1 is a rule for 127.1
    assert read(read_socks5_request, request(named(text)))["host"] == host
    assert read(read_socks4_request,
                request4("0.0.0.1", b"\0" + text + b"\0"))["host"] == host


@pytest.mark.parametrize("text", [
    b"", b".", b"a..b", b"a b", b"a\0b", b"a\r\nb", b"user@a.test", b"a.test/",
    b"[::1]", b"a.test:80", b"1.2.3.4:80", b"::1:", b":", b"1.2.3.256", b"1.2.3.4.5",
    b"0x", b"%00",
    b"\xc3\xbc.test", b"*", b"a" * 64, b"a." * 127 + b"a", b"a" * 255, b"fe80::1%eth0"])
def test_a_host_that_is_none_is_refused(text: bytes) -> None:
    assert read(read_socks5_request, request(named(text))) == BAD_TARGET
    if b"\0" not in text:
        assert read(read_socks4_request,
                    request4("0.0.0.1", b"\0" + text + b"\0")) == BAD_TARGET


@pytest.mark.parametrize("kind", [0, 2, 5, 0x7f, 0xff])
def test_a_type_of_address_that_the_rfc_has_not_is_refused(kind: int) -> None:
    assert read(read_socks5_request, request(bytes((kind, 1, 2, 3, 4)))) == BAD_TARGET


def test_port_0_is_only_for_an_association() -> None:
    for kind in (b"\1\1\2\3\4", named(b"a.test"), b"\4" + bytes(16)):
        for command in (1, 2, 9):
            assert read(read_socks5_request, request(kind, 0, command)) == BAD_TARGET
        assert read(read_socks5_request, request(kind, 0, 3))["port"] == 0
    assert read(read_socks4_request, request4("1.2.3.4", port=0)) == BAD_TARGET


@pytest.mark.parametrize("octets", [
    b"\4\1\0\1", b"\0", b"CONNECT a.test:443 HTTP/1.1\r\n\r\n", b"\5\1\1\1",
    b"\5\1\xff"])
def test_what_is_no_request_is_refused(octets: bytes) -> None:
    assert read(read_socks5_request, octets) == BAD


# Requests of version 4


@pytest.mark.parametrize("user", [b"", b"alice", b"\xff" * 255])
@pytest.mark.parametrize(("address", "host"), [
    ("203.0.113.9", "203.0.113.9"), ("0.0.0.0", "0.0.0.0"), ("0.0.1.0", "0.0.1.0"),
    ("1.0.0.0", "1.0.0.0"), ("0.1.0.1", "0.1.0.1")])
def test_version_4_names_an_address(user: bytes, address: str, host: str) -> None:
    got = read(read_socks4_request, request4(address, user + b"\0", 25, 2))
    assert (got["command"], got["host"], got["port"]) == (2, host, 25)


@pytest.mark.parametrize("last", [1, 9, 255])
def test_version_4a_names_a_host_behind_the_user_id(last: int) -> None:
    data = request4(f"0.0.0.{last}", b"me\0a.test\0")
    assert read(read_socks4_request, data)["host"] == "a.test"


def test_texts_of_version_4_are_bounded() -> None:
    for n, rest in ((255, None), (256, BAD), (600, BAD)):
        got = read(read_socks4_request, request4("1.2.3.4", b"u" * n + b"\0"))
        assert got == rest or rest is None
    for n in (256, 600):
        assert read(read_socks4_request, request4("0.0.0.1", b"\0" + b"a" * n)) == (
            BAD_TARGET)
    assert read_socks4_request(request4("1.2.3.4", b"u" * 255)) is None


@pytest.mark.parametrize("octets", [b"\5\1\0", b"\0", b"GET "])
def test_a_request_of_another_version_is_refused(octets: bytes) -> None:
    assert read(read_socks4_request, octets) == BAD


# Datagrams


def datagram(address: bytes, port: int = 53, fragment: int = 0) -> bytes:
    return bytes((0, 0, fragment)) + address + port_of(port)


@pytest.mark.parametrize(("address", "host"), [
    (b"\1" + packed("203.0.113.9"), "203.0.113.9"), (named(b"A.test"), "a.test"),
    (b"\4" + packed("2001:db8::9"), "2001:db8::9")])
@pytest.mark.parametrize("data", [b"", b"x", bytes(1400)])
def test_a_datagram_names_its_destination(address, host, data) -> None:
    head = datagram(address)
    got = read_datagram_header(guarded().place(head + data))
    assert got == twin_socks.read_datagram_header(head + data)
    assert (got["length"], got["host"], got["port"]) == (len(head), host, 53)
    for n in range(len(head)):
        assert read_datagram_header(guarded().place(head[:n])) is None


@pytest.mark.parametrize("octets", [
    b"", datagram(b"\1\1\2\3\4", fragment=1), datagram(b"\1\1\2\3\4", fragment=0x80),
    b"\0\1" + datagram(b"\1\1\2\3\4")[2:], b"\1" + datagram(b"\1\1\2\3\4")[1:],
    datagram(b"\1\1\2\3\4", 0), datagram(b"\2\1\2\3\4"), datagram(named(b"a..b")),
    datagram(named(b""))])
def test_fragments_and_what_names_no_destination_are_dropped(octets: bytes) -> None:
    assert read_datagram_header(guarded().place(octets + b"data")) is None


# Replies


@pytest.mark.parametrize("code", [0, 1, 7, 8, 255])
@pytest.mark.parametrize("address", ["", "203.0.113.9", "2001:db8::9"])
def test_a_reply_names_the_address_or_zeros(code: int, address: str) -> None:
    octets = packed(address) if address else b""
    port = 4711 if address else 0
    kind = b"\4" if len(octets) == 16 else b"\1"
    assert write_socks5_reply(code, octets, port) == (
        bytes((5, code, 0)) + kind + (octets or bytes(4)) + port_of(port))


def test_a_reply_of_version_4_grants_or_refuses() -> None:
    assert write_socks4_reply(True) == b"\0\x5a" + bytes(6)
    assert write_socks4_reply(False) == b"\0\x5b" + bytes(6)


@pytest.mark.parametrize("address", ["203.0.113.9", "2001:db8::9"])
def test_a_datagrams_header_is_read_again(address: str) -> None:
    head = write_datagram_header(packed(address), 53)
    got = read_datagram_header(head + b"data")
    assert got == {"length": len(head), "host": address, "address": packed(address),
                   "port": 53}


def test_every_refusal_has_a_code_of_the_rfc() -> None:
    for row in TABLE:
        assert (row.socks == 0) == (row.status == 0), row
        assert 0 <= row.socks <= 8, row


# Any bytes


MESSAGES = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda n, rest: bytes((5, n)) + rest, st.integers(0, 255), st.binary()),
    st.builds(lambda n, rest: bytes((1, n)) + rest, st.integers(0, 9), st.binary()),
    st.builds(request, st.one_of(
        st.ip_addresses(v=4).map(lambda ip: b"\1" + ip.packed),
        st.ip_addresses(v=6).map(lambda ip: b"\4" + ip.packed),
        st.binary(max_size=20).map(named),
        st.text("abz019.-:xX", max_size=20).map(lambda text: named(text.encode()))),
        st.integers(0, 65535), st.integers(0, 4)),
    st.builds(request4, st.sampled_from(("0.0.0.1", "0.0.0.0", "192.0.2.1")),
              st.binary(max_size=30), st.integers(0, 3), st.integers(0, 3)))


@settings(max_examples=400)
@given(MESSAGES)
def test_any_octets_are_read_as_the_twin_reads_them(data: bytes) -> None:
    for parser, twin in TWINS.items():
        assert parser(guarded().place(data)) == twin(data)
    tail = b"\0\0\0" + data[3:]
    assert read_datagram_header(guarded().place(tail)) == (
        twin_socks.read_datagram_header(tail))
