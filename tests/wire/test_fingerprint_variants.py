"""JA4_r, JA4_o and JA4_ro, against a plain reader, in recorded and in broken hellos."""

import hashlib
from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doors.wire_hello import read_client_hello, read_message
from tests.wire.recorded_hellos import VALUES, data_of
from tests.wire.twin_hello import (
    SIGNATURES,
    VERSIONS_13,
    build_hello,
    build_records,
    named,
    offering,
)

MOST_RAW = 600


def message_of(data: bytes) -> bytes:
    message = b""
    while data:
        size = 5 + int.from_bytes(data[3:5])
        message, data = message + data[5:size], data[size:]
    return message


def lists_of(message: bytes) -> tuple[list[str], list[str], list[str]]:
    """Ciphers, extensions, signature algorithms, in order, without GREASE."""
    rest = message[38:]
    rest = rest[1 + rest[0]:]
    n = int.from_bytes(rest[:2])
    ciphers, rest = rest[2:2 + n], rest[2 + n:]
    rest = rest[1 + rest[0]:][2:]
    kinds, signatures = b"", b""
    while rest:
        kind, n = unpack("!HH", rest[:4])
        kinds += rest[:2]
        if kind == 13:
            signatures = rest[6:4 + n]
        rest = rest[4 + n:]
    ciphers_, kinds_, signatures_ = (
        [part for part in data.hex(" ", -2).split()
         if part[1] != "a" or part[:2] != part[2:]]
        for data in (ciphers, kinds, signatures))
    return ciphers_, kinds_, signatures_


def twin(message: bytes, summary: str) -> dict[str, str]:
    ciphers, kinds, signatures = lists_of(message)
    some = sorted(set(kinds) - {"0000", "0010"})
    sorted_ = ",".join(sorted(ciphers)), ",".join(some)
    original = ",".join(ciphers), ",".join(kinds)
    found = {}
    for name, (a, b) in (("", sorted_), ("o", original)):
        c = "_" + ",".join(signatures) if b and signatures else ""
        found[f"ja4_r{name}"] = f"{summary}_{a}_{b}{c}"[:MOST_RAW]
        found[f"ja4_{name}".rstrip("_")] = "_".join(
            [summary, *(hashlib.sha256(part.encode()).hexdigest()[:12] if part
                        else "0" * 12 for part in (a, b + c))])
    return found


@pytest.mark.parametrize("name", VALUES)
def test_the_variants_of_recorded_clients_are_the_plain_readers(name: str) -> None:
    message = message_of(data_of(name))
    summary = VALUES[name]["ja4"][:10]
    found = read_message(message)
    assert found == twin(message, summary)
    assert found["ja4"] == VALUES[name]["ja4"]
    assert all(len(text) < MOST_RAW for text in found.values())


def test_the_examples_of_the_specification() -> None:
    """JA4.md, "Raw Output": both forms of one client."""
    summary = "t13d1516h2"
    ciphers = ("1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,"
               "0035")
    kinds = ("001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,"
             "000a,0015")
    signed = "0403,0804,0401,0503,0805,0501,0806,0601"
    values = {0: named(b"example.com")[1], 16: offering(b"h2", b"http/1.1")[1],
              43: VERSIONS_13[1], 10: b"\0\2\0\x1d", 11: b"\1\0",
              13: b"\0\x10" + bytes.fromhex(signed.replace(",", ""))}
    numbers = [int(kind, 16) for kind in kinds.split(",")]
    found = read_message(message_of(build_hello(
        *[(number, values.get(number, b"")) for number in numbers],
        ciphers=tuple(int(cipher, 16) for cipher in ciphers.split(",")))))
    assert found["ja4_ro"] == f"{summary}_{ciphers}_{kinds}_{signed}"
    assert found["ja4_r"] == (
        f"{summary}_002f,0035,009c,009d,1301,1302,1303,c013,c014,c02b,c02c,c02f,c030,"
        "cca8,cca9_0005,000a,000b,000d,0012,0015,0017,001b,0023,002b,002d,0033,4469,"
        f"ff01_{signed}")
    assert found["ja4"] == "t13d1516h2_8daaf6152771_e5627efa2ab1"


def test_a_raw_fingerprint_is_bounded() -> None:
    data = build_hello(*[(1000 + i, b"") for i in range(800)],
                       ciphers=tuple(range(1, 3000)))
    found = read_message(message_of(data))
    assert len(found["ja4_r"]) == len(found["ja4_ro"]) == MOST_RAW
    assert len(found["ja4_o"]) == 36


HELLO = message_of(build_hello(
    named(b"a.example"), offering(b"h2"), VERSIONS_13, SIGNATURES, (0x2A2A, b"\0"),
    ciphers=(0x1A1A, 0x1301, 0xC02B)))


@given(st.data())
def test_a_broken_message_is_none_or_printable(data: st.DataObject) -> None:
    """The same bytes are a hello with and without records."""
    message = bytearray(HELLO)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] = data.draw(st.integers(0, 255))
    cut = bytes(message[:data.draw(st.integers(0, len(message)))])
    found = read_message(cut)
    by_records = read_client_hello(build_records(cut, len(cut))) if cut else None
    if isinstance(by_records, dict):
        assert found is not None
        assert found["ja4"] == by_records["ja4"]
    for text in (found or {}).values():
        assert text.isascii() and text.isprintable() and len(text) <= MOST_RAW
        assert not set(text) & set('"\\ ')


@given(st.binary(max_size=200))
def test_noise_is_no_hello(data: bytes) -> None:
    assert read_message(data) is None or data[:1] == b"\1"
