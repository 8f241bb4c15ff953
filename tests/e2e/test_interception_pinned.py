"""A client that rejects our certificate passes unopened if a rule has it so (R57)."""

import ssl

import pytest

from tests.support.admin import TOLD, Operator
from tests.support.client import Client
from tests.support.inside import (
    ALL,
    HERE,
    ask,
    certificate,
    config,
    enter,
    okay,
    over_tls,
    shake,
)
from tests.support.pinned import BOTH, PINNED, app, passes, reject
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    def make(policy: str = PINNED, more: str = "", **kinds):
        return start_policy(policy, config(more), **kinds)
    return make


@pytest.fixture
def origin(make_origin):
    return make_origin(over_tls(okay, certificate(*BOTH)))


def begin(client: Client, port: int):
    """Sends the first bytes of a handshake."""
    client.tunnel(f"a.example:{port}")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = app().wrap_bio(incoming, outgoing, server_hostname="a.example")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    client.send(outgoing.read())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_rejects_our_certificate_passes_from_then_on(
        start, origin, dial, version):
    """R57"""
    proxy = start()
    reject(proxy, dial(proxy), origin.port, version=version)
    record = proxy.wait_reason("certificate_rejected")
    assert record["intercepted"] and "pinned" not in record
    for _ in range(2):
        passes(proxy, dial(proxy), origin.port)
    for record in proxy.wait_log(2, pinned=True):
        assert (record["kind"], record["rule"], record["sni"]) == (
            "tunnel", "inside", "a.example")
        assert "intercepted" not in record
    assert "client 127.0.0.1 rejects the certificate for a.example" in proxy.stderr()


def test_another_name_is_intercepted(start, origin, dial):
    """R57"""
    proxy = start()
    reject(proxy, dial(proxy), origin.port)
    client = enter(proxy, dial(proxy), origin.port, "b.example")
    assert ask(client, host="b.example").body == b"ok"
    assert proxy.wait_log(2, intercepted=True)


def test_another_destination_of_that_name_is_intercepted(start, origin, dial):
    """A name that was proved at one place shows nothing of another: that origin could
    have another owner."""
    proxy = start()
    reject(proxy, dial(proxy), origin.port)
    with pytest.raises(ssl.SSLCertVerificationError):
        client = dial(proxy).tunnel(f"127.0.0.1:{origin.port}")
        shake(client, "a.example", app())
    assert len(proxy.wait_log(2, reason="certificate_rejected")) == 2


def test_a_server_name_that_is_not_the_hosts_is_refused_still(start, origin, dial):
    proxy = start()
    reject(proxy, dial(proxy), origin.port)
    with pytest.raises(ssl.SSLError):
        shake(dial(proxy).tunnel(f"b.example:{origin.port}"), "a.example", app())
    proxy.wait_reason("sni_denied")


def test_other_networks_are_intercepted(start, origin, dial):
    """R57"""
    proxy = start()
    reject(proxy, dial(proxy), origin.port)
    with Client(proxy.port, source="127.1.0.1") as other:
        reject(proxy, other, origin.port)
    with Client(proxy.port, source="127.0.0.77") as near:
        passes(proxy, near, origin.port)
    rejections = proxy.wait_log(2, reason="certificate_rejected")
    assert [record["client"] for record in rejections] == ["127.0.0.1", "127.1.0.1"]
    assert proxy.wait_log(1, pinned=True)[0]["client"] == "127.0.0.77"


@pytest.mark.parametrize("policy", [ALL, ALL + 'pinned = "refuse"\n'])
def test_without_the_key_nothing_passes(start, origin, dial, policy):
    proxy = start(policy)
    for n in range(1, 4):
        reject(proxy, dial(proxy), origin.port)
        proxy.wait_log(n, reason="certificate_rejected")
    assert not origin.requests and "rejects the certificate" not in proxy.stderr()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_end_behind_our_certificate_is_a_rejection(start, origin, dial, how):
    """R57"""
    proxy = start()
    client = dial(proxy)
    begin(client, origin.port)
    assert client.fill()
    (client.close if how == "close" else client.reset)()
    proxy.wait_reason("client_closed" if how == "close" else "client_reset")
    passes(proxy, dial(proxy), origin.port)


