"""`cut = true` of the rule that let a tunnel in: if a reload has the policy refuse it,
for whatever reason, it ends."""

import pytest

from tests.support.client import USER
from tests.support.inside import HERE, config, enter, over_tls
from tests.support.origin import Connection, echo
from tests.support.users import BOB, USERS

pytestmark = pytest.mark.any_loop

LISTS = f'groups.billing = ["{USER}"]\nlists.good = ["a.example"]\n'
RULE = ('[[rules]]\naction = "allow"\nclients = ["127.0.0.0/8"]\n'
        'groups = ["billing"]\nhosts = ["@good"]\naddresses = ["127.0.0.0/8"]\n')

#: What a reload changes in the policy: a text, and another one.
CHANGES = {
    "rule": ('hosts = ["@good"]', 'hosts = ["c.example"]'),
    "group": (f'"{USER}"', '"bob"'),
    "list": ('"a.example"', '"b.example"'),
    "client": ('clients = ["127.0.0.0/8"]', 'clients = ["192.0.2.0/24"]'),
    "address": ('addresses = ["127.0.0.0/8"]', 'addresses = ["192.0.2.0/24"]'),
    "floor": ('addresses = ["127.0.0.0/8"]\n', ""),
    "before": (RULE, '[[rules]]\naction = "deny"\nports = ["1-65535"]\n' + RULE)}


@pytest.fixture(params=CHANGES)
def change(request):
    """Changes the proxy's policy."""
    def put(proxy) -> None:
        proxy.policy.write_text(
            proxy.policy.read_text().replace(*CHANGES[request.param]))
        assert "refused" not in proxy.hup()
    return put


def test_a_refused_tunnel_ends(start_policy, make_origin, dial, change):
    """It ended if its user was removed, and by no other change, although the rule of
    docs/policy.md that lets a group in has `cut`."""
    proxy, origin = start_policy(f"{LISTS}{RULE}cut = true\n", config()), (
        make_origin(echo))
    client = dial(proxy).tunnel(f"a.example:{origin.port}")
    proxy.policy.write_text(proxy.policy.read_text() + 'name = "a rule"\n')
    proxy.hup()
    client.send(b"hello")
    assert client.read_exact(5) == b"hello"
    change(proxy)
    with pytest.raises(ConnectionResetError):
        client.read_exact(1)
    proxy.wait_reason("destination_denied")


def test_without_cut_it_goes_on(start_policy, make_origin, dial, change):
    proxy, origin = start_policy(LISTS + RULE, config()), make_origin(echo)
    client = dial(proxy).tunnel(f"a.example:{origin.port}")
    change(proxy)
    client.send(b"hello")
    assert client.read_exact(5) == b"hello"
    assert dial(proxy).connect(f"a.example:{origin.port}").status == 403


def send_event(conn: Connection) -> None:
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    conn.fill()                             # the answer has no end


def test_what_runs_inside_ends_too(start_policy, make_origin, dial, change):
    proxy = start_policy(f'{LISTS}{RULE}cut = true\ntls = "intercept"\n', config())
    origin = make_origin(over_tls(send_event))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(b"GET /events HTTP/1.1\r\nHost: a.example\r\n\r\n")
    client.read_until(b"1\r\na\r\n")
    change(proxy)
    assert not client.fill()
    proxy.wait_reason("destination_denied",
                      url=f"https://a.example:{origin.port}/events")


def test_it_ends_if_the_policy_is_gone_and_the_floor_refuses_it(
        start_policy, make_origin, dial):
    """It ran on: a snapshot without rules refused nothing."""
    proxy = start_policy('[[rules]]\naction = "allow"\ncut = true\n',
                         config('address_floor = "off"\n'))
    client = dial(proxy).tunnel(f"a.example:{make_origin(echo).port}")
    text = proxy.config_file.read_text()
    proxy.reload(text.replace("policy =", "#").replace('floor = "off"', 'floor = "on"'))
    with pytest.raises(ConnectionResetError):
        client.read_exact(1)
    proxy.wait_reason("destination_denied")


@pytest.mark.parametrize("later", [
    "", USERS + "users.bob.expires = 2020-01-01T00:00:00Z\n"])
def test_cut_beside_default_ends_those_of_a_user_who_is_gone(
        start_policy, make_origin, dial, later):
    """Whose time is over counts as gone: the tunnel ran on."""
    rule = f'[[rules]]\naction = "allow"\n{HERE}'
    proxy = start_policy(f"cut = true\n{USERS}{rule}", config())
    client = dial(proxy)
    assert client.connect(f"a.example:{make_origin(echo).port}", auth=BOB).status == 200
    proxy.policy.write_text(f"cut = true\n{later}{rule}")
    assert "refused" not in proxy.hup()
    with pytest.raises(ConnectionResetError):
        client.read_exact(1)
