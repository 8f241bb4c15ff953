"""Messages to parents, and the readers of their answers (R3, R11, R45)."""

import ipaddress
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.wire.target import read_authority
from tests.doors import wire_parents as wire
from tests.doors.wire import read_proxy_header, read_request
from tests.wire.replay import parse_every_way
from tests.wire.twin_parents import TWINS

OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
V6 = "2001:db8::9"
TARGETS = [b"a.test:443", b"203.0.113.9:80", b"[2001:db8::9]:65535",
           b"x" * 63 + b".test:1"]


def read(name: str, data: bytes) -> tuple[int, int] | str | None:
    """The answer, the same however the bytes arrive; the twin agrees."""
    got = parse_every_way(getattr(wire, name), data)
    assert got == TWINS[name](data)
    return got


# CONNECT


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("credentials", [None, b"Basic YTpi", b""])
@pytest.mark.parametrize("via", [None, b"1.1 a, 1.0 b"])
def test_the_request_is_one_that_this_proxy_reads(target, credentials, via) -> None:
    got = wire.connect(target, credentials, via)
    head = read_request(got)
    assert head["length"] == len(got)
    assert (head["method"], head["target"]) == (b"CONNECT", target)
    assert [field[:2] for field in head["fields"]] == [
        (b"Host", target),
        *([(b"Proxy-Authorization", credentials)] if credentials is not None else []),
        *([(b"Via", via)] if via else [])]


def test_a_request_without_room_is_not_written_at_all() -> None:
    assert wire.connect(b"a.test:443", b"x" * 200, None, cap=600) == b""
    assert wire.connect(b"a.test:443", b"x" * 200, None, cap=1000)


@pytest.mark.parametrize("head", [
    OK, b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200\r\n\r\n", b"HTTP/1.1 299 x\r\n\r\n",
    b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n",
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 7\r\n\r\n", b"HTTP/1.1 302 x\r\n\r\n",
    # A length and a coding of a 2xx are ignored (RFC 9110 section 9.3.6)
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"])
def test_the_answer_ends_at_the_empty_line_and_not_behind_it(head: bytes) -> None:
    status = int(head[9:12])
    assert read("connect_answer", head) == (len(head), status)
    assert wire.connect_answer(head + b"SSH-2.0-x\r\n") == (len(head), status)


def test_interim_heads_are_part_of_the_answer_and_bounded() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert read("connect_answer", interim + OK) == (len(interim + OK), 200)
    assert wire.connect_answer(8 * interim + OK) == (len(8 * interim + OK), 200)
    assert read("connect_answer", 9 * interim) == "invalid"


@pytest.mark.parametrize("data", [
    b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\0\x02\x02\x16", b"\x05\0", b"\0\x5a",
    b"<html>", b"http/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1  200 OK\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 099 x\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
    b"HTTP/1.1 200 O\0K\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n"])
def test_what_has_two_readings_is_no_answer(data: bytes) -> None:
    assert read("connect_answer", data) == "invalid"


@pytest.mark.parametrize("head", [
    b"HTTP/2.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\n\n", b"HTTP/1.1 200 OK\r\n\n",
    b"HTTP/1.1 200 OK\r\nA: b\n\r\n", b"\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\x01\r\n\r\n"])
def test_the_answer_is_read_as_an_origins(head: bytes) -> None:
    assert read("connect_answer", head) == (len(head), 200)
    assert wire.connect_answer(head + b"SSH-2.0-x\r\n") == (len(head), 200)


def test_the_answer_is_bounded() -> None:
    most = 65536
    def head(n: int) -> bytes:
        return OK[:-2] + b"A: " + b"x" * (n - len(OK) - 5) + b"\r\n\r\n"
    assert wire.connect_answer(head(most)) == (most, 200)
    assert wire.connect_answer(head(most + 1)) == "invalid"
    assert wire.connect_answer(head(most + 1)[:most]) == "invalid"
    assert wire.connect_answer(head(most)[:most - 1]) is None
    assert wire.connect_answer(b"HTTP/1.1 200 " + b"x" * most) == "invalid"
    many = OK[:-2] + b"A: b\r\n" * 1025 + b"\r\n"
    assert wire.connect_answer(many) == "invalid"
    # The interim heads count in the same bound
    hint = b"HTTP/1.1 103 x\r\nA: " + b"x" * 33000 + b"\r\n\r\n"
    assert wire.connect_answer(hint + hint) == "invalid"


# SOCKS


def test_the_greeting_offers_a_login_only_if_there_is_one() -> None:
    assert wire.greeting(False) == b"\x05\x01\x00"
    assert wire.greeting(True) == b"\x05\x02\x00\x02"


@pytest.mark.parametrize("n", [0, 1, 255])
def test_a_login_has_the_lengths_of_name_and_password(n: int) -> None:
    name, password = b"n" * n, b"p" * (255 - n)
    assert wire.login(name, password) == (
        b"\x01" + bytes((n,)) + name + bytes((255 - n,)) + password)


@pytest.mark.parametrize("target", TARGETS)
def test_a_request_of_version_5_names_host_or_address(target: bytes) -> None:
    parts = read_authority(target, 0)
    host, port = parts["host"], struct.pack(">H", parts["port"])
    if parts["kind"] == "name":
        place = b"\x03" + bytes((len(host),)) + host.encode()
    else:
        packed = ipaddress.ip_address(host).packed
        place = (b"\x01" if len(packed) == 4 else b"\x04") + packed
    assert wire.socks5_request(target) == b"\x05\x01\x00" + place + port


def test_a_request_of_version_4_has_no_ipv6() -> None:
    assert wire.socks4_request(b"203.0.113.9:80", b"me") == (
        b"\x04\x01\x00\x50\xcb\x00\x71\x09me\0")
    assert wire.socks4_request(b"a.test:443") == (
        b"\x04\x01\x01\xbb\0\0\0\x01\0a.test\0")
    assert wire.socks4_request(b"[::1]:443") == b""
    assert wire.socks4_request(b"a.test:443", b"x" * 500) == b""


@pytest.mark.parametrize("name", ["method", "login_answer"])
def test_two_octets_answer_greeting_and_login(name: str) -> None:
    version = b"\x05" if name == "method" else b"\x01"
    for code in (0, 2, 255):
        assert read(name, version + bytes((code,))) == (2, code)
    for wrong in (b"\0", b"\x04", b"H", b"\xff"):
        assert read(name, wrong) == "invalid"


@pytest.mark.parametrize("place", [
    b"\x01" + bytes(4), b"\x04" + bytes(16), b"\x03\x00", b"\x03\xff" + b"x" * 255,
    b"\x03\x01a"])
def test_a_reply_of_version_5_ends_with_its_port(place: bytes) -> None:
    reply = b"\x05\x00\x00" + place + b"\0\x50"
    assert read("socks5_reply", reply) == (len(reply), 0)
    assert wire.socks5_reply(reply + b"tunnel") == (len(reply), 0)


@pytest.mark.parametrize("code", [1, 2, 5, 8, 9, 255])
def test_a_refusal_of_version_5_needs_no_address(code: int) -> None:
    # Some servers close behind the code
    assert read("socks5_reply", bytes((5, code))) == (2, code)
    assert read("socks5_reply", bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))) == (2, code)


