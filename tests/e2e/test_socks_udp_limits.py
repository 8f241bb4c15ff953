"""UDP by SOCKS5 under what else its rule says: limits, recordings (R41, R60)."""

import select
import time

import pytest

from tests.support.dns import NameServer
from tests.support.socks import call as call
from tests.support.socks_udp import UDP
from tests.support.socks_udp import associate as associate
from tests.support.socks_udp import make_echo as make_echo

pytestmark = pytest.mark.any_loop

TWO_HOSTS = """
[[rules]]
action = "allow"
addresses = ["127.0.0.1"]
limits = "narrow"
[[rules]]
action = "allow"
addresses = ["127.0.0.2"]
{others}
[limits.narrow]
{narrow}
[limits.broad]
bytes_per_second = "100MiB"
"""


@pytest.mark.parametrize("others", ["", 'limits = "broad"'])
def test_the_quota_of_a_rule_holds_for_its_datagrams(
        start_policy, make_echo, associate, others):
    """They counted against the user's own limits alone, whatever the rule named."""
    narrow, free = make_echo(), make_echo("127.0.0.2")
    proxy = start_policy(TWO_HOSTS.format(
        narrow='bytes_per_day = "8KiB"', others=others), UDP)
    one = associate(proxy)
    for _ in range(100):
        assert one.ask(free.authority, bytes(1000)) == bytes(1000)
    passed = 0
    while not proxy.log():
        one.send(narrow.authority, bytes(1000))
        passed += 1
        assert passed < 10_000
    proxy.wait_reason("quota_exceeded", method="UDP")
    # Of each direction 16 KiB more at most
    assert len(narrow.asked) <= 8 + 2 * 16


def test_the_answers_of_a_peer_are_under_the_limits_of_its_rule(
        start_policy, make_echo, associate):
    """Though the latest datagram went to another, and a change of limits gives no new
    bucket."""
    narrow, free = make_echo(), make_echo("127.0.0.2")
    proxy = start_policy(TWO_HOSTS.format(
        narrow='tunnel_bytes_per_second = "8KiB"', others='limits = "broad"'), UDP)
    one = associate(proxy)
    began = time.monotonic()
    assert one.ask(narrow.authority, b"known") == b"known"
    ((_, peer_side),) = narrow.asked
    answers = []
    for n in range(200):
        narrow.sock.sendto(bytes(1000), peer_side)
        one.send(free.authority, b"%d" % n)
        while (answer := one.receive()[1]) != b"%d" % n:
            answers.append(answer)
    assert len(answers) * 1000 < 4096 + 8192 * (time.monotonic() - began)


def test_in_replay_mode_no_datagram_leaves(
        start_policy, make_echo, associate, tmp_path):
    """R60: a CONNECT there was refused, and a datagram to the same place passed."""
    echo = make_echo()
    with NameServer({"a.test": "127.0.0.1"}) as names:
        proxy = start_policy("""
            [[rules]]
            action = "allow"
            hosts = ["127.0.0.1", "a.test"]
            addresses = ["127.0.0.1"]
            ports = ["1-65534"]
            recording = "replay"
            [[rules]]
            action = "allow"
            addresses = ["127.0.0.2"]
            """, f'recording_directory = "{tmp_path}"\n'
            f'resolvers = ["{names.address}"]\n' + UDP)
        one = associate(proxy)
        one.send(echo.authority, b"no")
        one.send(f"a.test:{echo.port}", b"no")
        proxy.wait_log(2, reason="recording_missed", method="UDP")
        other = make_echo("127.0.0.2")
        assert one.ask(other.authority, b"yes") == b"yes"
    assert not echo.asked


def test_a_peer_that_a_reload_denies_says_no_more(start_policy, make_echo, associate):
    """Answers were judged by nothing: a peer went on for as long as it liked."""
    denied, kept = make_echo(), make_echo("127.0.0.2")
    proxy = start_policy(TWO_HOSTS.format(narrow="tunnels = 9", others=""), UDP)
    one = associate(proxy)
    for peer in (denied, kept):
        assert one.ask(peer.authority, b"known") == b"known"
    text = proxy.policy.read_text()
    proxy.policy.write_text(text.replace('"allow"', '"deny"', 1))
    proxy.hup()
    denied.sock.sendto(b"late", denied.asked[0][1])
    one.send(denied.authority, b"refused")    # its line is behind what was late
    proxy.wait_reason("destination_denied", method="UDP")
    assert select.select([one.sock], [], [], 0) == ([], [], [])
    kept.sock.sendto(b"goes on", kept.asked[0][1])
    assert one.receive()[1] == b"goes on"
