"""JA4 and JA3: parts that count, parts that are left out, and published values."""

import hashlib

import pytest

from tests.doors.wire_hello import read_client_hello
from tests.wire.twin_hello import (
    SIGNATURES,
    VERSIONS_13,
    build_hello,
    listed,
    named,
    offering,
    words,
)

NAMED = named(b"example.com")


def ja4(*extensions: tuple[int, bytes], ciphers: tuple[int, ...] = (0x1301,),
        legacy: int = 0x0303) -> str:
    found = read_client_hello(build_hello(*extensions, ciphers=ciphers, legacy=legacy))
    return found["ja4"]


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def test_the_example_of_the_specification() -> None:
    """JA4.md, "Raw Output": the fingerprint, and the lists that it is made of."""
    ciphers = ("1301 1302 1303 c02b c02f c02c c030 cca9 cca8 c013 c014 009c 009d 002f "
               "0035")
    kinds = ("001b 0000 0033 0010 4469 0017 002d 000d 0005 0023 0012 002b ff01 000b "
             "000a 0015")
    signed = "0403 0804 0401 0503 0805 0501 0806 0601"
    values = {0: NAMED[1], 16: offering(b"h2", b"http/1.1")[1], 43: VERSIONS_13[1],
              10: listed(words(29)), 11: b"\1\0",
              13: listed(bytes.fromhex(signed))}
    numbers = [int(kind, 16) for kind in kinds.split()]
    extensions = [(number, values.get(number, b"")) for number in numbers]
    grease = [(0x2A2A, b""), *extensions, (0x9A9A, b"\0")]
    for found in (extensions, grease, extensions[::-1]):
        assert ja4(*found, ciphers=tuple(
            int(cipher, 16) for cipher in ciphers.split())) == (
            "t13d1516h2_8daaf6152771_e5627efa2ab1")


@pytest.mark.parametrize(("legacy", "offered", "shown"), [
    (0x0303, (0x0304, 0x0303), "13"), (0x0303, (), "12"), (0x0302, (), "11"),
    (0x0301, (), "10"), (0x0300, (), "s3"), (0x0303, (0x0301, 0x0302), "11"),
    (0x0303, (0x8A8A, 0x0304), "13"), (0x0303, (0x7F1C,), "00"),
    (0x0303, (0xEAEA,), "00"), (0x0305, (), "00")])
def test_the_version_is_the_highest_that_is_offered(
        legacy: int, offered: tuple[int, ...], shown: str) -> None:
    versions = [(43, listed(words(*offered), 1))] if offered else []
    assert ja4(*versions, legacy=legacy)[1:3] == shown


@pytest.mark.parametrize(("protocol", "shown"), [
    (b"h2", "h2"), (b"http/1.1", "h1"), (b"x", "xx"), (b"H9", "H9"),
    (b"\xab", "ab"), (b"\xab\xcd", "ad"), (b"0\xab", "3b"), (b"01\xab\xcd", "3d"),
    (b"0\xab\xcd1", "01"), (b" ", "20"), (b"@h", "48"), (b"h[", "6b"), (b"z{", "7b")])
def test_the_ends_of_the_first_protocol(protocol: bytes, shown: str) -> None:
    """JA4.md, "ALPN Extension Value", has the values of the fifth to the ninth."""
    assert ja4(offering(protocol, b"h2"))[8:10] == shown


def test_counts_stop_at_ninety_nine() -> None:
    many = [(1000 + i, b"") for i in range(120)]
    assert ja4(*many, ciphers=tuple(range(1, 200)))[4:8] == "9999"


def test_nothing_to_hash_is_twelve_zeros() -> None:
    assert ja4(ciphers=(0x0A0A,)) == "t12i000000_000000000000_000000000000"
    assert ja4(NAMED, ciphers=(0x0A0A,)) == "t12d000100_000000000000_000000000000"


def test_the_order_counts_for_signatures_only() -> None:
    other = (13, listed(words(0x0804, 0x0403)))
    lists = [(21, b""), SIGNATURES, (23, b"")]
    assert ja4(*lists, ciphers=(1, 2, 3)) == ja4(*lists[::-1], ciphers=(3, 1, 2))
    assert ja4(SIGNATURES) != ja4(other)
    assert ja4(SIGNATURES)[24:] == hashed("000d_0403,0804")
    assert ja4((21, b""))[24:] == hashed("0015")


def test_long_lists_are_sorted_too() -> None:
    ciphers = tuple(range(3000, 1, -7))
    assert ja4(ciphers=ciphers)[11:23] == hashed(
        ",".join(f"{cipher:04x}" for cipher in sorted(ciphers)))


def test_a_list_that_came_before_has_its_own_hash() -> None:
    """More lists than are kept, so that some share a place with another."""
    lists = [tuple(range(first, first + n))
             for n in (1, 2, 17) for first in range(2, 99)]
    for _ in range(2):
        for ciphers in lists:
            for _ in range(2):
                assert ja4(ciphers=ciphers)[11:23] == hashed(
                    ",".join(f"{cipher:04x}" for cipher in ciphers))


def test_the_numbers_of_two_lists_are_told_apart() -> None:
    """13 and 1027: an extension with a signature algorithm, or two extensions."""
    signed = (13, listed(words(0x0403)))
    silent = ((13, listed(b"")), (0x0403, b""))
    for _ in range(2):
        assert ja4(signed)[24:] == hashed("000d_0403")
        assert ja4(*silent)[24:] == hashed("000d,0403")
        assert ja4(ciphers=(13, 0x0403))[11:23] == hashed("000d,0403")


@pytest.mark.parametrize(("ciphers", "kinds", "groups", "formats", "shown"), [
    ("47-53-5-10-49161-49162-49171-49172-50-56-19-4", "0-10-11", "23-24-25", "0",
     "ada70206e40642a3e4461f35503241d5"),
    ("4-5-10-9-100-98-3-6-19-18-99", "", "", "", "de350869b8c85de67a350c8d186f11e6")])
def test_the_examples_of_ja3(
        ciphers: str, kinds: str, groups: str, formats: str, shown: str) -> None:
    """github.com/salesforce/ja3, README, "How it works"."""
    def listed_numbers(text: str) -> tuple[int, ...]:
        return tuple(int(number) for number in text.split("-") if number)

    values = {0: NAMED[1], 10: listed(words(*listed_numbers(groups))),
              11: listed(bytes(listed_numbers(formats)), 1)}
    data = build_hello(*[(kind, values[kind]) for kind in listed_numbers(kinds)],
                       ciphers=listed_numbers(ciphers), legacy=769)
    assert read_client_hello(data)["ja3"] == shown


def test_ja3_is_the_hash_of_the_lists_in_order() -> None:
    data = build_hello(
        (0x1A1A, b""), NAMED, (10, listed(words(0x2A2A, 29, 23))), (11, b"\2\0\1"),
        ciphers=(0x3A3A, 0x1301, 0xC02B))
    text = "771,4865-49195,0-10-11,29-23,0-1"
    assert read_client_hello(data)["ja3"] == hashlib.md5(text.encode()).hexdigest()
    text = "769,47,,,"
    data = build_hello(ciphers=(47,), legacy=0x0301)
    assert read_client_hello(data)["ja3"] == hashlib.md5(text.encode()).hexdigest()
