"""explain and suggest: the decision about a request, and a policy that lets it pass."""

import json
import re

import pytest

from cutthrough.cli.main import main
from cutthrough.doctor.ssrf_cases import NOWHERE, disguises
from cutthrough.policy.address import class_of
from cutthrough.policy.rules import read_policy
from cutthrough.tools.log_reader import LogReader
from cutthrough.tools.suggest import suggest
from cutthrough.wire.target import read_authority
from tests.tools.explaining import entry, line_of

POLICY = """
[users.alice]
password = "$2b$04$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW"
groups = ["dev"]

[users.old]
password = "$2b$04$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW"
expires = 2020-01-01T00:00:00Z

[limits.slow]
groups = ["dev"]
bytes_per_second = "1MiB"

[[rules]]
name = "never"
action = "deny"
hosts = [".forbidden.example"]

[[rules]]
name = "watched"
action = "report"
hosts = ["watched.example"]

[[rules]]
name = "site"
action = "allow"
groups = ["dev"]
hosts = ["site.example", "10.1.2.3"]
ports = [443]
"""
OVERRIDES = ("site.example=198.51.100.1", "site.example=10.9.9.9",
             "watched.example=93.184.215.14", "both.example=10.1.2.3",
             "both.example=93.184.215.14")


@pytest.fixture
def explain(ask, policy):
    """The lines of an explanation as {word: [text]}."""
    def run(*argv, user="alice"):
        flags = [f"--dns-overrides={text}" for text in OVERRIDES]
        status, out, _ = ask("explain", "--policy", str(policy), *flags, "--user", user,
                             *argv)
        words = {}
        for line in out.splitlines():
            words.setdefault(line[:9].strip(), []).append(line[9:])
        return status, words
    return run


def test_an_allowed_request_is_told_with_rule_address_and_limits(explain, policy):
    status, told = explain("CONNECT", "0xA.1.2.3.:443")
    where = f'allow {line_of(policy, "site")} "site"'
    assert status == 0
    assert told["user"] == ["alice (groups: dev)"]
    assert told["name"] == ["10.1.2.3 port 443"]
    assert told["rule"] == [f"ok  {where}"]
    assert told["address"] == [f"10.1.2.3  private-use  ok  {where}  opens the floor"]
    assert told["limits"] == ["slow  bytes_per_second=1048576"]
    assert told["verdict"] == ["allowed  ok"]


def test_capture_is_told_if_the_rule_captures(explain, policy, tmp_path):
    policy.write_text(POLICY.replace("ports = [443]", 'capture = "full"'))
    file = f"--capture-file={tmp_path / 'flows.db'}"
    assert explain("CONNECT", "10.1.2.3:443", file)[1]["capture"] == ["full"]
    assert "capture" not in explain("CONNECT", "watched.example:443", file)[1]


def test_each_address_of_a_name_is_told_with_its_class(explain, policy):
    status, told = explain("CONNECT", "SITE.example.:443")
    assert status == 1
    assert [line.split()[:3] for line in told["address"]] == [
        ["198.51.100.1", "documentation", "address_denied"],
        ["10.9.9.9", "private-use", "address_denied"]]
    assert told["dns"] == ["2 found  dns_overrides"] or "ms" in told["dns"][0]
    assert told["verdict"] == ["refused 403  address_denied"]
    assert told["remedy"][0].startswith(
        'a rule in the policy with action = "allow" and addresses = ["198.51.100.1", '
        '"10.9.9.9"] opens the floor; if the name is not yours')
    assert "limits" not in told


def test_a_name_that_a_rule_refuses_is_not_resolved(explain, policy):
    status, told = explain("GET", "http://a.forbidden.example/")
    assert status == 1
    assert told["rule"] == [
        f'destination_denied  deny {line_of(policy, "never")} "never"']
    assert "dns" not in told and "address" not in told


def test_the_default_is_named_where_no_rule_matched(explain, policy):
    status, told = explain("GET", "http://10.0.0.1/")
    assert (status, told["verdict"]) == (1, ["refused 403  destination_denied"])
    assert told["rule"][0].endswith(f"deny {policy} (default)")


def test_a_name_that_hangs_on_its_address_is_a_maybe(explain):
    status, told = explain("CONNECT", "both.example:443")
    assert told["rule"][0].startswith("maybe  allow ")
    assert [line.split()[2] for line in told["address"]] == ["ok", "destination_denied"]
    assert status == 0


def test_a_report_says_so(explain):
    status, told = explain("GET", "http://watched.example/")
    assert (status, told["verdict"]) == (0, ["allowed  ok  reported"])


