"""explain and suggest, with rules that depend on a tunnel's first bytes."""

import re

import pytest

from tests.tools.explaining import ALICE, entry, line_of

JA4 = "t13d1516h2_8daaf6152771_e5627efa2ab1"
POLICY = ALICE + """
[lists]
bad = ["t13d1516h2_*_*"]

[limits.slow]
tunnels = 1

[[rules]]
name = "malware"
action = "deny"
ja4 = ["@bad"]

[[rules]]
name = "web"
action = "allow"
hosts = ["93.184.215.14", "site.example"]
protocol = ["tls"]
sni = "match"
limits = "slow"

[[rules]]
name = "shell"
action = "report"
hosts = ["93.184.215.14"]
protocol = ["ssh"]
"""
HOST = "93.184.215.14"


def test_without_the_first_bytes_the_decision_is_open(explain, policy):
    status, told, _ = explain("CONNECT", f"{HOST}:443")
    assert status == 0
    assert told["rule"] == f'ok  allow {line_of(policy, "web")} "web"'
    assert told["tunnel"].startswith("maybe  decided again when its first bytes are ")
    assert told["verdict"] == "allowed  ok"


@pytest.mark.parametrize(("flags", "tunnel", "verdict"), [
    (("--protocol", "tls"), 'ok  allow {web} "web"', "allowed  ok"),
    (("--sni", "b.example"), "sni_denied  deny {policy} (default)",
     "closed after the 200  sni_denied"),
    (("--protocol", "smtp"), "protocol_denied  deny {policy} (default)",
     "closed after the 200  protocol_denied"),
    (("--protocol", "ssh"), 'ok  report {shell} "shell"', "allowed  ok  reported"),
    (("--ja4", JA4), 'ja4_denied  deny {malware} "malware"',
     "closed after the 200  ja4_denied")])
def test_with_them_the_last_rule_is_shown(explain, policy, flags, tunnel, verdict):
    status, told, _ = explain("CONNECT", f"{HOST}:443", *flags)
    rules = {name: line_of(policy, name) for name in ("web", "shell", "malware")}
    assert told["tunnel"] == tunnel.format(policy=policy, **rules)
    assert told["verdict"] == verdict
    assert status == (0 if verdict.startswith("allowed") else 1)
    if tunnel.startswith("ok"):
        assert told["limits"].startswith("slow" if "web" in tunnel else "none")


def test_a_name_is_compared_as_requested(explain):
    flags = "--dns-overrides", f"site.example={HOST}", "--sni"
    assert explain("CONNECT", "site.example:443", *flags, "SITE.example.")[0] == 0
    assert explain("CONNECT", "site.example:443", *flags, HOST)[0] == 1


def test_a_request_without_a_tunnel_is_not_asked_about(explain):
    status, told, _ = explain("GET", f"http://{HOST}/", "--sni", "b.example")
    assert status == 1
    assert "tunnel" not in told
    assert told["verdict"] == "refused 403  destination_denied"


@pytest.mark.parametrize(("flag", "value", "said"), [
    ("--protocol", "gopher", "'gopher' is not one of tls, http"),
    ("--ja4", "t13d1516h2_*_*", "takes a whole fingerprint"),
    ("--ja4", "x", "'x' is no JA4")])
def test_a_mistake_in_the_first_bytes_is_told(explain, flag, value, said):
    status, _, err = explain("CONNECT", f"{HOST}:443", flag, value)
    assert status == 2
    assert said in err


def test_a_log_is_replayed_with_its_first_bytes(ask, policy, log):
    tls = {"host": HOST, "peer": HOST, "tunnel_protocol": "tls"}
    status, out, _ = ask(
        "explain", "--policy", str(policy), "--log", log(
            entry(**tls), entry("sni_denied", **tls, sni="b.example"),
            entry("sni_denied", **tls), entry(**tls, ja4=JA4),
            entry("peek_timeout", **tls), entry(host=HOST, peer=HOST)))
    assert status == 1
    lines = [re.split("  +", line.strip()) for line in out.splitlines()]
    assert sorted(line[4] for line in lines[:-1]) == ["allow -> deny", "deny -> allow"]
    assert lines[-1] == ["2 of 6 lines would change, 1 depend on an address, a path or "
                         "first bytes that are not in the log"]


