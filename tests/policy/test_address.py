"""The class of an address, row by row of the registries (R27)."""

import ipaddress

import pytest

from cutthrough.policy.address import SPECIAL_V4, SPECIAL_V6, class_of
from tests.doors.policy import is_public_address

# The IANA special-purpose address registries, every row, as of 9 October 2025.
REGISTRY = [
    ("0.0.0.0/8", "this-network"),
    ("0.0.0.0/32", "unspecified"),
    ("10.0.0.0/8", "private-use"),
    ("100.64.0.0/10", "shared"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private-use"),
    ("192.0.0.0/24", "protocol-assignments"),
    ("192.0.0.0/29", "service-continuity"),
    ("192.0.0.8/32", "dummy"),
    ("192.0.0.9/32", "pcp-anycast"),
    ("192.0.0.10/32", "turn-anycast"),
    ("192.0.0.170/32", "nat64-discovery"),
    ("192.0.0.171/32", "nat64-discovery"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "as112"),
    ("192.52.193.0/24", "amt"),
    ("192.88.99.0/24", "6to4-relay"),
    ("192.88.99.2/32", "6a44-relay"),
    ("192.168.0.0/16", "private-use"),
    ("192.175.48.0/24", "as112"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("240.0.0.0/4", "reserved"),
    ("255.255.255.255/32", "broadcast"),
    ("::1/128", "loopback"),
    ("::/128", "unspecified"),
    ("::ffff:0:0/96", "ipv4-mapped"),
    ("64:ff9b:1::/48", "nat64-local"),
    ("100::/64", "discard-only"),
    ("100:0:0:1::/64", "dummy"),
    ("2001::/23", "protocol-assignments"),
    ("2001:1::1/128", "pcp-anycast"),
    ("2001:1::2/128", "turn-anycast"),
    ("2001:1::3/128", "srp-anycast"),
    ("2001:2::/48", "benchmarking"),
    ("2001:3::/32", "amt"),
    ("2001:4:112::/48", "as112"),
    ("2001:10::/28", "orchid"),
    ("2001:20::/28", "orchid"),
    ("2001:30::/28", "drone-id"),
    ("2001:db8::/32", "documentation"),
    ("2620:4f:8000::/48", "as112"),
    ("3fff::/20", "documentation"),
    ("5f00::/16", "segment-routing"),
    ("fc00::/7", "unique-local"),
    ("fe80::/10", "link-local"),
]
# Rows that carry an IPv4 address: public if that is, and so not in the list above.
CARRIERS = ["64:ff9b::/96", "2001::/32", "2002::/16"]
# Not in the registries, and no destination either.
MORE = [
    ("100.100.100.200/32", "cloud-metadata"),
    ("168.63.129.16/32", "cloud-metadata"),
    ("169.254.169.254/32", "cloud-metadata"),
    ("169.254.170.2/32", "cloud-metadata"),
    ("169.254.170.23/32", "cloud-metadata"),
    ("192.0.0.192/32", "cloud-metadata"),
    ("fd00:ec2::23/128", "cloud-metadata"),
    ("fd00:ec2::254/128", "cloud-metadata"),
    ("fd20:ce::254/128", "cloud-metadata"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("fec0::/10", "site-local"),
    ("::/0", "reserved"),
]
EXPECTED = {ipaddress.ip_network(text): name for text, name in REGISTRY + MORE}

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "1.0.0.0", "9.255.255.255", "11.0.0.0",
    "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15",
    "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
    "191.255.255.255", "192.0.1.1", "192.0.3.0", "192.31.195.255", "192.31.197.0",
    "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0",
    "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255",
    "203.0.114.0", "223.255.255.255", "2000::", "2001:200::", "2001:4860:4860::8888",
    "2001:db7:ffff::1", "2001:db9::", "2003::", "2606:4700::1111", "2620:4f:7fff::1",
    "2620:4f:8001::", "2a00:1450::1", "3ffe::1", "3fff:1000::",
    "64:ff9b::8.8.8.8", "2002:0808:0808::1",
    # Teredo: server 8.8.8.8, client 8.8.8.8 with its bits turned
    "2001:0:808:808:0:0:f7f7:f7f7", "2a00::5efe:8.8.8.8", "2a00::200:5efe:8.8.8.8",
    # Not ISATAP, though it ends as it does
    "2a00::1:5efe:10.0.0.1", "2a00::100:5efe:10.0.0.1",
]

EMBEDDED = [
    ("::ffff:127.0.0.1", "ipv4-mapped:loopback"),
    ("::ffff:169.254.169.254", "ipv4-mapped:cloud-metadata"),
    ("::ffff:8.8.8.8", "ipv4-mapped"),
    ("::127.0.0.1", "ipv4-compatible:loopback"),
    ("::8.8.8.8", "ipv4-compatible"),
    ("::2", "ipv4-compatible:this-network"),
    ("::ffff:0:10.0.0.1", "ipv4-translated:private-use"),
    ("::ffff:0:8.8.8.8", "ipv4-translated"),
    ("64:ff9b::10.0.0.1", "nat64:private-use"),
    ("64:ff9b::169.254.169.254", "nat64:cloud-metadata"),
    ("64:ff9b::0.0.0.0", "nat64:unspecified"),
    ("64:ff9b:1::8.8.8.8", "nat64-local"),
    ("64:ff9b:1:ffff::10.0.0.1", "nat64-local"),
    ("64:ff9b:2::8.8.8.8", "reserved"),
    ("2002:7f00:1::", "6to4:loopback"),
    ("2002:a9fe:a9fe::1", "6to4:cloud-metadata"),
    ("2002:c0a8:101:1::1", "6to4:private-use"),
    # Teredo: client 192.168.1.1 (bits turned), then server 10.0.0.1
    ("2001:0:808:808:0:0:3f57:fefe", "teredo:private-use"),
    ("2001:0:a00:1::f7f7:f7f7", "teredo:private-use"),
    ("2a00::5efe:10.0.0.1", "isatap:private-use"),
    ("2a00::200:5efe:127.0.0.1", "isatap:loopback"),
    ("fe80::5efe:10.0.0.1", "link-local"),
    ("4000::1", "reserved"), ("e000::1", "reserved"), ("64:ff9a::1", "reserved"),
    ("200::1", "reserved"), ("1fff::1", "reserved"),
]


def class_expected(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """By the narrowest of the rows above."""
    rows = [net for net in EXPECTED if address in net and net.prefixlen]
    if rows:
        return EXPECTED[max(rows, key=lambda net: net.prefixlen)]
    if address.version == 6 and address not in ipaddress.ip_network("2000::/3"):
        return "reserved"
    return "public"


@pytest.mark.parametrize(("text", "name"), [
    row for row in REGISTRY + MORE if row[0] not in ("::ffff:0:0/96", "::/0")])
def test_every_row_is_closed_from_its_first_address_to_its_last(text, name):
    network = ipaddress.ip_network(text)
    for address in (network[0], network[-1], network[network.num_addresses // 2]):
        assert not is_public_address(str(address))
        # At the start of 2001::/23, Teredo's row is the narrower one.
        if address not in ipaddress.ip_network("2001::/32"):
            assert class_of(str(address)) == class_expected(address)
            assert class_of(address.packed) == class_expected(address)
    assert any(class_of(str(network[n])) == name
               for n in {min(i, network.num_addresses - 1) for i in (0, 1, 3, 7)}
               ) or class_of(str(network[-1])) == name


def test_the_tables_have_the_rows_of_the_registries_and_no_others():
    told = dict(SPECIAL_V4 + SPECIAL_V6)
    assert told.pop("2000::/3") == "public"
    rows = dict(REGISTRY + MORE)
    assert rows.pop("::ffff:0:0/96") == "ipv4-mapped"   # looked into, as CARRIERS are
    assert told == rows
    assert not set(CARRIERS) & set(told)


@pytest.mark.parametrize("text", PUBLIC)
def test_an_ordinary_address_is_public(text):
    assert is_public_address(text)
    assert class_of(text) == "public"


@pytest.mark.parametrize(("text", "name"), EMBEDDED)
def test_an_address_is_no_more_public_than_the_one_it_carries(text, name):
    assert not is_public_address(text)
    assert class_of(text) == name


def test_nothing_that_the_standard_library_calls_private_is_public():
    for first in range(256):
        for second in (0, 16, 18, 31, 51, 64, 88, 100, 127, 168, 254):
            address = ipaddress.ip_address(f"{first}.{second}.100.7")
            if not address.is_global or address.is_multicast:
                assert not is_public_address(str(address)), address


def test_what_is_no_address_is_an_error():
    for ask in (is_public_address, class_of):
        with pytest.raises(ValueError):
            ask("localhost")