@pytest.mark.parametrize("user, outcome", [
    ("nobody", "auth_failed"), ("old", "auth_expired")])
def test_who_could_not_come_in_is_refused(explain, user, outcome):
    status, told = explain("GET", "http://watched.example/", user=user)
    assert (status, told["verdict"]) == (1, [f"refused 407  {outcome}"])
    assert "rule" not in told


def test_the_user_of_a_listener_is_known(ask, policy, tmp_path):
    """`explain` answered 407, although the listener asks for no password."""
    config = tmp_path / "proxy.toml"
    config.write_text(f"""policy = "{policy}"
[[listeners]]
address = "127.0.0.1:0"
auth = "none"
user = "job"
""")
    for words in ([], ["--user", "job"]):
        _, out, _ = ask("explain", "-c", str(config), *words, "GET",
                        "http://10.0.0.1/")
        assert "user     job\n" in out and "407" not in out
    assert "407  auth_failed" in ask(
        "explain", "-c", str(config), "--user", "eve", "GET", "http://a/")[1]


@pytest.mark.parametrize("method, target, outcome", [
    ("CONNECT", "127.0.0.1", "bad_target"), ("GET", "http://a@b/", "bad_target"),
    ("GET", "http://a b/", "bad_request"), ("GE T", "http://a/", "bad_request"),
    ("GET", "http://a/\r\nX: y", "bad_request"), ("GET", "ftp://a/", "bad_target")])
def test_what_a_proxy_could_not_read_is_a_400(explain, method, target, outcome):
    status, told = explain(method, target)
    assert (status, told["verdict"]) == (1, [f"refused 400  {outcome}"])


@pytest.mark.parametrize(("target", "remark"), [
    ("example.com", "the port is missing: CONNECT example.com:443"),
    ("2001:db8::1", "the port is missing: CONNECT [2001:db8::1]:443"),
    ("https://example.com/", "CONNECT takes host:port, without scheme and path")])
def test_a_target_of_connect_that_cannot_be_read_is_told_why(explain, target, remark):
    """`refused 400  bad_target` left a beginner with nothing to do."""
    status, told = explain("CONNECT", target)
    assert (status, told["target"]) == (1, [remark])
    assert told["verdict"] == ["refused 400  bad_target"]


@pytest.mark.parametrize("argv", [
    ("GET", "/path"), ("GET", "http://a/", "--client", "nowhere")])
def test_what_is_no_question_exits_2(ask, argv):
    status, out, err = ask("explain", *argv)
    assert (status, out) == (2, "")
    assert err.startswith("cutthrough: ")


def test_who_asks_must_be_said_where_there_are_several(ask, policy):
    assert ask("explain", "--policy", str(policy), "GET", "http://a/") == (
        2, "", "cutthrough: --user: is needed: the configuration has several\n")


@pytest.mark.parametrize("argv", [
    (), ("GET",), ("GET", "http://a/", "--log", "x"), ("GET", "--log", "x")])
def test_a_request_or_a_log_is_asked_for(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["explain", *argv])
    assert ended.value.code == 2


def test_json_has_the_same(ask, policy):
    status, out, _ = ask("explain", "--policy", str(policy), "--user", "alice",
                         "--json", "CONNECT", "10.1.2.3:443")
    told = json.loads(out)
    assert (status, told["outcome"], told["host"], told["limits"]) == (
        0, "ok", "10.1.2.3", "slow")
    assert told["addresses"][0]["kind"] == "private-use"
    assert told["addresses"][0]["opens_floor"] is True


def test_without_a_policy_ports_and_floor_decide(ask):
    flags = ("--listen", "192.0.2.1:3128", "--address-floor", "on",
             "--connect-ports", "443")
    env = ("--users-file", "/dev/null")
    status, _, err = ask("explain", *flags, *env, "--user", "x", "GET", "http://a/")
    assert status == 2 and "lists no users" in err
    status, out, _ = ask("explain", "--connect-ports", "443", "CONNECT", "10.0.0.1:22")
    assert status == 1 and "refused 403  port_denied" in out
    assert "port_denied  not checked: the port is refused" in out
    status, out, _ = ask("explain", "--address-floor", "on", "GET", "http://2130706433/")
    assert status == 1 and "127.0.0.1  loopback own  address_denied" in out
    status, out, _ = ask("explain", "CONNECT", "127.0.0.1:8888")
    assert status == 1 and "refused 508  loop_detected" in out, "our own listener (R20)"


HOOK = """
from cutthrough import Decision

async def decide(request):
    if request.host == "10.0.0.9":
        raise RuntimeError("no database")
    return Decision(request.host == "10.0.0.1", f"asked by {request.user}")
"""


