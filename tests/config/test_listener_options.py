"""Listeners in the file system: which settings they have."""

import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import from_options
from tests.support.toml import ME

PATH = "unix:/run/proxy.sock"
LONGEST = "unix:/" + "x" * 106


@pytest.mark.parametrize("given", [
    {"listen": PATH}, {"listeners": [{"address": PATH}]},
    {"listen": ["127.0.0.1:1", PATH]}])
def test_a_path_serves_this_host_alone(given):
    """R27, R29: the demonstration credentials are allowed there."""
    config = from_options(**given)
    assert config.loopback and config.demonstration and not config.floor
    assert config.all_listeners[-1].address == (PATH, 0)
    assert config.all_listeners[-1].mode == 0o660
    assert config.all_listeners[-1].shown == PATH


@pytest.mark.parametrize(("row", "key", "reason"), [
    ({"address": "unix:run/x"}, "address", "is not unix:/path"),
    ({"address": "unix:"}, "address", "is not unix:/path"),
    ({"address": LONGEST + "x"}, "address", "of at most 107 bytes"),
    ({"address": "unix:/a\nb"}, "address", "a control character"),
    ({"address": PATH, "mode": "680"}, "mode", "'680' is not a mode such as 660"),
    ({"address": PATH, "mode": "66"}, "mode", "is not a mode"),
    ({"address": PATH, "mode": "1777"}, "mode", "is not a mode"),
    ({"address": PATH, "owner": "a:b:c"}, "owner", "is not user, user:group or :group"),
    ({"address": PATH, "owner": ":"}, "owner", "is not user, user:group or :group"),
    ({"address": PATH, "owner": "a b"}, "owner", "is not user, user:group or :group"),
    ({"address": "127.0.0.1:1", "mode": "600"}, "mode", "127.0.0.1:1 has no file"),
    ({"address": "127.0.0.1:1", "owner": "root"}, "owner", "127.0.0.1:1 has no file"),
    ({"address": PATH, "tcp_fingerprint": True}, "tcp_fingerprint",
     "only connections of TCP"),
    ({"address": "127.0.0.1:1", "sni_strict": True}, "sni_strict",
     "has no effect without certificates"),
    ({"address": "127.0.0.1:1", "session_tickets": False}, "session_tickets",
     "has no effect without certificates"),
    ({"address": "127.0.0.1:1", "client_ca_by_name": ["a.example=/ca.pem"]},
     "client_ca_by_name", "has no effect without certificates"),
    ({"address": "127.0.0.1:1", "client_ca_by_name": ["a.example"]},
     "client_ca_by_name[0]", "is not name=FILE"),
    ({"address": "127.0.0.1:1", "client_ca_by_name": ["*=/ca.pem"]},
     "client_ca_by_name[0]", "is not name=FILE"),
    ({"address": "127.0.0.1:1", "certificates": ["/c.pem"],
      "client_ca_by_name": ["a.example=/ca.pem", "A.example=/other.pem"]},
     "client_ca_by_name", "a.example is given twice"),
    ({"address": "127.0.0.1:1", "backlog": 65536}, "backlog", "is above 65535"),
    ({"address": PATH, "user": "ci"}, "user", "has no effect without auth"),
    ({"address": PATH, "auth": "none", "user": "a:b"}, "user", "contain a colon"),
    ({"address": "127.0.0.1:1", "proxy_protocol_from": ["192.0.2.1"]},
     "proxy_protocol_from", "has no effect without proxy_protocol"),
    ({"address": PATH, "proxy_protocol": True, "proxy_protocol_from": ["192.0.2.1"]},
     "proxy_protocol_from", "has no effect on unix:/path"),
])
def test_a_setting_that_has_no_effect_or_no_meaning_is_refused(row, key, reason):
    with pytest.raises(ConfigError) as caught:
        from_options(**ME, listeners=[row])
    assert caught.value.key == f"listeners[0].{key}" and reason in caught.value.reason


@pytest.mark.parametrize(("mode", "meant"), [
    ("600", 0o600), ("0666", 0o666), ("000", 0), ("660", 0o660)])
def test_a_mode_is_octal(mode, meant):
    config = from_options(listeners=[{"address": LONGEST, "mode": mode}])
    assert config.listeners[0].mode == meant


def test_a_path_is_given_once_and_not_to_operators_too():
    with pytest.raises(ConfigError, match=f"{PATH} is given twice"):
        from_options(listen=PATH, listeners=[{"address": PATH}])
    with pytest.raises(ConfigError, match=f"{PATH} is also an address of listen"):
        from_options(listen=PATH, admin=PATH)


def test_load_balancers_of_a_listener_s_own():
    row = {"address": "127.0.0.1:1", "proxy_protocol": True}
    own = row | {"proxy_protocol_from": ["192.0.2.0/24"]}
    config = from_options(**ME, listeners=[own])
    assert config.listeners[0].proxy_protocol_from == ("192.0.2.0/24",)
    with pytest.raises(ConfigError, match="any caller could name any client") as caught:
        from_options(**ME, listeners=[own, row | {"address": "127.0.0.1:2"}])
    assert caught.value.key == "listeners[1].proxy_protocol"
    with pytest.raises(ConfigError, match="each listener has its own"):
        from_options(**ME, listeners=[own], proxy_protocol_from="192.0.2.1")


def test_a_load_balancer_on_a_path_needs_no_network():
    """R40, R50: a process that may write the file may name clients."""
    row = {"address": PATH, "proxy_protocol": True}
    config = from_options(**ME, listeners=[row])
    assert not config.loopback, "its clients may be anywhere"
    with pytest.raises(ConfigError, match="any caller could name any client"):
        from_options(**ME, listeners=[row, {"address": "127.0.0.1:1",
                                            "proxy_protocol": True}])
    with pytest.raises(ConfigError, match="has no effect"):
        from_options(**ME, listeners=[row], proxy_protocol_from="127.0.0.1")
