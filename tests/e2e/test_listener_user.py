"""A listener's user: requests without credentials are that user's."""

import bcrypt
import pytest

from tests.support.client import WRONG
from tests.support.handovers import RENEW, handed
from tests.support.origin import echo
from tests.support.socks import ALL, GRANTED, NONE, OPEN
from tests.support.socks import call as call
from tests.support.wait import wait_until


@pytest.mark.any_loop
def test_requests_without_credentials_are_those_of_the_listener_s_user(
        start_policy, make_origin, call):
    """Its groups count; its expiry too, though it needs no password."""
    row = ALL + 'user = "ci"\n'
    proxy = start_policy(f"""
        default = "deny"
        [groups]
        builders = ["ci"]
        [[rules]]
        groups = ["builders"]
        addresses = ["127.0.0.1"]
        action = "allow"
        [users.old]
        password = "{bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()}"
        expires = 2020-01-01T00:00:00Z
        """, row + OPEN + ALL + 'user = "old"\n')
    origin, echoing = make_origin(), make_origin(echo)
    client = call(proxy)
    for _ in range(2):
        assert client.get(origin.url(), auth=None).status == 200
    with call(proxy) as client:
        assert client.connect(echoing.authority, auth=None).status == 200
    with call(proxy) as client:
        assert client.method(NONE) == NONE
        assert client.request(echoing.authority) == GRANTED
    with call(proxy) as client:
        assert client.request4(echoing.authority) == 90
    assert call(proxy).get(origin.url(), auth=WRONG).status == 407
    assert call(proxy).get(origin.url()).status == 403, "a user of no group"
    assert call(proxy, 1).request4(echoing.authority) == 91, "nobody"
    assert call(proxy, 2).get(origin.url(), auth=None).status == 407
    methods = [one["method"] for one in proxy.wait_log(5, user="ci", reason="ok")]
    assert sorted(methods) == ["CONNECT", "GET", "GET", "SOCKS4", "SOCKS5"]
    assert proxy.wait_reason("auth_expired")["user"] is None


@pytest.mark.any_loop
def test_a_tunnel_of_the_listener_s_user_is_judged_again_by_its_groups(
        start_policy, make_origin, call):
    rules = """
        [groups]
        builders = ["{}"]
        [[rules]]
        groups = ["builders"]
        addresses = ["127.0.0.1"]
        action = "allow"
        [[rules]]
        action = "deny"
        cut = true
        """
    proxy = start_policy('default = "deny"' + rules.format("ci"), ALL + 'user = "ci"\n')
    client = call(proxy)
    assert client.connect(make_origin(echo).authority, b"a", auth=None).status == 200
    assert client.read_exact(1) == b"a"
    text = proxy.policy.read_text()
    proxy.policy.write_text(text + "# the same\n")
    proxy.hup()
    client.send(b"b")
    assert client.read_exact(1) == b"b"
    proxy.policy.write_text(text.replace("ci", "others"))
    proxy.hup()
    proxy.wait_reason("destination_denied")


@pytest.mark.any_loop
def test_a_tunnel_of_the_listener_s_user_keeps_it_in_another_worker(
        start_policy, make_origin, call):
    """The listener stays behind, and the name is in no table of users."""
    row = ALL + 'user = "ci"\n'
    proxy = start_policy("""
        default = "deny"
        [[rules]]
        users = ["ci"]
        addresses = ["127.0.0.1"]
        action = "allow"
        cut = true
        """, row)
    client = call(proxy)
    assert client.connect(make_origin(echo).authority, b"a", auth=None).status == 200
    assert client.read_exact(1) == b"a"
    policy = f'policy = "{proxy.policy}"\n'
    for number in range(1, 3):
        proxy.reload(RENEW.format(number) + policy + row)
        wait_until(lambda number=number: len(handed(proxy)) == number, "it has moved")
        client.send(b"b")
        assert client.read_exact(1) == b"b"
    client.close()
    assert proxy.wait_reason("ok")["user"] == "ci"