def test_the_hook_is_asked_and_says_so(ask, tmp_path, monkeypatch):
    (tmp_path / "explained_hook.py").write_text(HOOK)
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("explain", "--policy-hook", "explained_hook:decide", "GET")
    status, out, _ = ask(*flags, "http://10.0.0.1/")
    assert status == 0
    assert "hook     ok  asked by username  (explained_hook:decide)" in out
    status, out, _ = ask(*flags, "http://10.0.0.2/")
    assert status == 1 and "hook     destination_denied  asked by username" in out
    status, out, _ = ask(*flags, "http://10.0.0.9/")
    assert status == 1 and "refused 503  policy_unavailable" in out


# Another policy, by a past log.

@pytest.fixture
def replay(ask, policy, log):
    def run(*entries, flags=()):
        return ask("explain", "--log", log(*entries), "--policy", str(policy), *flags)
    return run


def test_verdicts_that_would_change_are_grouped_and_counted(replay, policy):
    public = {"peer": "93.184.215.14"}
    status, out, err = replay(
        *[entry(host="www.example", rule="old", **public)] * 3,
        entry("destination_denied", host="10.1.2.3", rule="default"),
        entry(host="watched.example", method="GET", port=80, **public),
        entry(host="site.example", **public),
        entry("destination_denied", host="a.forbidden.example"),
        entry("auth_failed", user=None))
    where = line_of(policy, "site")
    assert (status, err) == (1, "")
    assert [re.split("  +", line.strip()) for line in out.splitlines()] == [
        ["3", "alice", "CONNECT", "www.example:443", "allow -> deny",
         f"old -> deny {policy} (default)"],
        ["1", "alice", "CONNECT", "10.1.2.3:443", "deny -> allow",
         f'default -> allow {where} "site"'],
        ["1", "alice", "GET", "watched.example:80", "allow -> report",
         f'ok -> report {line_of(policy, "watched")} "watched"'],
        ["5 of 8 lines would change, 0 depend on an address, a path or first bytes "
         "that are not in the log"]]


def test_the_address_that_was_connected_to_is_judged(replay):
    status, out, _ = replay(entry(peer="10.9.9.9"))
    assert status == 1 and "allow -> deny" in out, "the floor"


def test_nothing_changes_exits_0(replay):
    status, out, _ = replay(entry(peer="93.184.215.14"),
                            entry("dns_not_found"), entry("connection_refused"))
    assert status == 0
    assert out.startswith("0 of 3 lines would change, ")


def test_what_hangs_on_an_unknown_address_is_told_apart(replay):
    status, out, _ = replay(entry("destination_denied", host="both.example"),
                            entry("address_denied", host="site.example"))
    assert status == 0
    assert out == ("0 of 2 lines would change, 2 depend on an address, a path or first "
                   "bytes that are not in the log\n")


def test_what_the_hook_refused_stays_refused(replay):
    assert replay(entry("destination_denied", hook="no"))[0] == 0


def test_lines_that_are_no_log_are_counted(replay, log):
    status, _, err = replay('{"reason":"o', "", entry(peer="93.184.215.14"),
                            entry(host="a b"), entry(client="-"))
    assert status == 0
    assert err.endswith("3 lines are not of an access log in JSON\n")


def test_a_log_in_another_form_exits_2(replay):
    status, _, err = replay("1763.1 5 127.0.0.1 TCP_MISS/200 12 GET http://a/ me")
    assert status == 2 and "access_log_format" in err


def test_what_a_log_holds_does_not_steer_a_terminal(replay):
    _, out, _ = replay(entry(user="a\x1b[2Jb", peer="93.184.215.14"))
    assert "\x1b" not in out and "a?[2Jb" in out


def test_json_lines_of_changes(replay):
    _, out, _ = replay(entry(host="www.example", peer="93.184.215.14"),
                       flags=["--json"])
    assert json.loads(out)["new"] == "deny"


# A policy that lets the refused requests pass.

