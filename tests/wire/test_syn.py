"""The signature of a SYN, as p0f writes it."""

import json
import struct

import pytest

from cutthrough.wire.syn import signature
from tests.wire.record_syns import SYNS, build

RECORDED = json.loads(SYNS.read_text())


def test_every_packet_has_the_signature_that_p0f_gives_it() -> None:
    found = [(packet, signature(bytes.fromhex(packet))) for packet, _ in RECORDED]
    assert found == [(packet, said) for packet, said in RECORDED]
    assert len(found) == 240
    assert {said[0] for _, said in RECORDED} == {"4", "6"}


def test_a_part_of_the_headers_has_none() -> None:
    packet = build()
    assert signature(packet)
    assert not any(signature(packet[:n]) for n in range(len(packet)))


@pytest.mark.parametrize(("at", "octet"), [
    (0, 0x44),                          # a header of IP of 16 octets
    (0, 0x4f),                          # of 60, which are not there
    (0, 0x55),                          # another version
    (9, 17),                            # UDP
    (32, 0x40),                         # a header of TCP of 16 octets
    (32, 0xf0)])
def test_headers_that_contradict_themselves_have_none(at, octet) -> None:
    packet = bytearray(build())
    packet[at] = octet
    assert signature(bytes(packet)) is None


def test_extensions_of_ipv6_have_none() -> None:
    packet = bytearray(build(version=6))
    packet[6] = 0                       # hop-by-hop options
    assert signature(bytes(packet)) is None


@pytest.mark.parametrize("version", [4, 6])
def test_the_longest_signature_is_bounded(version) -> None:
    """All quirks that a packet can have, and the options that take most room."""
    packet = build(version=version, ttl=129, frag=0xc000, ident=9, tos=3, flow=5, seq=0,
                   ack=1, urgent=2, flags=0xca, reserved=1, window=65535, extra=9,
                   options="080a0000000000000001" "03030f" + "ff02" * 12 + "0001")
    found = signature(packet)
    assert found is not None and len(found) < 256
    assert found.count(",?255") == 12
    assert found.endswith("ts1-,ts2+,opt+,exws:+")


def test_any_octets_are_read() -> None:
    """With each octet of the headers in turn at both extremes."""
    for at in range(60):
        for octet in (0, 0x7f, 0xff):
            packet = bytearray(build())
            packet[at] = octet
            found = signature(bytes(packet))
            assert found is None or struct.pack("B", 52)[0] == ord(found[0])
