"""Host names: the servers asked, the time for that, and the names of failures (R28)."""

import pytest

from tests.support.client import build_request
from tests.support.dns import NXDOMAIN, SERVFAIL, NameServer

ZONE = {
    "here.test": "127.0.0.1",
    "broken.test": SERVFAIL,
    "nowhere.test": NXDOMAIN,
    "silent.test": None,
}


@pytest.fixture
def names(opened):
    try:
        return opened.enter_context(NameServer(dict(ZONE)))
    except PermissionError:
        pytest.skip("port 53 of a loopback address may not be bound")


@pytest.fixture
def resolving(start_proxy, names):
    return start_proxy("--resolvers", names.address, "--dns-timeout", "1s")


@pytest.mark.parametrize(
    ("name", "status", "label", "error"),
    [
        ("broken.test", 502, "dns_error", "dns_error"),
        ("nowhere.test", 502, "dns_not_found", "dns_error"),
        ("silent.test", 504, "dns_timeout", "dns_timeout"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_name_that_cannot_be_resolved_says_why(
    resolving, dial, name, status, label, error, method
):
    target = f"{name}:443" if method == "CONNECT" else f"http://{name}/"
    reply = dial(resolving).ask(method, target, host=name)
    assert (reply.status, reply.error) == (status, error)
    record = resolving.wait_reason(label)
    assert (record["host"], record["status"]) == (name, status)


def test_a_name_is_asked_for_once_within_its_ttl(resolving, names, make_origin, dial):
    """One cache entry, whatever the case and the trailing dot (R25)."""
    origin = make_origin()
    for name in ("here.test", "HERE.test", "here.test."):
        assert dial(resolving).get(f"http://{name}:{origin.port}/").status == 200
    assert names.asked == ["here.test"]
    assert {record["host"] for record in resolving.wait_log(3)} == {"here.test"}


def test_those_who_wait_for_one_name_share_one_query(
    resolving, names, make_origin, dial
):
    origin = make_origin()
    clients = [dial(resolving) for _ in range(10)]
    for client in clients:
        client.send(build_request("GET", f"http://here.test:{origin.port}/"))
    assert [client.read_response().status for client in clients] == [200] * 10
    assert names.asked == ["here.test"]


def test_a_resolved_address_is_judged_too(start_proxy, names, make_origin, dial):
    """R26, R27: a public name that leads to a private address is a private address."""
    proxy = start_proxy("--resolvers", names.address, "--address-floor", "on")
    origin = make_origin()
    reply = dial(proxy).connect(f"here.test:{origin.port}")
    assert (reply.status, reply.error) == (403, "destination_ip_prohibited")
    proxy.wait_reason("address_denied")
    assert not origin.connections


def test_a_name_of_the_proxy_itself_is_a_loop(resolving, dial):
    """R20: by any name."""
    reply = dial(resolving).connect(f"here.test:{resolving.port}")
    assert reply.status == 508


def test_etc_hosts_is_honoured(resolving, names, make_origin, dial):
    origin = make_origin()
    assert dial(resolving).get(f"http://localhost:{origin.port}/").status == 200
    assert not names.asked
