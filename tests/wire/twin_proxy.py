"""The slow, obvious twin of wire/proxy_header, by sections of proxy-protocol.txt.

Answers None for "more bytes, please", the refusal's label, or its result.
"""

import ipaddress
import re
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

MOST = 4096
LINE = 107
SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
REFUSED = "bad_proxy_header"
PORT = rb"(0|[1-9][0-9]{0,4})"
TCP = re.compile(rb"PROXY TCP([46]) ([^ ]+) ([^ ]+) " + PORT + b" " + PORT, re.S)
UNKNOWN = re.compile(rb"PROXY UNKNOWN( .*)?", re.S)
# Bytes of both addresses and ports
SIZES = {1: 12, 2: 36, 3: 216}


class Named(NamedTuple):
    """The client; `address` is packed, or b"" if the header names none."""

    length: int
    address: bytes
    port: int
    tlvs: Mapping[str, bytes] = MappingProxyType({})


def read_proxy_header(data: bytes) -> Named | str | None:
    for start, read in ((b"PROXY ", read_line), (SIGNATURE, read_binary)):
        if data.startswith(start):
            return read(data)
        if start.startswith(data):
            return None
    return REFUSED


def read_line(data: bytes) -> Named | str | None:
    """Section 2.1."""
    seen = data[:LINE]
    ended = re.match(rb"([^\r\n]*)\r\n", seen)
    if ended is None:
        whole = re.fullmatch(rb"[^\r\n]*\r?", seen) is None or len(seen) == LINE
        return REFUSED if whole else None
    if UNKNOWN.fullmatch(ended[1]):
        return Named(len(ended[0]), b"", 0)
    match = TCP.fullmatch(ended[1])
    if match is None or max(int(match[4]), int(match[5])) > 65535:
        return REFUSED
    kind = ipaddress.IPv4Address if match[1] == b"4" else ipaddress.IPv6Address
    try:
        source, _ = (kind(text.decode("ascii")) for text in (match[2], match[3]))
        if b"%" in match[2] + match[3]:      # a zone is no part of an address here
            return REFUSED
    except ValueError:
        return REFUSED
    return Named(len(ended[0]), unmapped(source.packed), int(match[4]))


def read_binary(data: bytes) -> Named | str | None:
    """Section 2.2."""
    if len(data) > 12 and data[12] not in (0x20, 0x21):
        return REFUSED
    if len(data) < 16:
        return None
    family, protocol = divmod(data[13], 16)
    (length,) = struct.unpack(">H", data[14:16])
    is_local = data[12] == 0x20
    names_nobody = is_local or 0 in (family, protocol)
    if 16 + length > MOST:
        return REFUSED
    if not is_local and (family > 3 or protocol > 2):
        return REFUSED
    if not names_nobody and length < SIZES[family]:
        return REFUSED
    if len(data) < 16 + length:
        return None
    header = data[:16 + length]
    if names_nobody:
        return Named(len(header), b"", 0)
    if not are_tlvs_valid(header, header[16 + SIZES[family]:]):
        return REFUSED
    if family == 3 or protocol == 2:
        return Named(len(header), b"", 0)
    size = 4 if family == 1 else 16
    (port,) = struct.unpack(">H", header[16 + 2 * size:18 + 2 * size])
    return Named(len(header), unmapped(header[16:16 + size]), port,
                 read_tlvs(header[16 + SIZES[family]:]))


# Section 2.2, and AWS's type
NAMES = {1: "alpn", 2: "authority", 5: "unique_id", 0x30: "netns",
         **{kind: f"type_{kind:02x}" for kind in range(0xE0, 0xF0)}}
SSL_NAMES = {0x21: "tls_version", 0x22: "tls_cn", 0x23: "tls_cipher"}


def read_tlvs(rest: bytes) -> dict[str, bytes]:
    """TLVs with a name: the first of a kind."""
    kept: dict[str, bytes] = {}

    def keep(name: str | None, value: bytes) -> None:
        if name and name not in kept and 0 < len(value) < 256:
            kept[name] = value

    for kind, value in split_tlvs(rest):
        if kind == 0x20 and len(value) >= 5:
            is_verified = value[0] & 6 and value[1:5] == bytes(4)
            for inner, text in split_tlvs(value[5:]):
                if inner != 0x22 or is_verified:
                    keep(SSL_NAMES.get(inner), text)
        elif kind == 0xEA and value[:1] == b"\1":
            keep("aws_vpce", value[1:])
        else:
            keep(NAMES.get(kind), value)
    return kept


def split_tlvs(rest: bytes) -> list[tuple[int, bytes]]:
    found = []
    while len(rest) >= 3:
        kind, n = struct.unpack(">BH", rest[:3])
        if len(rest) < 3 + n:
            break
        found.append((kind, rest[3:3 + n]))
        rest = rest[3 + n:]
    return found


def are_tlvs_valid(header: bytes, rest: bytes) -> bool:
    """Section 2.2, and 2.2.3 of the checksum."""
    sums = []
    while rest:
        if len(rest) < 3:
            return False
        kind, n = struct.unpack(">BH", rest[:3])
        value, rest = rest[3:3 + n], rest[3 + n:]
        if len(value) < n:
            return False
        if kind == 3:
            sums.append((value, len(header) - len(rest) - n))
    if not sums:
        return True
    (value, at), *more = sums
    if more or len(value) != 4:
        return False
    return value == struct.pack(">I", crc32c(header[:at] + bytes(4) + header[at + 4:]))


def unmapped(packed: bytes) -> bytes:
    mapped = len(packed) == 16 and ipaddress.IPv6Address(packed).ipv4_mapped
    return mapped.packed if mapped else packed


def crc32c(data: bytes) -> int:
    """RFC 4960 appendix B, bit by bit."""
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# Headers as a load balancer writes them, for the tests

def build_line(source: str, destination: str = "192.0.2.1", port: int = 50412) -> bytes:
    kind = "TCP6" if ":" in source else "TCP4"
    if kind == "TCP6":
        destination = "2001:db8::1"
    return f"PROXY {kind} {source} {destination} {port} 3128\r\n".encode()


def build_tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


def build_ssl(*tlvs: bytes, client: int = 7, verify: int = 0) -> bytes:
    return build_tlv(0x20, struct.pack(">BI", client, verify) + b"".join(tlvs))


def build_binary(source: str = "", port: int = 50412, tlvs: bytes = b"", *,
                 command: int = 1, checksum: bool = False) -> bytes:
    """Without a `source` UNSPEC, as LOCAL has it."""
    family, addresses = 0, b""
    if source:
        packed = ipaddress.ip_address(source).packed
        family = 0x11 if len(packed) == 4 else 0x21
        addresses = packed + packed + struct.pack(">HH", port, 3128)
    if checksum:
        tlvs = build_tlv(3, bytes(4)) + tlvs
    header = SIGNATURE + struct.pack(
        ">BBH", 0x20 | command, family, len(addresses + tlvs)) + addresses + tlvs
    if checksum:
        at = 16 + len(addresses) + 3
        header = header[:at] + struct.pack(">I", crc32c(header)) + header[at + 4:]
    return header
