"""A log's lines without an address, and rules that deny by it."""

import pytest

from tests.tools.explaining import ALICE, entry

POLICY = 'default = "allow"\n' + ALICE + """
[[rules]]
name = "inner"
action = "deny"
addresses = ["10.0.0.0/8", "fd00::/8"]
ports = [443]

[[rules]]
name = "one"
action = "deny"
hosts = ["192.0.2.7", "named.example"]
ports = [80]
"""


@pytest.fixture
def replay(ask, policy, log):
    return lambda *entries: ask("explain", "--log", log(*entries), "--policy",
                                str(policy))


@pytest.mark.parametrize("port", [443, 80])
def test_a_refusal_by_the_address_is_no_change_by_the_name(replay, port):
    """The same policy seemed to allow what it had refused, because a rule that denies
    by the address does not match a name."""
    rule = {443: "inner", 80: "one"}[port]
    status, out, _ = replay(entry("destination_denied", port=port, rule=rule))
    assert (status, out) == (
        0, "0 of 1 lines would change, 1 depend on an address, a path or first bytes "
        "that are not in the log\n")


def test_what_no_address_could_change_is_judged(replay):
    status, out, _ = replay(
        entry("destination_denied", port=8443), entry("dns_not_found", port=8443),
        entry("ok", host="named.example", port=80),
        entry("ok", peer="93.184.215.14"))
    assert status == 1
    assert [line.split()[:6] for line in out.splitlines()] == [
        ["1", "alice", "CONNECT", "named.example:80", "allow", "->"],
        ["1", "alice", "CONNECT", "site.example:8443", "deny", "->"],
        ["2", "of", "4", "lines", "would", "change,"]]
    assert "change, 0 depend" in out
