"""Forbidden addresses, in spellings that have got past proxies.

Each case has the host of a request, the kind of disguise, and the address behind it.
The doctor's own name server answers for the names, with the answers made by `names`.
"""

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

# One of each kind of place, the metadata services among them (R27).
V4 = ("127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1",
      "100.64.0.1", "100.100.100.200", "168.63.129.16", "0.0.0.0", "198.18.0.1")
V4_PLAIN = (*V4, "127.255.255.254", "192.0.0.192", "192.0.2.1", "224.0.0.1",
            "240.0.0.1", "255.255.255.255", "192.88.99.1", "169.254.170.2")
V6_PLAIN = ("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254",
            "fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1",
            "64:ff9b:1::7f00:1", "5f00::1", "2001:10::1", "2001:2::1", "4000::1")
# The addresses that are tried in every form of number.
NUMBERED = V4[:4]
ZONE = "ssrf.doctor.test"
# From the returned 6bone (RFC 3701): a public address, unused and not routed. Answers
# with it also have a refused IPv4 address, because c-ares caches the absence of a
# family's addresses even if the TTL is zero.
NOWHERE = "3ffe:ffff::d0c"


class Disguise(NamedTuple):
    kind: str
    host: str                   # as in a request, brackets included
    address: str                # the address behind it; "": the host is invalid
    zone: tuple[tuple[str, ...], ...] = ()      # answers, one after the other

    @property
    def first(self) -> tuple[str, ...]:
        """The addresses of a name's first answer, which are allowed, and so dialled."""
        return self.zone[0] if len(self.zone) > 1 else ()


def disguises() -> list[Disguise]:
    """All of them."""
    cases = [Disguise("plain", text, text) for text in V4_PLAIN]
    cases += [Disguise("plain IPv6", f"[{text}]", text) for text in V6_PLAIN]
    cases += [Disguise(kind, host, text) for text in NUMBERED
              for kind, host in numbers(text)]
    cases += [Disguise(kind, f"[{host}]", host.lower()) for text in V4
              for kind, host in embeddings(text)]
    cases.append(Disguise("zone", "[::1%25lo]", "::1"))      # RFC 6874
    cases += names()
    cases += [Disguise("unreadable", host, "") for host in UNREADABLE]
    return cases


def numbers(text: str) -> Iterator[tuple[str, str]]:
    """The forms of inet_aton(3) for an IPv4 address, except the dotted quad."""
    whole = int(ipaddress.IPv4Address(text))
    a, b, c, d = whole.to_bytes(4, "big")
    yield "decimal", str(whole)
    yield "octal", f"0{whole:o}"
    yield "octal", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}"
    yield "octal", f"{a:#06o}.{b}.{c}.{d}".replace("0o", "00")
    yield "hex", f"0x{whole:x}"
    yield "hex", f"0X{whole:08X}"
    yield "hex", f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"
    yield "mixed", f"0x{a:x}.0{b:o}.{c}.{d}"
    yield "short", f"{a}.{b}.{c << 8 | d}"
    yield "short", f"{a}.{b << 16 | c << 8 | d}"
    yield "short", f"0x{a:x}.{b << 16 | c << 8 | d}"
    yield "trailing dot", f"{text}."
    yield "trailing dot", f"{whole}."


def embeddings(text: str) -> Iterator[tuple[str, str]]:
    """IPv6 addresses that embed it (RFC 4291, 2765, 6052, 3056, 4380, 5214)."""
    whole = int(ipaddress.IPv4Address(text))
    high, low = whole >> 16, whole & 0xffff
    turned = whole ^ 0xffffffff
    yield "mapped", f"::ffff:{text}"
    yield "mapped", f"::FFFF:{high:x}:{low:x}"
    yield "compatible", f"::{text}"
    yield "translated", f"::ffff:0:{high:x}:{low:x}"
    yield "nat64", f"64:ff9b::{text}"
    yield "6to4", f"2002:{high:x}:{low:x}::1"
    yield "teredo", f"2001:0:808:808:0:0:{turned >> 16:x}:{turned & 0xffff:x}"
    yield "isatap", f"2600:1:2:3:0:5efe:{high:x}:{low:x}"


def names() -> list[Disguise]:
    """Names with forbidden addresses, at the first query or only at the second."""
    cases = [Disguise("localhost", host, "127.0.0.1")
             for host in ("localhost", "LOCALHOST", "localhost.", "a.localhost")]
    for i, text in enumerate((*V4, *V6_PLAIN)):
        cases.append(Disguise("name", f"n{i}.{ZONE}", text, ((text,),)))
    for i, (_, text) in enumerate(embeddings(V4[0])):
        cases.append(Disguise("name", f"e{i}.{ZONE}", text, ((text.lower(),),)))
    cases.append(Disguise("name", f"TWO.{ZONE}.", V4[0], ((V4[0], V4[2]),)))
    for i, text in enumerate(("127.0.0.1", "169.254.169.254", "10.0.0.1", "::1",
                              "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe")):
        cases.append(Disguise("rebinding", f"r{i}.{ZONE}", text,
                              ((NOWHERE, "192.0.2.1"), (text,))))
    return cases


# Some parsers read these as addresses, others do not: only a 400 is correct.
UNREADABLE = (
    "127.0.0.1.1", "4294967296", "127.0.0.256", "127.1.65536", "0x7f.0x", "0x100000000",
    "08.0.0.1", "127..1", ".127.0.0.1", "127.0.0.1..", "%31%32%37.0.0.1",
    "127.0.0.1%00", "127.0.0.1%2f", "example.com@127.0.0.1", "[127.0.0.1]",
    "[::1%lo]", "[::1", "[::ffff:127.0.0.1", "[v1.a]", "[::ffff:0x7f.1]",
    "①②⑦.⓪.⓪.①", "127。0。0。1", "１２７.0.0.1", "127.0.0.1\\a", "127.0.0.1,10.0.0.1",
    "127.0.0.1;a")
