"""explain and suggest, with rules about paths."""

import json

import pytest

from tests.tools.explaining import ALICE, entry, line_of

POLICY = ALICE + """
[[rules]]
name = "api"
action = "allow"
hosts = ["93.184.215.14"]
paths = ["/api/**"]
"""
HOST = "93.184.215.14"


def test_a_path_decides_and_is_shown_as_it_is_compared(explain, policy):
    status, told, _ = explain("GET", f"http://{HOST}/api/%c3%a9?q=1")
    assert status == 0
    assert told["path"] == "/api/%C3%A9"
    assert told["rule"] == f'ok  allow {line_of(policy, "api")} "api"'


@pytest.mark.parametrize(("path", "shown"), [
    ("", "/"), ("/admin?x", "/admin"), ("/%61pi", "/%61pi  /api"),
    ("/api/../x", "unclear: servers differ in reading it, and no rule with `paths` "
     "allows it")])
def test_a_refused_path_says_so(explain, policy, path, shown):
    status, told, _ = explain("GET", f"http://{HOST}{path}")
    assert (status, told["path"]) == (1, shown)
    assert told["rule"] == f"path_denied  deny {policy} (default)"
    assert told["verdict"] == "refused 403  path_denied"


def test_a_tunnel_has_no_path(explain):
    status, told, _ = explain("CONNECT", f"{HOST}:443")
    assert (status, told["verdict"]) == (1, "refused 403  destination_denied")
    assert "path" not in told
    assert "path" not in explain("OPTIONS", f"http://{HOST}")[1]


def test_the_readings_are_in_json(explain):
    told = json.loads(explain("GET", f"http://{HOST}/api/a;v=1?q", "--json")[2])
    assert (told["path"], told["readings"]) == (
        "/api/a;v=1?q", ["/api/a;v=1", "/api/a"])


def test_a_log_is_replayed_with_its_paths(ask, policy, log):
    plain = {"host": HOST, "port": 80, "method": "GET", "peer": HOST}
    status, out, _ = ask("explain", "--policy", str(policy), "--log", log(
        entry(**plain, url=f"http://{HOST}/api/a?b"),
        entry(**plain, url=f"http://{HOST}/admin"),
        entry("path_denied", **plain, url=f"http://{HOST}/api"),
        entry("path_denied", **plain, url=f"http://{HOST}/"),
        entry(**plain, url=f"http://{HOST}/api/a\u2026"), entry(**plain),
        entry(host=HOST, url=f"{HOST}:443", peer=HOST)))
    assert status == 1
    lines = [line.split() for line in out.splitlines()]
    assert sorted(line[2:7] for line in lines[:-1]) == [
        ["CONNECT", f"{HOST}:443", "allow", "->", "deny"],
        ["GET", f"{HOST}:80", "allow", "->", "deny"],
        ["GET", f"{HOST}:80", "deny", "->", "allow"]]
    assert out.endswith("3 of 7 lines would change, 2 depend on an address, a path or "
                        "first bytes that are not in the log\n")


def test_no_rule_is_proposed_for_a_path(ask, log):
    """It would allow every path of the host."""
    _, out, _ = ask("suggest", "--log", log(
        entry("path_denied", host="a.example", method="GET", port=80)))
    assert "a rule refuses the path" in out
    assert "[[rules]]" not in out
