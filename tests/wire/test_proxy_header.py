"""The PROXY protocol's header: the client that it names, and refusals (R40, R50)."""

import ipaddress
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.wire import read_proxy_header
from tests.wire.replay import parse_every_way
from tests.wire.twin_proxy import (
    MOST,
    SIGNATURE,
    Named,
    build_binary,
    build_line,
    build_ssl,
    build_tlv,
    crc32c,
)
from tests.wire.twin_proxy import read_proxy_header as read_twin

REFUSED = "bad_proxy_header"
V6 = "2001:db8::9"
# Additions of AWS, HAProxy and others: ALPN, authority, unique id, TLS with sub-TLVs, a
# network namespace, a VPC endpoint, and padding
TLVS = (build_tlv(1, b"h2") + build_tlv(2, b"proxy.example") + build_tlv(5, b"x" * 128)
        + build_tlv(0x20, b"\x01" + bytes(4) + build_tlv(0x21, b"TLSv1.3"))
        + build_tlv(0x30, b"blue") + build_tlv(0xEA, b"\x01vpce-08d2bf15fac5001c9")
        + build_tlv(4, b""))


def read(data: bytes) -> tuple[bytes, int] | str | None:
    """Address and port, the same however the bytes arrive; the twin agrees."""
    got = parse_every_way(read_proxy_header, data)
    theirs = read_twin(data)
    if not isinstance(got, dict):
        assert got == theirs
        return got
    assert theirs == Named(**got)
    assert got["length"] == len(data)
    return got["address"], got["port"]


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


# Version 1


@pytest.mark.parametrize("source", ["203.0.113.9", "0.0.0.0", "255.255.255.255", V6,
                                    "::", "ffff:" * 7 + "ffff"])
@pytest.mark.parametrize("port", [0, 1, 65535])
def test_a_line_names_its_source(source: str, port: int) -> None:
    assert read(build_line(source, port=port)) == (packed(source), port)


def test_the_longest_line_is_read_and_one_octet_more_is_refused() -> None:
    longest = b"PROXY UNKNOWN " + b"f" * (107 - 16) + b"\r\n"
    assert len(longest) == 107
    assert read(longest) == (b"", 0)
    assert read(longest[:-2] + b"f\r\n") == REFUSED


@pytest.mark.parametrize("line", [
    b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN \r\n", b"PROXY UNKNOWN any\0thing\xff\r\n",
    b"PROXY UNKNOWN ::1 ::1 1 1\r\n"])
def test_unknown_names_nobody_whatever_follows(line: bytes) -> None:
    assert read(line) == (b"", 0)


@pytest.mark.parametrize("line", [
    b"PROXY\r\n", b"PROXY \r\n", b"PROXY TCP4\r\n", b"PROXY TCP4 \r\n",
    b"proxy TCP4 1.2.3.4 1.2.3.4 1 1\r\n", b"PROXY tcp4 1.2.3.4 1.2.3.4 1 1\r\n",
    b"PROXY TCP5 1.2.3.4 1.2.3.4 1 1\r\n", b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n",
    b"PROXY UNKNOWNS\r\n", b"PROXY UNKNOW\r\n", b"PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
    b"PROXY TCP4 1.2.3.4  1.2.3.4 1 1\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1  1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 \r\n", b"PROXY TCP4 1.2.3.4\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1 1\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1\t1\r\n",
    b"PROXY TCP4 1.2.3 1.2.3.4 1 1\r\n", b"PROXY TCP4 1.2.3.4.5 1.2.3.4 1 1\r\n",
    b"PROXY TCP4 1.2.3.256 1.2.3.4 1 1\r\n", b"PROXY TCP4 01.2.3.4 1.2.3.4 1 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.04 1 1\r\n", b"PROXY TCP4 0x7f.1 1.2.3.4 1 1\r\n",
    b"PROXY TCP4 1.2.3.4\0 1.2.3.4 1 1\r\n", b"PROXY TCP4 ::1 ::1 1 1\r\n",
    b"PROXY TCP4 1.2.3.4 ::1 1 1\r\n", b"PROXY TCP4 a.test 1.2.3.4 1 1\r\n",
    b"PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n", b"PROXY TCP6 ::1 ::1::1 1 1\r\n",
    b"PROXY TCP6 1:2:3:4:5:6:7 ::1 1 1\r\n", b"PROXY TCP6 12345::1 ::1 1 1\r\n",
    b"PROXY TCP6 fe80::1%eth0 ::1 1 1\r\n", b"PROXY TCP6 [::1] [::1] 1 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 00 1\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1 01\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 1\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 999999 1\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1x 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n", b"PROXY UNKNOWN\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\rx", b"PROXY UNKNOWN \r \r\n",
    b"PROXY UNKNOWN \n\r\n", b"PROXY UNKNOWN" + b" " * 94])
def test_a_line_that_the_standard_has_not_is_refused(line: bytes) -> None:
    assert read(line) == REFUSED


