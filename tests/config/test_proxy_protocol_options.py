"""Which listeners are for load balancers, and which peers may call them (R40, R50)."""

import re

import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import from_options, load

ME = {"user": "me", "password": "secret"}
FROM = {"proxy_protocol_from": "192.0.2.0/24"}


@pytest.mark.parametrize(("options", "key", "reason"), [
    ({"listen": "192.0.2.1:1", "proxy_protocol": "192.0.2.1:1"}, "proxy_protocol",
     "any caller could name any client: give --proxy-protocol-from"),
    ({"proxy_protocol": "127.0.0.1:8888"}, "proxy_protocol", "any caller could name"),
    ({"listen": "127.0.0.1:1", "proxy_protocol": "127.0.0.1:2", **FROM},
     "proxy_protocol", "127.0.0.1:2 is not in listen"),
    ({"listen": "127.0.0.1:1", "proxy_protocol": "127.0.0.1:0", **FROM},
     "proxy_protocol", "127.0.0.1:0 is not in listen"),
    (FROM, "proxy_protocol_from", "has no effect without --proxy-protocol"),
    ({"proxy_protocol_from": "192.0.2.1/24"}, "proxy_protocol_from",
     "did you mean 192.0.2.0/24?"),
    ({"proxy_protocol_from": "lb.example"}, "proxy_protocol_from", "is not a network"),
    ({"proxy_protocol_from": "10.0.0.0/33"}, "proxy_protocol_from", "is not a network"),
])
def test_what_would_trust_everybody_or_nobody_is_refused(options, key, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        from_options(**ME, **options)
    assert caught.value.key == key


def test_networks_are_read_in_one_spelling():
    config = load(["--user", "a", "--password", "b",
                   "--proxy-protocol", "localhost:8888",
                   "--proxy-protocol-from", "10.0.0.0/8,2001:DB8::/32",
                   "--proxy-protocol-from", "192.0.2.7"])
    assert config.proxy_protocol == (("127.0.0.1", 8888),)
    assert config.proxy_protocol_from == (
        "10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32")


def test_a_listener_for_load_balancers_is_not_one_for_this_host_alone():
    # R29, R27: its callers come from wherever the load balancer is reached
    behind = {"listen": "127.0.0.1:1", "proxy_protocol": "127.0.0.1:1",
              "proxy_protocol_from": "127.0.0.1"}
    config = from_options(**ME, **behind)
    assert config.floor and config.allowed_ports == (443,) and not config.loopback
    with pytest.raises(ConfigError, match="is for load balancers, and the demonstr"):
        from_options(**behind)