def test_the_proposal_is_a_policy_that_lets_the_refused_pass(ask, log, tmp_path):
    refused = [
        *[entry("destination_denied")] * 12,
        *[entry("destination_denied", host="b.example")] * 3,
        entry("destination_denied", user="b\xc3\xb6b", method="PATCH", port=80),
        entry("destination_denied", host="93.184.215.14", method="GET", port=8080),
        entry("port_denied", port=8443)]
    status, out, _ = ask("suggest", "--log", log(*refused, entry(host="other.example")))
    assert status == 0
    assert '"site.example",  # 12 destination_denied' in out
    assert '"93.184.215.14",  # 1 destination_denied (public)' in out
    assert "connect_ports refused 1 of these: add 8443 to that option" in out
    assert "other.example" not in out
    assert read_policy(out, "p", str).rules[0].users == ("alice",)
    path = tmp_path / "new.toml"
    path.write_text(out)
    status, changed, _ = ask("explain", "--log", log(*refused), "--policy", str(path),
                             "-c", config_of(tmp_path))
    assert status == 1
    assert f"{len(refused)} of {len(refused)} lines would change, 0 depend" in changed
    assert changed.count("deny -> allow") == 5


def config_of(folder):
    path = folder / "cutthrough.toml"
    path.write_text('user = "me"\npassword = "secret"\n')
    return str(path)


def test_an_upgrade_of_the_past_is_judged_and_proposed_as_its_kind(log):
    """R4: the log has the method of the request, and a rule for GET lets none pass."""
    out = suggest(LogReader(log(
        entry("destination_denied", method="GET", upgrade=True),
        entry("destination_denied", method="GET", host="plain.example"))))
    assert [rule.methods for rule in read_policy(out, "p", str).rules] == [
        ("GET",), ("UPGRADE",)]


def test_a_request_by_socks_is_judged_and_proposed_as_a_connect(log):
    """R41."""
    out = suggest(LogReader(log(*(
        entry("destination_denied", method=method)
        for method in ("CONNECT", "SOCKS5", "SOCKS4")))))
    assert [rule.methods for rule in read_policy(out, "p", str).rules] == [("CONNECT",)]


def test_what_no_rule_can_open_is_told_and_not_proposed(log):
    out = suggest(LogReader(log(
        entry("address_denied", host="intranet.example"),
        entry("address_denied", host="169.254.169.254"),
        entry("destination_denied", hook="no", host="hooked.example"),
        entry("address_denied", host="10.1.2.3"),
        entry("destination_denied", host="fc00::1"),
        entry("destination_denied", host="::ffff:192.168.0.1"),
        entry("destination_denied", user="#b"))))
    assert read_policy(out, "p", str).rules == ()
    for text in ("the floor refuses the name's address", "hands out credentials",
                 "the hook refused it",
                 "private-use: an address in `hosts` opens the floor"):
        assert text in out
    assert out.count("\n# 1 ") == 7


def test_what_a_deny_rule_refused_is_told_and_not_proposed(log):
    """A rule to let it pass was proposed, to stand above the rule that forbids it."""
    out = suggest(LogReader(log(
        *[entry("destination_denied", host="evil.example", rule="never")] * 2,
        entry("destination_denied", host="evil.example", rule="default"),
        entry("destination_denied", host="old.example", rule="policy.toml:12"),
        entry("destination_denied", host="new.example", rule="default"),
        entry("destination_denied", host="role.example", rule="services that enforce"),
        entry("destination_denied", host="asked.example", rule="all", hook="no"))))
    assert "a deny\n# rule of the policy refused are not proposed" in out
    rules = read_policy(out, "p", str).rules
    assert [rule.hosts for rule in rules] == [("new.example", "role.example")]
    assert ("# 3 destination_denied: alice CONNECT evil.example port 443\n"
            '#     the rule "never" refuses it; ' in out)
    assert 'the rule "policy.toml:12" refuses it; ' in out


@pytest.mark.parametrize("user", ['q"', "b\\", "x\x7fy", "\xf0\x9f\x98\x80", "a\x1bb"])
def test_a_user_of_any_spelling_is_quoted(log, user):
    out = suggest(LogReader(log(entry("destination_denied", user=user))))
    rules = read_policy(out, "p", str).rules
    assert "\x1b" not in out
    assert not rules or rules[0].users == (user.encode("latin-1").decode(),)


def test_nothing_refused_proposes_nothing(log):
    assert suggest(LogReader(log(entry()))) == "# Nothing was refused.\n"


# Destinations that the doctor tries.

def test_the_doctor_has_200_disguises_of_what_is_not_public():
    made = [one for one in disguises() if one.address]
    assert len(made) >= 200
    assert all(class_of(one.address) != "public" for one in made)
    assert class_of(NOWHERE) == "public"


def test_a_disguise_is_read_as_the_address_that_it_hides():
    for one in disguises():
        got = read_authority(one.host.encode(), 80)
        if not one.address:
            assert isinstance(got, str), one
        elif not one.zone and one.kind != "localhost":
            wanted = read_authority((f"[{one.address}]" if ":" in one.address else
                                     one.address).encode(), 80)
            assert got["address"] == wanted["address"], one


