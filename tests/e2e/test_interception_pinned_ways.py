"""Clients that reject our certificate, by every way in, and in another worker (R57)."""

import ssl

import pytest

from tests.support.captures import wait_rows
from tests.support.certificates import localhost
from tests.support.client import Client
from tests.support.handovers import handed, renew
from tests.support.inside import (
    NAMES,
    ask,
    certificate,
    config,
    okay,
    over_tls,
    shake,
)
from tests.support.inside_tls import reach as reach
from tests.support.intercepting import CLIENTS, SERVERS, routed
from tests.support.origin import Origin
from tests.support.pinned import BOTH, PINNED, app, passes, reject
from tests.support.proxy import Proxy
from tests.support.socks import SocksClient
from tests.support.tls_listener import table

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop


@pytest.fixture
def origin(make_origin):
    return make_origin(over_tls(okay, certificate(*BOTH)))


def test_in_tls_and_in_a_stream_of_http2(start_policy, origin, reach):
    proxy = start_policy(PINNED, config(table(
        localhost(), protocols='["http", "http2"]')))
    reject(proxy, reach(proxy), origin.port)
    proxy.wait_reason("certificate_rejected")
    for _ in range(2):
        passes(proxy, reach(proxy), origin.port)
    assert len(proxy.wait_log(2, pinned=True, kind="tunnel")) == 2


def test_by_socks(start_policy, origin, opened):
    proxy = start_policy(PINNED, config('[[listeners]]\naddress = "127.0.0.1:0"\n'
                                        'protocols = ["socks5"]\n'))

    def tunnel() -> Client:
        client = opened.enter_context(SocksClient(proxy.ports[0]))
        return client.socks_tunnel(f"a.example:{origin.port}")

    with pytest.raises(ssl.SSLCertVerificationError):
        shake(tunnel(), context=app())
    proxy.wait_reason("certificate_rejected")
    client = shake(tunnel(), context=app())
    assert ask(client).body == b"ok"
    client.close()
    assert proxy.wait_log(1, pinned=True)[0]["method"] == "SOCKS5"


def test_captures_have_it(start_policy, origin, dial, tmp_path):
    database = tmp_path / "flows.db"
    proxy = start_policy(PINNED + 'capture = "head"\n',
                         config(f'capture_file = "{database}"\n'))
    reject(proxy, dial(proxy), origin.port)
    proxy.wait_reason("certificate_rejected")
    passes(proxy, dial(proxy), origin.port)
    rejected, passed = wait_rows(database, 2)
    assert (rejected["intercepted"], rejected["pinned"]) == (1, 0)
    assert (passed["intercepted"], passed["pinned"], passed["sni"]) == (
        0, 1, "a.example")


TRANSPARENT = """
[[listeners]]
address = "0.0.0.0:3129"
transparent = "redirect"
auth = "none"
auth_none_from = ["10.9.0.0/24"]
"""


def test_by_a_transparent_listener(directory, opened, loop_name):
    router, folder = opened.enter_context(routed()), directory("transparent")
    policy = folder / "policy.toml"
    policy.write_text('[[rules]]\naction = "allow"\nhosts = ["here.test"]\n'
                      'tls = "intercept"\npinned = "pass"\n')
    names = f'dns_overrides = ["here.test={SERVERS[4]}"]\n'
    proxy = opened.enter_context(Proxy(
        folder, loop=loop_name, config=f'policy = "{policy}"\naddress_floor = "off"\n'
        + config(TRANSPARENT).replace(NAMES, names)))
    router.intercept("redirect", "3129", "--in", "near", "--ports", "443")
    opened.enter_context(
        Origin(over_tls(okay, certificate("DNS:here.test")), SERVERS[4], port=443))

    def client() -> Client:
        made = Client.__new__(Client)
        super(Client, made).__init__(router.dial(SERVERS[4], 443))
        return opened.enter_context(made)

    with pytest.raises(ssl.SSLCertVerificationError):
        shake(client(), "here.test", app())
    proxy.wait_reason("certificate_rejected")
    passed = shake(client(), "here.test", app())
    assert ask(passed, host="here.test").body == b"ok"
    passed.close()
    (record,) = proxy.wait_log(1, pinned=True)
    assert (record["client"], record["host"]) == (CLIENTS[4], "here.test")


def test_a_tunnel_that_passed_moves_to_another_worker(start_policy, origin, dial):
    """It stays pinned in the log; and the next worker remembers."""
    proxy = start_policy(PINNED, config())
    reject(proxy, dial(proxy), origin.port)
    proxy.wait_reason("certificate_rejected")
    client = shake(dial(proxy).tunnel(f"a.example:{origin.port}"), context=app())
    assert ask(client).body == b"ok"
    renew(proxy, 1, f'policy = "{proxy.policy}"\n{config()}')
    assert handed(proxy) == [(1, 0)]
    assert ask(client).body == b"ok"
    client.close()
    record, = proxy.wait_log(1, pinned=True)
    # The origin's close_notify may meet a socket that is closed
    assert record["reason"] in ("ok", "client_reset")
    assert (record["kind"], record["sni"]) == ("tunnel", "a.example")
    passes(proxy, dial(proxy), origin.port)
    assert len(proxy.log(reason="certificate_rejected")) == 1
