"""A number selects a source's address; a socket gets it before it connects."""

import collections
import contextlib
import ipaddress
import socket
import subprocess
import sys

import pytest

from cutthrough.net.source_address import Source
from tests.support.network import own_network

FOUR = tuple(f"192.0.2.{n}" for n in range(1, 5))
SIX = ("2001:db8::1", "2001:db8::2")
DRAWS = range(400)
SO_BINDTODEVICE, SO_MARK = socket.SO_BINDTODEVICE, socket.SO_MARK
IPV6_TCLASS = socket.IPV6_TCLASS


@contextlib.contextmanager
def prepared(source, family=4, draw=0):
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with socket.socket(kind) as sock:
        source.apply(sock.fileno(), family, draw)
        yield sock


def selected(source, family=4):
    return [source.address_for(family, draw) for draw in DRAWS]


# Which address


def test_equal_numbers_select_equal_addresses_and_all_are_used_alike():
    first, again = (selected(Source(addresses=FOUR)) for _ in range(2))
    assert first == again
    counts = collections.Counter(first)
    assert set(counts) == set(FOUR) and min(counts.values()) > 60


def test_an_address_that_is_removed_moves_only_its_own():
    before, after = selected(Source(addresses=FOUR)), selected(
        Source(addresses=FOUR[1:]))
    for was, now in zip(before, after, strict=True):
        assert now == was or was == FOUR[0]


def test_the_order_of_addresses_selects_nothing():
    assert selected(Source(addresses=FOUR)) == selected(Source(addresses=FOUR[::-1]))


def test_each_family_has_its_own_addresses():
    source = Source(addresses=(*FOUR, *SIX))
    assert set(selected(source, 6)) == set(SIX)
    assert set(selected(Source(addresses=FOUR), 6)) == {None}, "the kernel's"


@pytest.mark.parametrize("prefix", [
    "2001:db8::/64", "2001:db8::/32", "2001:db8:0:8::/61", "2001:db8::f0/124",
    "192.0.2.0/24", "192.0.2.128/25", "10.0.0.0/8", "192.0.2.4/30"])
def test_a_drawn_address_is_in_the_prefix_and_every_bit_of_the_host_is_drawn(prefix):
    network = ipaddress.ip_network(prefix)
    found = {ipaddress.ip_address(text)
             for text in selected(Source(prefix=prefix), network.version)}
    assert all(one in network for one in found)
    host = int(network.hostmask)
    for value in (0, 1):
        seen = 0
        for one in found:
            seen |= (int(one) if value else ~int(one)) & host
        assert seen == host, f"bits that are never {value}"


def test_addresses_and_a_prefix_serve_a_family_each():
    source = Source(addresses=FOUR, prefix="2001:db8::/64")
    assert set(selected(source)) == set(FOUR)
    assert len(set(selected(source, 6))) == len(DRAWS)


# Settings of the socket


@pytest.mark.parametrize(("family", "address"), [(4, "127.0.0.9"), (6, "::1")])
def test_a_socket_has_the_address_and_no_port_before_it_connects(family, address):
    with prepared(Source(addresses=(address,)), family) as sock:
        assert sock.getsockname()[:2] == (address, 0)


def test_the_port_is_taken_for_one_destination_only():
    """One port serves two destinations: IP_BIND_ADDRESS_NO_PORT."""
    source = Source(addresses=("127.0.0.9",))
    ports = "/proc/sys/net/ipv4/ip_local_port_range"
    with own_network(), contextlib.ExitStack() as opened:
        servers = [opened.enter_context(socket.create_server((host, 3128)))
                   for host in ("127.0.0.1", "127.0.0.2")]
        with open(ports, "w") as file:
            file.write("40000 40003")
        for server in servers:
            for _ in range(4):
                sock = opened.enter_context(prepared(source))
                sock.connect(server.getsockname())
                assert sock.getsockname()[0] == "127.0.0.9"


def test_an_address_of_another_host_is_refused():
    with pytest.raises(OSError, match="Errno 99"), prepared(
            Source(addresses=("192.0.2.1",))):
        pass


@pytest.mark.parametrize(("family", "prefix"), [(4, "192.0.2.0/24"),
                                                (6, "2001:db8:5::/64")])
def test_an_address_of_a_prefix_need_not_be_configured(family, prefix):
    with prepared(Source(prefix=prefix), family, draw=7) as sock:
        assert ipaddress.ip_address(sock.getsockname()[0]) in ipaddress.ip_network(
            prefix)


def test_device_mark_and_class_are_the_socket_s():
    source = Source(device="lo", mark=0xFFFFFFFE, dscp=46)
    with own_network():
        with prepared(source) as sock:
            name = sock.getsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, 16)
            assert name[:3] == b"lo\0"
            assert sock.getsockopt(socket.SOL_SOCKET, SO_MARK) + 2 in (0, 1 << 32)
            assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 46 << 2
            assert sock.getsockname() == ("0.0.0.0", 0)
        with prepared(source, 6) as sock:
            assert sock.getsockopt(socket.IPPROTO_IPV6, IPV6_TCLASS) == 46 << 2


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(OSError, match="Errno 19"), prepared(Source(device="wan7")):
        pass


def test_a_mark_needs_a_capability():
    code = ("import socket\nfrom cutthrough.net.source_address import Source\n"
            "one = socket.socket()\nSource(mark=1).apply(one.fileno(), 4, 0)")
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all",
         sys.executable, "-c", code],
        capture_output=True, text=True, check=False)
    if "setpriv:" in done.stderr:            # only root may shrink the bounding set
        pytest.skip(done.stderr)
    assert "[Errno 1]" in done.stderr


@pytest.mark.parametrize("wrong", [
    {"addresses": ["192.0.2.1.1"]}, {"prefix": "2001:db8::1/64"},
    {"device": "a name that is too long"}])
def test_what_is_no_source_is_refused(wrong):
    with pytest.raises(ValueError):
        Source(**wrong)