@pytest.mark.parametrize("data", [
    b"\x04", b"\0\x5a", b"HTTP/1.1", b"\x05\0\x01", b"\x05\0\0\x02", b"\x05\0\0\0",
    b"\x05\0\0\x05"])
def test_what_is_no_reply_of_version_5_is_refused(data: bytes) -> None:
    assert read("socks5_reply", data) == "invalid"


def test_a_reply_of_version_4_has_eight_octets() -> None:
    assert read("socks4_reply", b"\0\x5a" + bytes(6)) == (8, 0)
    assert wire.socks4_reply(b"\0\x5a" + bytes(6) + b"tunnel") == (8, 0)
    for code in (91, 92, 93):
        assert read("socks4_reply", bytes((0, code)) + b"\xff" * 6) == (8, code)
    for wrong in (b"\x04", b"\x05", b"H", b"\0\x59", b"\0\x5e", b"\0\0", b"\0\xff"):
        assert read("socks4_reply", wrong) == "invalid"


@settings(max_examples=300)
@given(st.sampled_from(sorted(TWINS)), st.one_of(
    st.binary(max_size=40), st.builds(bytes.__add__, st.just(OK), st.binary()),
    st.builds(lambda n, rest: b"\x05\0\0" + bytes((n,)) + rest, st.integers(0, 5),
              st.binary(max_size=30)),
    st.builds(lambda text: b"HTTP/1.1 200 " + text + b"\r\n\r\n", st.binary())))
def test_any_octets_are_read_as_the_twins_read_them(name: str, data: bytes) -> None:
    assert getattr(wire, name)(data) == TWINS[name](data)


# The PROXY protocol


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("client", ["203.0.113.9", "255.255.255.255", V6, "::",
                                    "ffff:" * 7 + "ffff"])
@pytest.mark.parametrize("listener", ["192.0.2.1", V6])
@pytest.mark.parametrize("port", [1, 65535])
def test_a_header_that_is_sent_is_read_back(version, client, listener, port) -> None:
    header = wire.proxy_header(version, (client, port), (listener, 3128))
    got = read_proxy_header(header)
    assert got == {"length": len(header), "port": port, "tlvs": {},
                   "address": ipaddress.ip_address(client).packed}
    assert len(header) <= 107
    if version == 2:
        assert header[-4:] == struct.pack(">HH", port, 3128)
    else:
        assert header.endswith(b" %d 3128\r\n" % port)
