"""The ClientHello: names, versions and lists, and bytes that are none (R53)."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.wire_hello import read_client_hello
from tests.wire.replay import parse_every_way
from tests.wire.twin_hello import (
    MOST,
    SIGNATURES,
    VERSIONS_13,
    Hello,
    build_body,
    build_hello,
    build_message,
    build_records,
    listed,
    named,
    offering,
    words,
)
from tests.wire.twin_hello import read_hello as read_twin

BROKEN = "broken"
NAMED = named(b"example.com")
# GREASE in all places as in a browser, an ML-KEM share, ECH
RICH = build_hello(
    (0x3A3A, b""), NAMED, (23, b""), (10, listed(words(0x1A1A, 0x11EC, 29, 23))),
    (11, b"\1\0"), offering(b"h2", b"http/1.1"), SIGNATURES,
    (51, listed(words(0x1A1A) + listed(b"\0") + words(0x11EC) + listed(bytes(1216)))),
    (43, listed(words(0x7A7A, 0x0304, 0x0303), 1)), (0xFE0D, b"\0" + bytes(20)),
    (0xCACA, b"\0"), ciphers=(0x2A2A, 0x1301, 0x1302, 0xC02B, 0x0035))


def read(data: bytes) -> Hello | str | None:
    """The hello, the same however the bytes arrive; the twin agrees."""
    got = parse_every_way(read_client_hello, data)
    theirs = read_twin(data)
    if isinstance(got, dict):
        assert isinstance(theirs, Hello)
        assert Hello(**got) == theirs
        assert theirs.length == len(data)
        return theirs
    assert got == theirs
    return got


def of(*extensions: tuple[int, bytes]) -> Hello | str | None:
    return read(build_hello(*extensions))


# Names and versions


def test_name_alpn_version_and_ech_are_read() -> None:
    hello = read(RICH)
    assert isinstance(hello, Hello)
    assert hello[:7] == (len(RICH), 0x0303, 0x0304, "example.com", "host",
                         [b"h2", b"http/1.1"], True)


def test_a_hello_without_extensions_offers_its_legacy_version() -> None:
    hello = read(build_hello(legacy=0x0301))
    assert isinstance(hello, Hello)
    assert hello[2:4] == (0x0301, None)
    assert (hello.alpn, hello.ech) == ([], False)


def test_versions_beside_grease_and_in_any_order() -> None:
    hello = of((43, listed(words(0x0302, 0xFAFA, 0x0304, 0x0303), 1)))
    assert isinstance(hello, Hello)
    assert hello.version == 0x0304


@pytest.mark.parametrize(("name", "kind", "shown"), [
    (b"Example.COM", "host", "example.com"), (b"example.com.", "host", "example.com"),
    (b"xn--bcher-kva.example", "host", "xn--bcher-kva.example"),
    (b"_dns.resolver.arpa", "host", "_dns.resolver.arpa"),
    (b"192.0.2.1", "address", "192.0.2.1"), (b"0x7f.1", "address", "127.0.0.1"),
    (b"::1", "invalid", "::1"), (b"[::1]", "invalid", "[::1]"),
    (b"a b", "invalid", "a b"), (b"a\0.example.com", "invalid", "a\0.example.com"),
    (b"example.com:443", "invalid", "example.com:443"), (b".", "invalid", "."),
    (b"a..b", "invalid", "a..b"), (b"a" * 64, "invalid", "a" * 64),
    (b"b\xfccher", "invalid", "b\xfccher"), (b"user@host", "invalid", "user@host")])
def test_a_server_name_is_a_host_an_address_or_invalid(
        name: bytes, kind: str, shown: str) -> None:
    hello = of(named(name))
    assert isinstance(hello, Hello)
    assert (hello.name_kind, hello.name) == (kind, shown)


# Records and segments


@pytest.mark.parametrize("sizes", [
    (1,), (2,), (3,), (4,), (5,), (1, 1, 1, 1, 1), (38, 39), (700,), (1,) * 60])
def test_a_hello_in_several_records_is_the_same_hello(sizes: tuple[int, ...]) -> None:
    whole = read_twin(RICH)
    assert isinstance(whole, Hello)
    parts = read(build_records(RICH[5:], *sizes))
    assert isinstance(parts, Hello)
    assert parts[1:] == whole[1:]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_hello_in_records_of_one_size(size: int) -> None:
    message = build_message(build_body(NAMED, VERSIONS_13))
    assert isinstance(read(build_records(message, *[size] * len(message))), Hello)


def test_the_longest_hello_is_read_and_one_byte_more_is_refused() -> None:
    def of_length(n: int) -> bytes:
        empty = len(build_hello((21, b"")))
        return build_hello((21, bytes(n - empty)))

    assert isinstance(read_twin(of_length(MOST)), Hello)
    assert read_client_hello(of_length(MOST))["length"] == MOST
    for n in (5, 6, 100, MOST - 1):
        assert read_client_hello(of_length(MOST)[:n]) is None
    for n in (9, 100, MOST, MOST + 1):
        assert read_client_hello(of_length(MOST + 1)[:n]) == BROKEN
        assert read_twin(of_length(MOST + 1)[:n]) == BROKEN


def test_records_count_with_their_heads() -> None:
    message = build_message(build_body((21, bytes(6000))))
    assert isinstance(read_twin(build_records(message, *[4] * 1000)), Hello)
    data = build_records(message, *[2] * 6000)
    assert len(data) > MOST
    assert read_client_hello(data) == read_twin(data) == BROKEN
    assert read_client_hello(data[:MOST - 100]) is None


def test_no_byte_decides_nothing() -> None:
    assert read_client_hello(b"") is None


@pytest.mark.parametrize("data", [
    b"\x15\x03\x01\0\x02\x02\x28",              # an alert
    b"\x17\x03\x03\0\x05hello",                 # application data
    b"\x16\x02\x00\0\x05", b"\x16\x04\x00\0\x05",
    b"\x16\x03\x01\0\0",                        # an empty fragment
    b"\x16\x03\x01\x41\0",                      # longer than a record may be
    b"\x16\x03\x01\xff\xff",
    b"\x16\x03\x01\0\x04\x02\0\0\x26",          # ServerHello
    b"\x16\x03\x01\0\x04\x01\0\0\x21",          # shorter than the fixed fields
    b"\x16\x03\x01\0\x04\x01\x01\0\0",          # 64 KiB
    b"\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10",    # SSL 2's
    b"GET / HTTP/1.1\r\n", b"\0"])
def test_what_begins_in_another_way_is_no_hello(data: bytes) -> None:
    assert read(data) == BROKEN


def test_another_record_within_the_message_is_refused() -> None:
    first, second = build_records(RICH[5:], 100)[:105], RICH[105:]
    for between in (b"\x15\x03\x01\0\x02\x01\0", b"\x14\x03\x03\0\1\1"):
        data = first + between + second
        assert read_client_hello(data) == read_twin(data) == BROKEN


def test_more_in_the_last_record_is_refused() -> None:
    message = build_message(build_body(NAMED))
    assert read(build_records(message + b"\0")) == BROKEN
    assert read(build_records(message + b"\0", 60)) == BROKEN


# Hellos that break the standard


@pytest.mark.parametrize("body", [
    build_body(legacy=0x0200), build_body(legacy=0x0403), build_body(legacy=0xFEFD),
    build_body(session=bytes(33)),
    build_body()[:34] + b"\xff",
    build_body(ciphers=()),
    build_body()[:35] + b"\0\1\x13" + b"\1\0",          # half a cipher
    build_body()[:35] + b"\xff\xff\x13\1\1\0",
    build_body()[:39] + b"\0",                          # no compression
    build_body()[:35] + b"\0\2\x13\1",
    build_body() + b"\0", build_body() + b"\0\1", build_body() + b"\0\0\0",
    build_body(NAMED) + b"\0", build_body(NAMED)[:-1],
    build_body() + b"\0\4\0\5\0\1",
    build_body() + b"\0\3\0\5\0"])
def test_a_malformed_message_is_refused(body: bytes) -> None:
    assert read(build_records(build_message(body))) == BROKEN


@pytest.mark.parametrize("extension", [
    (0, b""), (0, b"\0"), (0, b"\0\0"), (0, listed(b"\0")), (0, listed(b"\0\0\0")),
    (0, listed(b"\0" + listed(b""))), (0, listed(b"\1" + listed(b"a"))),
    (0, listed(b"\0" + listed(b"a")) + b"\0"),
    (0, listed(b"\0" + listed(b"a") + b"\0")),
    (0, listed(b"\0" + listed(b"a") + b"\0" + listed(b"b"))),
    (0, listed(b"\0" + listed(b"a" * 256))),
    (0, b"\0\x09\0" + listed(b"a")),
    (16, b""), (16, b"\0\0"), (16, listed(b"\0")), (16, listed(b"\2h")),
    (16, listed(b"\2h2\0")), (16, listed(b"\2h2") + b"\0"),
    (10, b""), (10, b"\0\1\0"), (10, b"\0\3\0\x1d\0"), (10, b"\0\4\0\x1d"),
    (11, b""), (11, b"\2\0"), (13, b"\0"), (13, b"\0\1\4"),
    (43, b""), (43, b"\0"), (43, b"\1\3"), (43, b"\3\3\4\3"), (43, b"\2\3\4\0")])
def test_a_malformed_extension_is_refused(extension: tuple[int, bytes]) -> None:
    assert of(extension) == BROKEN


@pytest.mark.parametrize("kind", [0, 5, 10, 16, 43])
def test_two_of_one_extension_are_refused(kind: int) -> None:
    values = {0: NAMED[1], 10: listed(words(29)), 16: offering(b"h2")[1],
              43: VERSIONS_13[1]}
    one = (kind, values.get(kind, b""))
    assert isinstance(of(one), Hello)
    assert of(one, (21, b""), one) == BROKEN


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_changed_hello_is_what_the_twin_says(data: st.DataObject) -> None:
    changed = bytearray(data.draw(st.sampled_from(
        [RICH, build_hello(NAMED, SIGNATURES), build_records(RICH[5:], 3, 50)])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    got = read_client_hello(bytes(changed))
    assert (Hello(**got) if isinstance(got, dict) else got) == read_twin(bytes(changed))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=9)), max_size=200),
       st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=300),
       st.lists(st.integers(1, 400), max_size=5))
def test_any_lists_are_read_as_the_twin_reads_them(
        extensions: list[tuple[int, bytes]], ciphers: list[int],
        sizes: list[int]) -> None:
    data = build_records(build_message(
        build_body(*extensions, ciphers=tuple(ciphers))), *sizes)
    got = read_client_hello(data)
    assert (Hello(**got) if isinstance(got, dict) else got) == read_twin(data)


def test_every_split_in_two_segments_is_undecided_before_the_end() -> None:
    for sizes in ((), (1,), (4, 9, 200)):
        data = build_records(RICH[5:], *sizes)
        assert all(read_client_hello(data[:n]) is None for n in range(len(data)))
        chance = random.Random(1)
        assert read_client_hello(data + chance.randbytes(99))["length"] == len(data)
