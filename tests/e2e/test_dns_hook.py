"""The operator's function says where a request goes (`dns_hook`): docs/dns.md."""

import contextlib

import pytest

from tests.support.client import build_request
from tests.support.origin import Origin, echo
from tests.support.policies import LOCAL
from tests.support.socks import call as call
from tests.support.socks_udp import UDP
from tests.support.socks_udp import associate as associate
from tests.support.socks_udp import make_echo as make_echo
from tests.support.users import BOB, USERS
from tests.support.wait import wait_until

HOOK = 'dns_hook = "places:find"\n'
PLACES = """
    def find(host, port, user):
        print(host, port, user, flush=True)
        if host == "usual.test":
            return None
        return {"none.test": [], "text.test": "127.0.0.1", "bad.test": ["127.0.0.1", 5],
                "zone.test": ["fe80::1%lo"], "far.test": ["192.0.2.1"],
                "number.test": 7, "here.test": ["127.0.0.1"]}[host]
"""
OF_USERS = """
    async def find(host, port, user):
        return ["127.0.0.2" if user == "bob" else "127.0.0.1"]
"""
HANGS = """
    import asyncio

    async def find(host, port, user):
        print("asked", flush=True)
        try:
            await asyncio.sleep(600)
        finally:
            print("ended", flush=True)
"""


@pytest.fixture
def run(start_policy):
    def begin(places: str, policy: str = LOCAL, config: str = ""):
        return start_policy(policy, HOOK + config, modules={"places": places})
    return begin


def said(proxy) -> list[str]:
    return (proxy.log_path.parent / "stdout").read_text().splitlines()


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_request_goes_where_the_function_says_and_host_stays(
        run, make_origin, dial, method):
    proxy, origin = run(PLACES), make_origin()
    authority = f"here.test:{origin.port}"
    target = authority if method == "CONNECT" else f"http://{authority}/"
    client = dial(proxy)
    assert client.ask(method, target, host=authority).status == 200
    if method == "CONNECT":
        assert client.ask("GET", "/", host=authority, auth=None).status == 200
        client.close()
    record = proxy.wait_log(1)[0]
    assert record["host"] == "here.test"
    assert record["peer"].startswith("127.0.0.1")
    assert origin.requests[0].get("Host") == authority
    assert said(proxy) == [f"here.test {origin.port} user"]


def test_none_is_the_usual_resolution(run, make_origin, dial):
    proxy = run(PLACES, config='dns_overrides = ["usual.test=127.0.0.1"]\n')
    origin = make_origin()
    for _ in range(2):
        url = f"http://usual.test:{origin.port}/"
        assert dial(proxy).ask("POST", url, "Content-Length: 0").status == 200
    assert said(proxy) == [f"usual.test {origin.port} user"] * 2, "each time"


def test_a_pooled_connection_is_of_the_user_that_the_function_was_asked_for(
        run, opened, dial):
    """R46: bob got the connection to the place of another user."""
    proxy = run(OF_USERS, USERS + LOCAL)
    first = opened.enter_context(Origin())
    second = opened.enter_context(Origin(host="127.0.0.2", port=first.port))
    url = f"http://here.test:{first.port}/"
    client = dial(proxy)
    for _ in range(2):
        assert client.get(url).status == 200
        assert client.get(url, auth=BOB).status == 200
    assert (len(first.requests), len(second.requests)) == (2, 2)
    assert (len(first.connections), len(second.connections)) == (1, 1)


@pytest.mark.parametrize(("host", "status", "reason"), [
    ("far.test", 403, "destination_denied"),
    ("none.test", 502, "dns_not_found"),
    ("text.test", 502, "dns_error"),
    ("bad.test", 502, "dns_error"),
    ("zone.test", 502, "dns_error"),
    ("number.test", 502, "dns_error"),
    ("raises.test", 502, "dns_error"),
])
def test_what_it_returns_is_judged_and_a_mistake_of_it_goes_nowhere(
        run, dial, host, status, reason):
    """R26."""
    proxy = run(PLACES)
    assert dial(proxy).get(f"http://{host}/").status == status
    assert proxy.wait_reason(reason)["host"] == host
    assert ("the dns hook failed (1 so far): " in proxy.stderr()) == (
        reason == "dns_error")


@pytest.mark.any_loop
def test_special_addresses_are_refused(run, dial):
    """R27."""
    proxy = run("async def find(host, port, user): return ['169.254.169.254']",
                'default = "allow"\n', 'address_floor = "on"\n')
    assert dial(proxy).get("http://a.test/").status == 403
    assert proxy.wait_reason("address_denied")


def test_a_function_that_hangs_is_waited_for_as_long_as_a_name_server(run, dial):
    proxy = run(HANGS, config='dns_timeout = "200ms"\n')
    assert dial(proxy).get("http://a.test/").status == 504
    assert proxy.wait_reason("dns_timeout")


def test_a_client_that_leaves_ends_the_call(run, dial):
    proxy = run(HANGS, config='dns_timeout = "60s"\n')
    gone = dial(proxy)
    gone.send(build_request("GET", "http://a.test/"))
    wait_until(lambda: "asked" in said(proxy), "the call")
    gone.reset()
    wait_until(lambda: "ended" in said(proxy), "its end")


def test_a_datagram_goes_where_the_function_says(
        start_policy, make_echo, associate):
    echo_server = make_echo()
    proxy = start_policy(LOCAL, HOOK + UDP, modules={"places": PLACES})
    asked = associate(proxy)
    assert asked.ask(f"here.test:{echo_server.port}", b"by name") == b"by name"


def test_an_address_is_not_resolved(run, make_origin, dial):
    proxy, origin = run(PLACES), make_origin(echo)
    with contextlib.closing(dial(proxy).tunnel(origin.authority)) as tunnel:
        tunnel.send(b"x")
        assert tunnel.read_exact(1) == b"x"
    assert said(proxy) == []
