"""Tunnels that drain in the old program of an upgrade follow the rules of the new."""

import signal

import pytest

from tests.support.origin import echo
from tests.support.successors import end, end_all, find_successor, successor_of
from tests.support.successors import start as start
from tests.support.wait import wait_until

RULE = '''[[rules]]
cut = true
users = ["user"]
action = "%s"
addresses = ["127.0.0.0/8"]
'''


@pytest.fixture
def kept(start, tmp_path, make_origin, dial):
    """A proxy with a tunnel that no other program takes over; its file of rules."""
    rules = tmp_path / "policy.toml"
    rules.write_text(RULE % "allow")
    proxy = start(f'policy = "{rules}"\ndrain_timeout = "10m"\nhandover = false\n')
    return proxy, dial(proxy).tunnel(make_origin(echo).authority), rules


@pytest.mark.any_loop
@pytest.mark.parametrize("programs", [1, 2])
def test_a_reload_cuts_draining_tunnels_of_older_programs(kept, opened, programs):
    """A refused user kept the tunnel for the whole drain."""
    proxy, tunnel, rules = kept
    new = successor_of(proxy)
    opened.callback(end_all, new)
    if programs == 2:
        new.send_signal(signal.SIGUSR2)
        wait_until(lambda: proxy.stderr().count("serves; this program drains") == 2,
                   proxy.stderr)
        new = find_successor(proxy.stderr)
        opened.callback(end_all, new)
    tunnel.send(b"here")
    assert tunnel.read_exact(4) == b"here"
    assert "follows pid" not in proxy.stderr(), "nothing has changed"
    rules.write_text(RULE % "deny")
    new.send_signal(signal.SIGHUP)
    with pytest.raises(ConnectionResetError):
        tunnel.sock.recv(1)
    assert proxy.process.wait(60) == 0
    assert "what drains here follows pid" in proxy.stderr()
    assert proxy.wait_log(1, method="CONNECT")[0]["reason"] == "destination_denied"
    end(new)


@pytest.mark.any_loop
def test_rules_that_come_with_an_upgrade_hold_for_draining_tunnels(kept, opened):
    proxy, tunnel, rules = kept
    rules.write_text(RULE % "deny")
    new = successor_of(proxy)
    opened.callback(end_all, new)
    with pytest.raises(ConnectionResetError):
        tunnel.sock.recv(1)
    assert proxy.process.wait(60) == 0
    end(new)
