"""The file for browsers, evaluated by a browser: which URL goes which way."""

from collections import Counter

import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import from_options
from cutthrough.generation.pac import MOST_BYTES, PacError, make_pac, order_for
from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import Policy
from tests.support.browser import PROGRAM, Browser
from tests.support.toml import ME

# Chromium asks if IPv6 has a route, whenever it asks its maker for this and that
pytestmark = pytest.mark.dials_out

ROW = {"address": "192.0.2.1:3128", "pac": True}
SOCKS = ROW | {"pac_protocol": "socks5", "protocols": ["http", "socks5"],
               "auth": "none", "auth_none_from": ["192.0.2.0/24"]}
NO_FILES = {}.__getitem__
PROXY, DIRECT = "PROXY proxy.example:3128", "DIRECT"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if PROGRAM is None:             # see needs_chromium; half of them need none
        pytest.skip("chromium is not installed")
    with Browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


def make(policy: str = "", **row) -> str:
    config = from_options(**ME, listeners=[ROW | row])
    read = read_policy(policy, "policy.toml", NO_FILES) if policy else Policy()
    before, after, order = make_pac(config.listeners[0], config, read)
    way = order(b"192.0.2.77") if order else b"proxy.example:3128"
    return (before + way + after).decode()


def ask(browser: Browser, text: str, host: str) -> str:
    return browser.run(f"{text}; FindProxyForURL('http://{host}/', '{host}')")


RULES = """
default = "allow"
[[rules]]
action = "deny"
hosts = ["denied.example", "denied-plain"]
[[rules]]
action = "allow"
hosts = ["intranet", "*.inside.local"]
addresses = ["10.1.0.0/16", "8.8.8.0/24"]
[[rules]]
action = "deny"
addresses = ["192.168.7.0/24"]
"""


@pytest.mark.parametrize(("host", "way"), [
    ("example.com", PROXY), ("EXAMPLE.com.", PROXY), ("8.8.8.8", PROXY),
    ("denied.example", PROXY),               # the proxy's reply has the reason
    ("2001:db8::1", PROXY), ("[2001:db8::1]", PROXY), ("local.example", PROXY),
    ("notlocal", DIRECT), ("localhost", DIRECT), ("x.localhost", DIRECT),
    ("printer.local", DIRECT), ("10.0.0.1", DIRECT), ("172.31.255.255", DIRECT),
    ("172.32.0.0", PROXY), ("192.168.7.1", DIRECT), ("127.0.0.1", DIRECT),
    ("169.254.169.254", DIRECT), ("100.64.0.1", DIRECT), ("100.128.0.1", PROXY),
    ("::1", DIRECT), ("[::1]", DIRECT), ("fe80::1%eth0", DIRECT), ("fd12::", DIRECT),
    ("::ffff:10.0.0.1", DIRECT), ("::ffff:a00:1", DIRECT), ("::ffff:8.8.8.8", PROXY),
    ("intranet", PROXY), ("a.inside.local", PROXY), ("inside.local", DIRECT),
    ("10.1.2.3", PROXY), ("10.2.0.0", DIRECT), ("denied-plain", DIRECT),
    ("direct.example", DIRECT), ("x.direct.example", PROXY),
    ("x.below.example", DIRECT), ("below.example", PROXY),
    ("x.both.example", DIRECT), ("both.example", DIRECT),
    ("203.0.113.7", DIRECT), ("203.0.114.7", PROXY), ("2001:db8:5::9", DIRECT),
])
def test_local_destinations_go_direct_unless_a_rule_names_them(browser, host, way):
    """R44: nothing goes direct because the proxy does not answer."""
    text = make(RULES, pac_direct=["direct.example", "*.below.example", ".both.example",
                                   "203.0.113.0/24", "2001:db8:5::/48"])
    assert ask(browser, text, host) == way


def test_without_the_floor_everything_goes_to_the_proxy(browser):
    config = from_options(**ME, listeners=[ROW], address_floor="off")
    before, after, _ = make_pac(config.listeners[0], config, Policy())
    text = before.decode() + "proxy.example:3128" + after.decode()
    for host in ("localhost", "10.0.0.1", "intranet", "::1", "example.com"):
        assert ask(browser, text, host) == PROXY