@pytest.mark.parametrize("octets", [
    b"GET http://a.test/ HTTP/1.1\r\n\r\n", b"CONNECT a.test:443 HTTP/1.1\r\n\r\n",
    b"PUT / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", b"\x05\x01\x00", b"\0", b"\xff",
    b" PROXY TCP4 1.2.3.4 1.2.3.4 1 1\r\n", b"\r\nGET / HTTP/1.1\r\n", b"\r\n\r\nGET",
    b"\n"])
def test_what_is_no_header_is_refused_at_the_first_octet_that_shows_it(
        octets: bytes) -> None:
    assert read(octets) == REFUSED
    same = next(n for n in range(len(octets)) if read_proxy_header(octets[:n + 1]))
    assert not any(start.startswith(octets[:same + 1])
                   for start in (b"PROXY ", SIGNATURE))


# Version 2


@pytest.mark.parametrize("source", ["203.0.113.9", V6])
@pytest.mark.parametrize("tlvs", [b"", build_tlv(4, b"x"), TLVS])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_binary_header_names_its_source(source, tlvs, checksum) -> None:
    header = build_binary(source, 4711, tlvs, checksum=checksum)
    assert read(header) == (packed(source), 4711)


def test_a_mapped_address_is_the_ipv4_one_in_both_versions() -> None:
    # Else one client would count as two for rules and limits
    for header in (build_line("::ffff:203.0.113.9"), build_line("::ffff:cb00:7109"),
                   build_binary("::ffff:203.0.113.9")):
        assert read(header) == (packed("203.0.113.9"), 50412)


@pytest.mark.parametrize("family", [0x00, 0x01, 0x02, 0x10, 0x20, 0x30, 0x31, 0x32,
                                    0x12, 0x22])
def test_what_is_no_tcp_names_nobody(family: int) -> None:
    rest = bytes(range(216))
    if family in (0x12, 0x22):
        size = 12 if family == 0x12 else 36
        rest = rest[:size]
    header = SIGNATURE + bytes((0x21, family)) + struct.pack(">H", len(rest)) + rest
    assert read(header) == (b"", 0)


@pytest.mark.parametrize("family", [0x00, 0x11, 0x21, 0x99, 0xFF])
@pytest.mark.parametrize("rest", [b"", b"x", b"\xff" * 300])
def test_local_names_nobody_whatever_its_family_and_content(family, rest) -> None:
    header = SIGNATURE + bytes((0x20, family)) + struct.pack(">H", len(rest)) + rest
    assert read(header) == (b"", 0)


@pytest.mark.parametrize("octet", [0x00, 0x01, 0x10, 0x11, 0x22, 0x2F, 0x31, 0xF1])
def test_another_version_or_command_is_refused(octet: int) -> None:
    assert read(SIGNATURE + bytes((octet, 0x11, 0, 12)) + bytes(12)) == REFUSED


@pytest.mark.parametrize("family", [0x40, 0x41, 0xF1, 0x13, 0x1F, 0x23, 0x33, 0x03])
def test_a_family_or_protocol_that_the_standard_has_not_is_refused(family: int) -> None:
    assert read(SIGNATURE + bytes((0x21, family, 0, 216)) + bytes(216)) == REFUSED


@pytest.mark.parametrize(("family", "size"), [(0x11, 12), (0x12, 12), (0x21, 36),
                                              (0x31, 216)])
def test_a_length_that_the_addresses_do_not_fit_is_refused(family, size) -> None:
    for n in (0, 1, size - 1):
        assert read(SIGNATURE + bytes((0x21, family, 0, n)) + bytes(n)) == REFUSED


def test_a_header_that_claims_more_than_has_come_is_not_whole() -> None:
    header = build_binary("203.0.113.9", tlvs=TLVS)
    longer = header[:14] + struct.pack(">H", len(header) - 16 + 1) + header[16:]
    assert read_proxy_header(longer) is None
    assert read(longer + b"\0") == REFUSED       # half a TLV


def test_the_length_is_bounded() -> None:
    filler = MOST - 16 - 12 - 3
    header = build_binary("203.0.113.9", tlvs=build_tlv(4, b"x" * filler))
    assert len(header) == MOST
    assert read_proxy_header(header)["length"] == MOST
    for length in (MOST - 16 + 1, 65535):
        for command in (0x20, 0x21):
            begin = SIGNATURE + bytes((command, 0x11)) + struct.pack(">H", length)
            assert read(begin) == REFUSED


@pytest.mark.parametrize("tlvs", [
    b"\x04", b"\x04\x00", b"\x04\x00\x01", b"\x04\xff\xff", build_tlv(4, b"") + b"\x05",
    build_tlv(3, b""), build_tlv(3, b"abc"), build_tlv(3, b"abcde"),
    build_tlv(3, b"abcd"), build_tlv(3, bytes(4))])
def test_tlvs_beyond_the_header_and_wrong_checksums_are_refused(tlvs: bytes) -> None:
    assert read(build_binary("203.0.113.9", tlvs=tlvs)) == REFUSED
    assert read(build_binary(V6, tlvs=TLVS + tlvs)) == REFUSED


