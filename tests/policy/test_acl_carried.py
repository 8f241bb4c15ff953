"""The compiled rules, for IPv6 addresses that carry IPv4 (R27)."""

import ipaddress

import pytest

from cutthrough.policy.answer import Caller
from tests.policy.acls import acl_of, allow, deny, report

CARRYING = [            # 8.8.8.8, as it may be written in IPv6
    "64:ff9b::808:808", "2002:808:808::1", "2001:0:1:2:3:4:f7f7:f7f7",
    "2001:0:808:808::1", "::808:808", "::ffff:0:808:808", "::ffff:8.8.8.8",
    "2a00::5efe:808:808", "fe80::200:5efe:808:808", "64:ff9b:1::808:808",
    "64:ff9b:1:808:8:800::", "64:ff9b:1:8:8:808::", "64:ff9b:1:0:8:808:800:0"]


@pytest.mark.parametrize("address", CARRYING)
def test_a_deny_matches_the_ipv4_address_that_an_ipv6_one_carries(address):
    """`deny 8.8.8.0/24` let 64:ff9b::808:808 pass, which a NAT64 turns into 8.8.8.8."""
    for rule in (deny(addresses=("8.8.8.0/24",)), deny(hosts=("8.8.8.8",)),
                 deny(hosts=("a.b",), addresses=("8.8.8.0/24",))):
        acl = acl_of(rule, default="allow")
        asked = acl.ask(host="a.b", port=443, address=address)
        assert (asked.outcome, asked.rule) == ("destination_denied", 0)
        assert asked.looked == ((0, ""),)
    for rule in (deny(addresses=("8.8.8.0/24",)), deny(hosts=("8.8.8.8",))):
        asked = acl_of(rule, default="allow").ask(host=f"[{address}]", port=443)
        assert asked.outcome == "destination_denied"
    other = acl_of(deny(addresses=("8.8.9.0/24",)), default="allow")
    assert other.ask(host="a.b", port=443, address=address).outcome == "ok"


@pytest.mark.parametrize("address", CARRYING)
def test_an_allow_must_match_the_address_that_is_dialled(address):
    acl = acl_of(allow(addresses=("8.8.8.0/24",)), report(addresses=("8.8.8.0/24",)))
    asked = acl.ask(host="a.b", port=443, address=address)
    if "8.8.8.8" in address:            # mapped: another way to write the same address
        assert (asked.rule, asked.opens_floor) == (0, True)
        return
    assert (asked.outcome, asked.rule) == ("destination_denied", -1)
    assert asked.looked == ((0, "address"), (1, "address"))
    network = str(ipaddress.ip_network(f"{address}/32", strict=False))
    acl = acl_of(allow(addresses=(network,)), deny(addresses=("8.8.8.0/24",)))
    assert acl.ask(host="a.b", port=443, address=address).opens_floor


@pytest.mark.parametrize(("address", "network"), [
    ("0.0.0.0", "127.0.0.0/8"), ("::ffff:0.0.0.0", "127.0.0.0/8"), ("::", "::1/128")])
def test_the_unspecified_address_is_loopback_to_a_deny(address, network):
    """The kernel connects to it there: `deny 127.0.0.0/8` let 0.0.0.0 pass."""
    all_others = allow(addresses=("0.0.0.0/0", "::/0"))
    for rule in (deny(addresses=(network,)), deny(hosts=(network.partition("/")[0],))):
        if rule.hosts and "::" not in network:
            rule = deny(hosts=("127.0.0.1",))
        asked = acl_of(rule, all_others).ask(host="a.b", port=80, address=address)
        assert (asked.outcome, asked.rule) == ("destination_denied", 0)
    acl = acl_of(allow(addresses=(network,)))
    assert acl.ask(host="a.b", port=80, address=address).outcome != "ok"
    acl = acl_of(deny(addresses=("10.0.0.0/8", "2001:db8::/32")), all_others)
    assert acl.ask(host="a.b", port=80, address=address).outcome == "ok"


def test_a_client_is_judged_by_the_address_that_it_comes_from():
    acl = acl_of(deny(clients=("10.0.0.0/8",)), default="allow")
    carried, carrying = (Caller(client=text) for text in (
        "::ffff:10.0.0.1", "2002:a00:1::1"))
    assert acl.ask(host="a.b", port=1, caller=carried).outcome != "ok"
    assert acl.ask(host="a.b", port=1, caller=carrying).outcome == "ok"