def test_an_end_before_our_certificate_is_none(start, make_origin, dial):
    """The origin's handshake is not done by then."""
    def slow(conn) -> None:
        conn.fill()
        waited.append(conn)
        conn.fill()

    waited: list = []
    proxy, silent = start(), make_origin(slow)
    client = dial(proxy)
    begin(client, silent.port)
    client.close()
    proxy.wait_log(1, method="CONNECT")
    assert "rejects the certificate" not in proxy.stderr()


def test_an_end_behind_the_handshake_is_none(start, origin, dial):
    """Browsers make connections that they do not use."""
    proxy = start()
    enter(proxy, dial(proxy), origin.port).close()
    proxy.wait_reason("ok", method="CONNECT")
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"ok"
    assert proxy.wait_log(1, method="GET", intercepted=True)
    assert not proxy.log(pinned=True)


def test_a_reload_decides_of_the_next_tunnel(start, origin, dial):
    """R57: remembered or not, the rule in force has to allow it."""
    proxy = start()
    reject(proxy, dial(proxy), origin.port)
    open_one = enter(proxy, dial(proxy), origin.port, context=app())
    proxy.policy.write_text(proxy.policy.read_text().replace('pinned = "pass"\n', ""))
    assert "generation" in proxy.hup()
    reject(proxy, dial(proxy), origin.port)
    assert ask(open_one).body == b"ok", "what is open stays as it is"
    proxy.policy.write_text(proxy.policy.read_text() + 'pinned = "pass"\n')
    assert "generation" in proxy.hup()
    passes(proxy, dial(proxy), origin.port)


def test_all_workers_know_of_a_rejection(start, origin, dial):
    """Each worker learnt it by itself, from one more failed connection."""
    proxy = start(more="workers = 2\n")
    reject(proxy, dial(proxy), origin.port)
    proxy.wait_reason("certificate_rejected")
    seen: set[int] = set()
    for n in range(1, 100):
        passes(proxy, dial(proxy), origin.port)
        seen |= {one["worker"] for one in proxy.wait_log(n, pinned=True)}
        if len(seen) == 2:
            break
    assert len(seen) == 2
    assert len(proxy.log(reason="certificate_rejected")) == 1


def test_a_rule_that_intercepts_http_alone_passes_them_too(start, origin, dial):
    proxy = start(PINNED.replace('"intercept"', '"intercept_http"'))
    reject(proxy, dial(proxy), origin.port)
    passes(proxy, dial(proxy), origin.port)
    assert proxy.wait_log(1, pinned=True)


def test_it_is_counted_and_a_format_has_it(start, origin, dial):
    proxy = start(more='admin = "127.0.0.1:0"\naccess_log_format = '
                  '"%ct::pinned %ct::intercepted"\n')
    reject(proxy, dial(proxy), origin.port)
    passes(proxy, dial(proxy), origin.port)
    wait_until(lambda: len(proxy.lines()) == 2, proxy.lines)
    assert proxy.lines() == ["- intercepted", "pinned -"]
    told = TOLD.search(proxy.stderr())
    assert told is not None
    counted = Operator(int(told[1])).metrics()
    assert counted["pinned_tunnels_total"] == 1
    assert counted["intercepted_connections_total"] == 0


@pytest.mark.parametrize(("keys", "reason"), [
    ('pinned = "pass"\n', "is of rules that intercept"),
    ('tls = "refuse"\npinned = "pass"\n', "is of rules that intercept"),
    ('tls = "pass"\npinned = "refuse"\n', "is of rules that intercept"),
    ('tls = "intercept"\npinned = "yes"\n', "pinned")])
def test_rules_that_are_mistakes(start_policy, keys, reason):
    with pytest.raises(AssertionError, match=reason):
        start_policy(f'[[rules]]\naction = "allow"\n{HERE}{keys}', config())
