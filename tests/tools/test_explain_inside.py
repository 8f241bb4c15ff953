"""explain for https:// URLs: the tunnel, and the request inside it."""

import json

import pytest

from tests.tools.explaining import ALICE, line_of

HOST, PASSED, SHUT = "93.184.215.14", "93.184.215.15", "93.184.215.16"
POLICY = ALICE + f"""
[[rules]]
name = "opened"
action = "allow"
hosts = ["{HOST}", "site.example"]
methods = ["CONNECT"]
tls = "intercept"

[[rules]]
name = "api"
action = "allow"
hosts = ["{HOST}", "site.example"]
paths = ["/api/**"]

[[rules]]
name = "passed"
action = "allow"
hosts = ["{PASSED}"]
"""


@pytest.fixture
def explain(explain):
    """The status and the lines."""
    def run(*argv):
        status, _, printed = explain(f"--dns-overrides=site.example={HOST}", *argv)
        return status, printed.splitlines()
    return run


def test_the_request_inside_is_judged_behind_its_tunnel(explain, policy):
    """It was refused: bad_target."""
    status, lines = explain("GET", f"https://{HOST}/api/x?y")
    assert status == 0
    assert lines[0] == f"request  CONNECT {HOST}:443"
    assert "tls      intercept  if it is TLS" in lines
    at = lines.index(f"request  GET https://{HOST}/api/x?y")
    assert lines[at - 1] == "verdict  allowed  ok"
    inside = {line[:9].strip(): line[9:] for line in lines[at:]}
    assert inside["path"] == "/api/x"
    assert inside["rule"] == f'ok  allow {line_of(policy, "api")} "api"'
    assert inside["verdict"] == "allowed  ok"
    assert not {"user", "name", "ports", "route"} & {*inside}


def test_a_request_inside_is_refused_behind_a_tunnel_that_passes(explain):
    status, lines = explain("GET", "https://Site.Example:443/admin")
    assert status == 1 and lines[0] == "request  CONNECT site.example:443"
    assert [line for line in lines if line.startswith("verdict")] == [
        "verdict  allowed  ok", "verdict  refused 403  path_denied"]


def test_a_refused_tunnel_is_the_decision(explain):
    status, lines = explain("GET", f"https://{SHUT}/api/x")
    assert status == 1 and lines[0] == f"request  CONNECT {SHUT}:443"
    assert lines[-1] == "verdict  refused 403  destination_denied"
    assert sum(line.startswith("verdict") for line in lines) == 1


def test_a_tunnel_that_passes_unread_has_no_request(explain):
    status, lines = explain("GET", f"https://{PASSED}/x")
    assert status == 0
    assert lines[-1].startswith("inside   not judged")


@pytest.mark.parametrize(("url", "port"), [
    (f"https://{HOST}", 443), (f"HTTPS://{HOST}:8443?q", 8443),
    (f"https://{HOST}#x", None), ("https://[::1]/", 443), ("https:///x", None),
    (f"https://{HOST}:x/", None)])
def test_the_port_is_443_or_the_urls(explain, url, port):
    _, lines = explain("GET", url, "--json")
    told = json.loads(lines[0])
    if port is None:
        assert told["outcome"] == "bad_target" and told["connect"] is None
    else:
        assert told["connect"]["port"] == told["port"] == port


@pytest.mark.parametrize(("host", "sni", "outcome"), [
    ("site.example", "Site.Example.", "ok"),
    ("site.example", "b.example", "sni_denied"),
    (HOST, "b.example", "ok"), (HOST, "secret.example", "sni_denied"),
    (HOST, "plain.example", "tls_refused"), (HOST, PASSED, "sni_denied"),
    (HOST, "no%host", "sni_denied"), (PASSED, "secret.example", "ok")])
def test_an_opened_tunnel_has_the_server_name_that_it_was_let_pass_for(
        explain, policy, host, sni, outcome):
    """Of each it said that the tunnel passes."""
    policy.write_text(
        '[[rules]]\naction = "deny"\nhosts = ["secret.example"]\n'
        '[[rules]]\naction = "allow"\nhosts = ["plain.example"]\ntls = "refuse"\n'
        + POLICY)
    _, lines = explain("CONNECT", f"{host}:443", "--sni", sni, "--json")
    assert json.loads(lines[0])["outcome"] == outcome


def test_behind_an_address_the_request_is_for_the_server(explain, policy):
    """R77: the rules judge its name, at the address that the CONNECT opened."""
    policy.write_text(POLICY.replace(f'"{HOST}", "site', '"10.0.0.5", "site', 1))
    flags = ("--sni", "site.example", "--json")
    for path, outcome in (("/api/x", "ok"), ("/admin", "path_denied")):
        _, lines = explain("GET", f"https://10.0.0.5{path}", *flags)
        told = json.loads(lines[0])
        assert told["outcome"] == outcome and told["host"] == "site.example"
    _, lines = explain("GET", "https://10.0.0.5/api/x", "--sni", "b.example", "--json")
    assert json.loads(lines[0])["outcome"] == "destination_denied"


def test_a_tunnel_that_the_hook_has_pass_is_not_opened(explain, tmp_path, monkeypatch):
    (tmp_path / "passing_hook.py").write_text(
        "from cutthrough import Decision\n\n\nasync def decide(request):\n"
        '    return Decision(True, tls="pass")\n')
    monkeypatch.syspath_prepend(tmp_path)
    status, lines = explain(
        "GET", f"https://{HOST}/admin", "--policy-hook", "passing_hook:decide")
    assert status == 0 and lines[-1].startswith("inside   not judged")
