"""The proxy's address of listening decides its permissions (R20, R27)."""

import re
import socket

import psutil
import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.client import Client
from tests.support.handovers import start as start
from tests.support.origin import echo

pytestmark = pytest.mark.any_loop


def test_every_listener_serves(start_proxy, make_origin, dial, opened):
    proxy = start_proxy("--listen", "[::1]:0", "--listen", "127.0.0.2:0")
    assert len(proxy.ports) == 3        # two may be the same: the addresses differ
    url = make_origin().url()
    for host, port in zip(("127.0.0.1", "::1", "127.0.0.2"), proxy.ports, strict=True):
        assert opened.enter_context(Client(port, host)).get(url).status == 200
    clients = {record["client"] for record in proxy.wait_log(3)}
    assert {client.strip("[]") for client in clients} == {"127.0.0.1", "::1"}


def test_a_listener_of_its_own_is_a_loop_from_any_other(start_proxy, dial):
    proxy = start_proxy("--listen", "[::1]:0")
    for authority in (f"127.0.0.1:{proxy.ports[0]}", f"[::1]:{proxy.ports[1]}"):
        assert dial(proxy).connect(authority).status == 508
        assert dial(proxy).get(f"http://{authority}/").status == 508


def own_addresses() -> set[str]:
    return {one.address for found in psutil.net_if_addrs().values()
            for one in found if one.family == socket.AF_INET}


def test_a_wildcard_listener_is_a_loop_by_every_address(start_proxy, dial):
    """R20: by any of the machine's addresses."""
    flags = ("--address-floor", "off", "--connect-ports", "any")
    proxy = start_proxy("--listen", "0.0.0.0:0", *flags)
    for host in own_addresses():
        reply = dial(proxy).connect(f"{host}:{proxy.ports[1]}")
        assert (reply.status, reply.error) == (508, "proxy_loop_detected"), host


@pytest.mark.parametrize(
    ("method", "target", "label"),
    [
        ("CONNECT", "127.0.0.1:443", "address_denied"),
        ("CONNECT", "localhost:443", "address_denied"),
        ("CONNECT", "[::1]:443", "address_denied"),
        ("CONNECT", "[::ffff:127.0.0.1]:443", "address_denied"),
        ("CONNECT", "[64:ff9b::7f00:1]:443", "address_denied"),
        ("CONNECT", "10.0.0.1:443", "address_denied"),
        ("CONNECT", "169.254.169.254:443", "address_denied"),
        ("CONNECT", "100.64.0.1:443", "address_denied"),
        ("CONNECT", "0x7f.1:443", "address_denied"),
        ("CONNECT", "2130706433:443", "address_denied"),
        ("GET", "http://127.0.0.1/", "address_denied"),
        ("GET", "http://017700000001/", "address_denied"),
        ("GET", "http://0/", "address_denied"),
        ("CONNECT", "example.test:80", "port_denied"),
        ("CONNECT", "example.test:22", "port_denied"),
    ],
)
def test_beyond_loopback_only_public_addresses_and_443(
    keep_proxy, dial, method, target, label
):
    """The default of a listener that is not loopback, without any policy file."""
    proxy = keep_proxy("--listen", "0.0.0.0:0")
    assert dial(proxy).ask(method, target, host="x").status == 403
    proxy.wait_reason(label)


def test_a_loopback_listener_allows_everything(start_proxy, make_origin, dial):
    proxy = start_proxy()
    assert dial(proxy).connect(make_origin(echo).authority).status == 200


def test_a_backlog_is_the_sockets_own_and_a_reload_changes_it(start, make_origin, dial):
    """Also of a worker that begins later."""
    text = DOOR + '[[listeners]]\naddress = "127.0.0.1:0"\n'
    proxy, url = start("workers = 2\n" + text + "backlog = 7\n"), make_origin().url()
    operator = operator_of(proxy)
    pattern = re.compile(r"^#   backlog +(\d+) +(\d+)$", re.M)
    assert pattern.findall(operator.get("/config")) == [("7", "7")]
    proxy.reload("workers = 3\n" + text + "backlog = 9\n")
    assert pattern.findall(operator.get("/config")) == [("9", "9")]
    assert dial(proxy).get(url).status == 200
    proxy.reload("workers = 3\n" + text)
    with open("/proc/sys/net/core/somaxconn") as file:
        most = min(4096, int(file.read()))
    assert pattern.findall(operator.get("/config")) == [("4096", str(most))]