TLVS = ALICE + """
[[rules]]
name = "endpoint"
action = "allow"
tlvs = { aws_vpce = ["vpce-1"], authority = [".site.example"] }
"""
GIVEN = "--tlv", "aws_vpce=vpce-1", "--tlv", "authority=a.site.example"


@pytest.mark.parametrize(("flags", "status"), [
    (GIVEN, 0), ((*GIVEN, "--tlv", "type_e0=0x00"), 0), (GIVEN[:2], 1), ((), 1),
    (("--tlv", "aws_vpce=vpce-2", *GIVEN[2:]), 1)])
def test_a_request_has_the_tlvs_of_its_header(explain, policy, flags, status):
    policy.write_text(TLVS)
    got, told, _ = explain("CONNECT", f"{HOST}:443", *flags)
    assert got == status
    assert told["verdict"] == (
        "refused 403  destination_denied" if status else "allowed  ok")


@pytest.mark.parametrize(("value", "said"), [
    ("vpce=x", "'vpce' is not one of alpn, authority"),
    ("unique_id=x", "'unique_id' is not one of"),
    ("alpn=", "'' has 0 octets"), ("type_e0=0x0", "two hexadecimal digits")])
def test_a_mistake_in_a_tlv_is_told(explain, value, said):
    status, _, err = explain("CONNECT", f"{HOST}:443", "--tlv", value)
    assert status == 2
    assert said in err


def test_a_log_is_replayed_with_its_tlvs(ask, policy, log):
    policy.write_text(TLVS)
    given = {"aws_vpce": "vpce-1", "authority": "site.example", "unique_id": "\xff",
             "future": "x", "netns": "cut…"}
    status, out, _ = ask(
        "explain", "--policy", str(policy), "--log", log(
            entry(host=HOST, peer=HOST, proxy_tlvs=given), entry(host=HOST, peer=HOST),
            entry(host=HOST, peer=HOST, proxy_tlvs={"aws_vpce": "vpce-1"})))
    assert status == 1
    assert out.splitlines()[0].split()[:1] == ["2"]
    assert "2 of 3 lines would change" in out


def test_no_rule_is_proposed_for_first_bytes(ask, log):
    _, out, _ = ask("suggest", "--log", log(
        entry("sni_denied", host=HOST, tunnel_protocol="tls", sni="b.example")))
    assert "a rule refuses the tunnel's first bytes" in out
    assert "[[rules]]" not in out


@pytest.mark.parametrize(("tls", "outcome"), [
    ("intercept", "ok"), ("refuse", "tls_refused")])
def test_explain_says_what_becomes_of_tls(explain, policy, tls, outcome):
    policy.write_text(POLICY.replace('sni = "match"', f'tls = "{tls}"').replace(
        'name = "malware"', 'users = ["alice"]\nname = "malware"'))
    status, words, _ = explain("CONNECT", f"{HOST}:443")
    assert words["tls"] == f"{tls}  if it is TLS"
    assert words["tunnel"].startswith("maybe")
    status, words, _ = explain("CONNECT", f"{HOST}:443", "--protocol", "tls")
    assert words["tunnel"].startswith(outcome)
    assert status == (outcome != "ok")


def test_explain_names_the_certificate_for_the_origin(explain, policy):
    policy.write_text(POLICY.replace(
        'sni = "match"', 'tls = "intercept"\nclient_certificate = "ours"').replace(
        'name = "malware"', 'users = ["alice"]\nname = "malware"'))
    words = explain("CONNECT", f"{HOST}:443")[1]
    assert words["shows"] == "ours  if the origin wants a client certificate"


def test_explain_says_that_pinned_clients_pass(explain, policy):
    text = POLICY.replace('sni = "match"', 'tls = "intercept"').replace(
        'name = "malware"', 'users = ["alice"]\nname = "malware"')
    policy.write_text(text)
    assert "pinned" not in explain("CONNECT", f"{HOST}:443")[1]
    policy.write_text(text.replace(
        'tls = "intercept"', 'tls = "intercept"\npinned = "pass"'))
    _, words, _ = explain("CONNECT", f"{HOST}:443")
    assert words["tls"] == "intercept  if it is TLS"
    assert words["pinned"].startswith("pass  for an hour, if a client of its network")
