"""The policy hook has a tunnel pass unopened: `Decision(True, tls="pass")`."""

import ssl

import pytest

from tests.support.certificates import client_context
from tests.support.inside import ALL, ask, config, enter, okay, origins, over_tls
from tests.support.policies import LOCAL
from tests.support.recordings import RULE, fill, made
from tests.support.recordings import folder as folder

HOOK = """
    import cutthrough

    async def decide(request):
        print(request.method, request.host, flush=True)
        passes = request.host == "a.example"
        return cutthrough.Decision(
            True, "pinned app", ttl=60, tls="pass" if passes else "")
"""


@pytest.fixture
def start(start_policy):
    return lambda policy=ALL, hook=HOOK: start_policy(policy, config(), hook=hook)


def of_origins() -> ssl.SSLContext:
    """A client that trusts the origins, and not the proxy."""
    return client_context(trusted=origins())


@pytest.mark.any_loop
def test_this_tunnel_passes_and_others_are_opened(start, make_origin, dial):
    proxy, origin = start(), make_origin(over_tls(okay))
    for _ in range(2):                      # the second time it is a kept decision
        client = enter(proxy, dial(proxy), origin.port, context=of_origins())
        assert ask(client).body == b"ok"
        client.close()
    inside = enter(proxy, dial(proxy), origin.port, "127.0.0.1")
    assert ask(inside, host="127.0.0.1").body == b"ok"
    records = proxy.wait_log(4)
    tunnels = [record for record in records if record["host"] == "a.example"]
    assert [(record["kind"], record["sni"], record["hook"]) for record in tunnels] == [
        ("tunnel", "a.example", "pinned app")] * 2
    assert not any(
        record.get("intercepted") or record.get("pinned") for record in tunnels)
    assert [record["method"] for record in records if record.get("intercepted")] == [
        "CONNECT", "GET"]
    lines = (proxy.log_path.parent / "stdout").read_text().splitlines()
    assert lines.count("CONNECT a.example") == 1


def test_a_tunnel_that_a_rule_refuses_is_refused(start, make_origin, dial):
    """The hook lets pass what would be opened, and nothing that the rule closes."""
    proxy = start(ALL.replace('"intercept"', '"refuse"'))
    origin = make_origin(over_tls(okay))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        enter(proxy, dial(proxy), origin.port, context=of_origins())
    assert proxy.wait_reason("tls_refused")


def test_a_tunnel_whose_rule_replays_is_opened(start_policy, folder, dial):
    """R60: it has no origin to pass to."""
    fill(folder, made(9, scheme="https", host="a.example"))
    proxy = start_policy(
        RULE.format(mode="replay", keys='tls = "intercept"'),
        config(f'recording_directory = "{folder}"\n'), hook=HOOK)
    client = enter(proxy, dial(proxy), 9)
    assert ask(client, "GET", "/a").body == b"hello"
    assert [record["reason"] for record in proxy.wait_log(2)] == ["ok", "replayed"]


def test_a_rule_that_passes_is_as_before(start_policy, make_origin, dial):
    proxy = start_policy(LOCAL, config(), hook=HOOK)
    client = enter(proxy, dial(proxy), make_origin(over_tls(okay)).port,
                   context=of_origins())
    assert ask(client).body == b"ok"
