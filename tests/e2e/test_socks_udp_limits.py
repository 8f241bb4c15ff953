"""UDP by SOCKS5 under what else its rule says: recordings (R60)."""

import pytest

from tests.support.dns import NameServer
from tests.support.socks import call as call
from tests.support.socks_udp import UDP
from tests.support.socks_udp import associate as associate
from tests.support.socks_udp import make_echo as make_echo

pytestmark = pytest.mark.any_loop

def test_in_replay_mode_no_datagram_leaves(start_policy, make_echo, associate, tmp_path):
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