def test_one_changed_bit_breaks_the_checksum() -> None:
    header = build_binary("203.0.113.9", tlvs=build_tlv(4, b"xy"), checksum=True)
    for at in range(16, len(header)):
        changed = bytearray(header)
        changed[at] ^= 1
        got = read_proxy_header(bytes(changed))
        # A checksum's own type is a bit as well: without it none is there
        assert got == REFUSED or at == 28
    twice = build_binary("203.0.113.9", tlvs=build_tlv(3, bytes(4)), checksum=True)
    assert read(twice) == REFUSED


def test_the_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283       # RFC 3720 B.4 has more of them
    assert crc32c(bytes(32)) == 0x8A9136AA


@settings(max_examples=400)
@given(st.one_of(
    st.binary(max_size=60), st.builds(bytes.__add__, st.just(SIGNATURE), st.binary()),
    st.builds(lambda text: b"PROXY " + text + b"\r\n", st.binary(max_size=100)),
    st.builds(build_binary, st.ip_addresses().map(str), st.integers(0, 65535),
              st.binary(max_size=20), checksum=st.booleans()),
    st.builds(build_line, st.ip_addresses().map(str))))
def test_any_octets_are_read_as_the_twin_reads_them(data: bytes) -> None:
    ours, theirs = read_proxy_header(data), read_twin(data)
    if isinstance(theirs, Named):
        assert ours == theirs._asdict()
    else:
        assert ours == theirs


NAMED = [
    (build_tlv(1, b"h2"), {"alpn": b"h2"}),
    (build_tlv(2, b"a.test") + build_tlv(5, b"\0\xff"),
     {"authority": b"a.test", "unique_id": b"\0\xff"}),
    (build_tlv(0x30, b"blue"), {"netns": b"blue"}),
    (build_tlv(0xEA, b"\1vpce-08d2bf15fac5001c9"),
     {"aws_vpce": b"vpce-08d2bf15fac5001c9"}),
    (build_tlv(0xEA, b"") + build_tlv(0xEA, b"\1") + build_tlv(0xEA, b"\2vpce"),
     {"type_ea": b"\2vpce"}),
    (build_tlv(4, b"x") + build_tlv(0xEE, b"\1abcd"), {"type_ee": b"\1abcd"}),
    (build_tlv(0xDF, b"x") + build_tlv(0xF0, b"x"), {}),
    (b"".join(build_tlv(0xE0 + i, b"x" * 240) for i in range(16)),
     {f"type_e{i:x}": b"x" * 240 for i in range(16)}),
    (build_tlv(2, b"first") + build_tlv(2, b"second"), {"authority": b"first"}),
    (build_tlv(2, b"x" * 256) + build_tlv(2, b"x" * 255), {"authority": b"x" * 255}),
    (build_tlv(1, b"x" * 255) + build_tlv(2, b"y" * 255) + build_tlv(5, b"z"),
     {"alpn": b"x" * 255, "authority": b"y" * 255, "unique_id": b"z"}),
    (build_ssl(build_tlv(0x21, b"TLSv1.3"), build_tlv(0x22, b"ann"),
               build_tlv(0x23, b"TLS_AES_128_GCM_SHA256")),
     {"tls_version": b"TLSv1.3", "tls_cn": b"ann",
      "tls_cipher": b"TLS_AES_128_GCM_SHA256"}),
    (build_ssl(build_tlv(0x22, b"ann"), verify=1), {}),
    (build_ssl(build_tlv(0x22, b"ann"), client=1), {}),
    (build_ssl(build_tlv(0x21, b"TLSv1.3"), b"\x22\0\x09ann"),
     {"tls_version": b"TLSv1.3"}),
    (build_tlv(0x21, b"TLSv1.3") + build_tlv(0x20, b"\7\0\0\0"), {})]


@pytest.mark.parametrize(("tlvs", "kept"), NAMED)
def test_tlvs_with_a_name_are_kept(tlvs: bytes, kept: dict[str, bytes]) -> None:
    """The name in a client certificate: only if the sender has verified it."""
    for source in ("203.0.113.9", V6):
        header = build_binary(source, tlvs=tlvs)
        read(header)
        assert read_proxy_header(header)["tlvs"] == kept


@given(st.lists(st.one_of(
    st.builds(build_tlv, st.sampled_from([1, 2, 4, 5, 0x21, 0x30, 0xE0, 0xEA, 0xF0]),
              st.binary(max_size=300)),
    st.builds(build_ssl, st.binary(max_size=20), client=st.integers(0, 7),
              verify=st.integers(0, 1)),
    st.builds(build_ssl, st.builds(build_tlv, st.integers(0x20, 0x24),
                                   st.binary(max_size=300))))).map(b"".join))
def test_kept_tlvs_are_those_of_the_twin(tlvs: bytes) -> None:
    header = build_binary("203.0.113.9", tlvs=tlvs[:3000])
    ours, theirs = read_proxy_header(header), read_twin(header)
    assert ours == (theirs._asdict() if isinstance(theirs, Named) else theirs)
