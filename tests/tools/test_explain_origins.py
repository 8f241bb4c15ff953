"""explain of requests in origin form: the rule, the origin and the server."""

import json

import pytest

from tests.tools.explaining import entry

CONFIG = """
{option}
[origins.api]
urls = ["http://10.0.0.5:8000", "http://10.0.0.6:8000"]
choose = "{choose}"

[origins.pages]
urls = ["https://pages.internal"]
"""
POLICY = """
[[rules]]
action = "deny"
hosts = ["api.local"]
paths = ["/admin/**"]

[[rules]]
name = "api"
action = "allow"
hosts = ["api.local"]
origin = "api"

[[rules]]
action = "allow"
hosts = ["free.local", "b.example"]

[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
origin = "pages"
"""


@pytest.fixture
def explain(ask, tmp_path):
    """The status, and the lines of an explanation as {word: text}."""
    config, policy = tmp_path / "c.toml", tmp_path / "p.toml"
    policy.write_text(POLICY)

    def run(*words, option="", choose="failover"):
        config.write_text(CONFIG.format(option=option, choose=choose))
        status, out, _ = ask("explain", "-c", str(config), "--policy", str(policy),
                             "--user", "ann", *words)
        return status, dict(line.split(maxsplit=1) for line in out.splitlines())
    run.policy = policy
    return run


@pytest.fixture(autouse=True)
def user(monkeypatch, tmp_path):
    """The one user of the configuration."""
    file = tmp_path / "password"
    file.write_text("a word\n")
    monkeypatch.setenv("CUTTHROUGH_USER", "ann")
    monkeypatch.setenv("CUTTHROUGH_PASSWORD_FILE", str(file))


def test_the_origin_and_its_server_are_named(explain):
    status, lines = explain("GET", "/v1/x", "--host", "api.local")
    assert status == 0 and lines["verdict"] == "allowed  ok"
    assert lines["name"] == "api.local port 80"
    assert lines["origin"].startswith(
        "api  failover http://10.0.0.5:8000 http://10.0.0.6:8000  (origin of allow ")
    assert lines["server"] == "http://10.0.0.5:8000  while it works"
    assert "route" not in lines and "parent" not in lines


def test_a_server_in_turns_is_not_known_here(explain):
    _, lines = explain("GET", "/v1/x", "--host", "api.local", choose="round_robin")
    assert lines["server"] == (
        "not known here: a worker chooses by its own requests")


def test_a_rule_refuses_by_host_and_path(explain):
    status, lines = explain("GET", "/admin/x", "--host", "api.local")
    assert status == 1 and "path_denied" in lines["verdict"]


def test_an_address_is_a_host_like_another(explain):
    status, lines = explain("GET", "/", "--host", "127.0.0.1:8080")
    assert status == 0
    assert (lines["name"], lines["server"]) == (
        "127.0.0.1 port 8080", "https://pages.internal:443")


def test_without_an_origin_it_is_refused_unless_the_option_names_one(explain):
    status, lines = explain("GET", "/", "--host", "free.local")
    assert (status, lines["verdict"]) == (1, "refused 400  no_origin")
    status, lines = explain("GET", "/", "--host", "free.local",
                            option='origin = "pages"')
    assert status == 0
    assert lines["origin"] == "pages  (the option origin)"


def test_a_rule_with_an_origin_does_not_match_other_forms(explain):
    status, lines = explain("GET", "http://api.local/v1/x")
    assert status == 1 and "(default)" in lines["rule"]
    assert explain("CONNECT", "api.local:443")[0] == 1


def test_it_is_in_json(explain, ask, tmp_path):
    explain("GET", "/", "--host", "api.local")
    _, out, _ = ask("explain", "-c", str(tmp_path / "c.toml"), "--policy",
                    str(explain.policy), "--user", "ann", "GET", "/", "--host",
                    "api.local", "--json")
    about = json.loads(out)
    assert (about["origin"], about["server"], about["for_origin"]) == (
        "api", "api/10.0.0.5:8000", True)


def test_a_path_needs_a_host(explain, ask, tmp_path):
    explain("GET", "/", "--host", "api.local")
    status, _, err = ask("explain", "-c", str(tmp_path / "c.toml"), "--user", "ann",
                         "GET", "/v1/x")
    assert status == 2 and "a path needs --host" in err


def test_the_one_origin_of_the_option_is_the_destination(ask, tmp_path):
    config = tmp_path / "one.toml"
    for option, verdict in (('origin = "http://127.0.0.1:9"', "allowed  ok"),
                            ("", "refused 400  no_origin")):
        config.write_text(option)
        _, out, _ = ask("explain", "-c", str(config), "--user", "ann", "GET", "/x",
                        "--host", "any.test")
        lines = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert lines["verdict"] == verdict
        assert option == "" or lines["name"] == "127.0.0.1 port 9"


def test_lines_of_a_log_are_judged_as_requests_for_an_origin(
        explain, ask, log, tmp_path):
    path = log(entry(user="ann", method="GET", host="api.local", port=80,
                     url="http://api.local/v1", rule="api", origin="api/10.0.0.5:8000"))
    explain("GET", "/", "--host", "api.local")
    status, out, _ = ask("explain", "-c", str(tmp_path / "c.toml"), "--policy",
                         str(explain.policy), "--user", "ann", "--log", path)
    assert (status, out) == (0, "0 of 1 lines would change, 0 depend on an address, a "
                             "path or first bytes that are not in the log\n")
