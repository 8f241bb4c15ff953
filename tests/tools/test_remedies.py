"""explain and suggest: what would let a refused request pass."""

from cutthrough.policy.rules import read_policy
from tests.tools.explaining import ALICE, entry

POLICY = f"""{ALICE}
[[rules]]
action = "deny"
hosts = ["refused.example"]
[[rules]]
action = "allow"
hosts = ["site.example"]
"""


def test_a_refusal_by_floor_or_port_has_its_remedy(explain, policy):
    told = explain("CONNECT", "site.example:22", "--connect-ports=443")[1]
    assert told["remedy"] == "add 22 to the option connect_ports"
    override = "--address-floor=on", "--dns-overrides=site.example=169.254.169.254"
    told = explain("CONNECT", "site.example:443", *override)[1]
    assert told["remedy"].startswith("none: it is a cloud's metadata service")
    assert "remedy" not in explain("CONNECT", "refused.example:443")[1]


def test_requests_without_a_user_are_proposed_by_their_clients(log, ask):
    """Lines of a listener without passwords were not read."""
    refused = entry("destination_denied", user=None)
    assert refused["client"] == "127.0.0.1"
    path = log(refused, {**refused, "client": "10.0.0.9"}, refused,
               entry("destination_denied", host="b.example"))
    status, out, _ = ask("suggest", "--log", path)
    assert status == 0 and "# 2 clients without a user: refused 3 times" in out
    rules = read_policy(out, "p", str).rules
    assert [(rule.users, rule.clients) for rule in rules] == [
        ((), ("10.0.0.9/32", "127.0.0.1/32")), (("alice",), ())]
