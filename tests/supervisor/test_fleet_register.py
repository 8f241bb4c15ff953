"""A program's entry in the registry: its address and its revision."""

from typing import Any

import pytest

from cutthrough.config.config import Config
from cutthrough.config.listeners import Listener
from cutthrough.config.settings import load
from cutthrough.generation.generation import Generation
from cutthrough.policy.source import Limits, Policy
from cutthrough.supervisor.fleet_register import public_url, revision_of

KEY, OTHER = bytes(32), bytes(31) + b"1"


@pytest.mark.parametrize(("public", "shown", "url", "reason"), [
    ("", "192.0.2.1:9090", "http://192.0.2.1:9090", ""),
    ("", "[2001:db8::1]:9090", "http://[2001:db8::1]:9090", ""),
    ("", "127.0.0.1:9090", "", "on loopback"), ("", "[::1]:9090", "", "on loopback"),
    ("", "unix:/run/admin", "", "a unix socket"), ("", "", "", "no admin listener"),
    ("", "0.0.0.0:9090", "", "all addresses"), ("", "[::]:9090", "", "all addresses"),
    ("https://Edge.example", "127.0.0.1:9090", "https://edge.example:443", ""),
    ("http://[::1]", "unix:/run/admin", "http://[::1]:80", ""),
    ("http://192.0.2.1:9090/", "0.0.0.0:9090", "http://192.0.2.1:9090", "")])
def test_the_address_is_one_that_others_reach(public, shown, url, reason):
    config = load(["--admin-public", public] if public else [])
    said, why = public_url(config, shown)
    assert said == url and reason in why and bool(url) != bool(why)


def revision(key: bytes = KEY, policy: Policy | None = None, **options: Any) -> str:
    return revision_of(key, Generation(7, Config(**options), policy or Policy()))


def test_a_revision_is_of_policy_and_options_that_hosts_share():
    same = revision()
    assert len(same) == 12 and int(same, 16)
    assert same == revision(listen=(("127.0.0.1", 1),), via="other", workers=3,
                            admin="127.0.0.1:9", admin_public="http://a:1")
    ann = revision(user="ann", password="of a host")
    assert ann == revision(user="ann", password="of another") != same
    assert same != revision(head_timeout=11.0)
    assert same != revision(policy=Policy(limits={"default": Limits(tunnels=1)}))
    assert same != revision(OTHER), "a reader of Redis can try no guesses"


def test_a_listener_counts_without_its_address():
    first, second, other = (
        revision(listen=(), listeners=(Listener(address=("127.0.0.1", port), udp=udp,
                                                protocols=("http", "socks5")),))
        for port, udp in ((1, False), (2, False), (1, True)))
    assert first == second != other