@pytest.mark.parametrize(("row", "way"), [
    (ROW, "PROXY"), (ROW | {"certificates": "a.pem"}, "HTTPS"), (SOCKS, "SOCKS5"),
    (SOCKS | {"certificates": "a.pem", "protocols": ["http", "socks5", "tls"]},
     "SOCKS5")])
def test_the_file_says_what_is_spoken(row, way):
    config = from_options(**ME, listeners=[row])
    before, *_ = make_pac(config.listeners[0], config, Policy())
    assert before == f'var proxy = "{way} '.encode()


FLEET = [f"proxy{number}.example:3128" for number in range(10)]


def test_proxies_of_a_fleet_are_in_the_file_and_nothing_goes_around_them(browser):
    """R44."""
    text = make(RULES, pac_hosts=FLEET[:3])
    ways = ask(browser, text, "example.com").split("; ")
    assert sorted(ways) == [f"PROXY {host}" for host in FLEET[:3]]
    assert ask(browser, text, "localhost") == DIRECT
    assert ask(browser, make(**SOCKS, pac_hosts=FLEET[:2]), "example.com").count(
        "SOCKS5 ") == 2


def test_each_client_has_an_order_of_its_own_that_all_hosts_give_it():
    """The first is where its limits are counted: it stays while it is in the list."""
    ways = [host.encode() for host in FLEET]
    clients = [f"192.0.2.{number}".encode() for number in range(250)]
    orders = [order_for(ways, client).split(b"; ") for client in clients]
    assert orders == [order_for(ways[::-1], client).split(b"; ") for client in clients]
    firsts, seconds = (Counter(order[n] for order in orders) for n in (0, 1))
    assert set(firsts) == set(seconds) == set(ways)
    assert max(firsts.values()) < 2 * len(clients) / len(ways)
    gone = ways[4]
    left = [way for way in ways if way != gone]
    for client, order in zip(clients, orders, strict=True):
        order.remove(gone)
        assert order_for(left, client).split(b"; ") == order
    heirs = Counter(order[0] for client, order in zip(clients, orders, strict=True)
                    if order_for(ways, client).startswith(gone))
    assert len(heirs) > 5, "a dead host's clients go to many others"


def test_names_of_a_policy_cannot_leave_their_string(browser):
    text = make(pac_direct=["a-b_c.example"])
    assert ask(browser, text, "a-b_c.example") == DIRECT
    with pytest.raises(ConfigError, match="is not a"):
        make(pac_direct=['x"];alert(1)//'])


@pytest.mark.parametrize(("key", "port"), [("pac_direct", ""), ("pac_hosts", ":1")])
def test_a_file_too_long_to_be_served_is_an_error(key, port):
    config = from_options(**ME, listeners=[ROW | {
        key: [f"{'x' * 60}.{n}.example{port}" for n in range(200)]}])
    with pytest.raises(PacError, match=f"at most {MOST_BYTES}"):
        make_pac(config.listeners[0], config, Policy())


@pytest.mark.parametrize(("row", "key", "reason"), [
    ({"address": "unix:/run/x", "pac": True}, "pac", "no browser reads"),
    ({"address": "192.0.2.1:1", "pac_direct": "a.b"}, "pac_direct", "has no effect"),
    ({"address": "192.0.2.1:1", "pac_protocol": "socks5"}, "pac_protocol",
     "has no effect"),
    ({"address": "192.0.2.1:1", "pac_hosts": "a.b:1"}, "pac_hosts", "has no effect"),
    (ROW | {"pac_hosts": "a.b"}, "pac_hosts", "port"),
    (ROW | {"pac_hosts": 'a";b:1'}, "pac_hosts", "is not"),
    (ROW | {"protocols": "socks5"}, "pac", "needs http"),
    (SOCKS | {"protocols": "http"}, "pac_protocol", "needs socks5"),
    (SOCKS | {"auth": "required", "auth_none_from": []}, "pac_protocol",
     "needs auth"),
    (SOCKS | {"certificates": "a.pem"}, "pac_protocol", "needs tls"),
    (ROW | {"pac_direct": "10.0.0.1/8"}, "pac_direct", "did you mean 10.0.0.0/8"),
    (ROW | {"pac_direct": "*"}, "pac_direct", "is not a host name"),
    (ROW | {"pac_direct": "a.*.b"}, "pac_direct", "is not a host name"),
])
def test_a_setting_without_an_effect_is_refused(row, key, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        from_options(**ME, listeners=[row])
    assert caught.value.key.partition("[")[2].startswith(f"0].{key}")
