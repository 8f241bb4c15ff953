"""Rules about a tunnel's first bytes: their matches before and after these come."""

from typing import Any

import pytest

from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Answer, Caller
from cutthrough.policy.fingerprints import parse_fingerprint
from cutthrough.policy.source import Policy, Rule

JA4 = "t13d1516h2_8daaf6152771_e5627efa2ab1"
OTHER = "t13d1517h2_8daaf6152771_cb7bf5808d99"
TLS = ("tls", "a.example", JA4)


def ask(*rules: Rule, default: Any = "deny", host: str = "a.example",
        opening: tuple[str, str, str] | None = None, **fields: Any) -> Answer:
    acl = Acl(Policy(rules=rules, default=default))
    return acl.ask(host=host, port=443, opening=opening, **fields)


def allow(**fields: Any) -> Rule:
    return Rule(action="allow", **fields)


def deny(**fields: Any) -> Rule:
    return Rule(action="deny", **fields)


# While they are not known


@pytest.mark.parametrize("condition", [
    {"protocol": ("tls",)}, {"sni": "match"}, {"ja4": (JA4,)}])
def test_an_allowing_rule_lets_a_request_continue(condition):
    answer = ask(allow(**condition))
    assert (answer.outcome, answer.rule, answer.waits) == ("ok", 0, True)


def test_a_denying_rule_is_skipped_until_then():
    answer = ask(deny(ja4=(JA4,)), allow())
    assert (answer.outcome, answer.rule, answer.waits) == ("ok", 1, True)
    answer = ask(deny(ja4=(JA4,)))
    assert (answer.outcome, answer.rule) == ("destination_denied", -1)


def test_a_rule_that_cannot_decide_does_not_wait():
    assert not ask(allow(), deny(ja4=(JA4,))).waits
    assert not ask(allow(), allow(sni="match")).waits
    assert not ask(deny(hosts=("b.example",), ja4=(JA4,)), allow()).waits
    assert not ask(deny(users=("bob",), protocol=("ssh",)), allow()).waits
    assert ask(deny(hosts=("*.example",), ja4=(JA4,)), allow()).waits


def test_only_a_connect_has_first_bytes():
    for method in ("GET", "UPGRADE", "OTHER"):
        answer = ask(allow(protocol=("tls",)), method=method)
        assert (answer.outcome, answer.waits) == ("destination_denied", False)
        assert ask(deny(protocol=("ssh",)), allow(), method=method).rule == 1


def test_addresses_and_first_bytes_are_both_awaited():
    rule = allow(addresses=("10.0.0.0/8",), sni="match")
    assert (ask(rule).maybe, ask(rule).waits) == (True, True)
    found = ask(rule, address="10.0.0.1")
    assert (found.outcome, found.maybe, found.waits) == ("ok", False, True)
    found = ask(rule, address="11.0.0.1")
    assert (found.outcome, found.waits) == ("destination_denied", False)
    found = ask(rule, address="10.0.0.1", opening=TLS)
    assert (found.outcome, found.waits, found.opens_floor) == ("ok", False, True)


# When they are known


@pytest.mark.parametrize(("condition", "opening", "outcome"), [
    ({"protocol": ("tls",)}, TLS, "ok"),
    ({"protocol": ("ssh", "smtp")}, ("smtp", "", ""), "ok"),
    ({"protocol": ("tls",)}, ("ssh", "", ""), "protocol_denied"),
    ({"protocol": ("tls",)}, ("unknown", "", ""), "protocol_denied"),
    ({"protocol": ("tls",)}, ("silent", "", ""), "protocol_denied"),
    ({"ja4": (JA4,)}, TLS, "ok"),
    ({"ja4": (OTHER, JA4)}, TLS, "ok"),
    ({"ja4": (OTHER,)}, TLS, "ja4_denied"),
    ({"ja4": (JA4,)}, ("ssh", "", ""), "ja4_denied"),
    ({"ja4": ("*_8daaf6152771_*",)}, TLS, "ok"),
    ({"ja4": ("t13d1516h2_*_*",)}, TLS, "ok"),
    ({"ja4": ("t13d1516h2_8daaf6152771_*",)}, TLS, "ok"),
    ({"ja4": ("t13d1517h2_*_*", "*_*_000000000000")}, TLS, "ja4_denied"),
    ({"sni": "match"}, TLS, "ok"),
    ({"sni": "match"}, ("tls", "A.Example.", ""), "ok"),
    ({"sni": "match"}, ("tls", "b.example", ""), "sni_denied"),
    ({"sni": "match"}, ("tls", "aa.example", ""), "sni_denied"),
    ({"sni": "match"}, ("tls", "", ""), "sni_denied"),
    ({"sni": "match"}, ("ssh", "", ""), "sni_denied"),
    ({"sni": "any"}, ("tls", "b.example", ""), "ok"),
    ({"sni": "any"}, ("tls", "192.0.2.1", ""), "ok"),
    ({"sni": "any"}, ("tls", "", ""), "sni_denied"),
    ({"sni": "any"}, ("tls", "not a host", ""), "sni_denied"),
    ({"sni": "any"}, ("unknown", "", ""), "sni_denied")])
def test_a_condition_matches(condition, opening, outcome):
    answer = ask(allow(**condition), opening=opening)
    assert (answer.outcome, answer.waits) == (outcome, False)


@pytest.mark.parametrize(("name", "outcome"), [
    ("", "ok"), ("192.0.2.1", "ok"), ("192.0.2.2", "sni_denied"),
    ("a.example", "sni_denied")])
def test_an_address_has_no_server_name(name, outcome):
    """RFC 6066 section 3: addresses are not sent, and some clients do."""
    found = ask(allow(sni="match"), host="192.0.2.1", opening=("tls", name, ""))
    assert found.outcome == outcome


def test_another_name_is_allowed_if_the_rules_allow_it():
    rules = (deny(hosts=("secret.example",)),
             allow(hosts=("*.example",), sni="allowed"),
             allow(hosts=("cdn.test",), users=("bob",)))

    def outcome(name: str, **fields: Any) -> str:
        return ask(*rules, opening=("tls", name, ""), **fields).outcome

    assert outcome("b.example") == "ok"
    assert outcome("secret.example") == "sni_denied"
    assert outcome("cdn.test") == "sni_denied"
    assert outcome("cdn.test", caller=Caller("bob")) == "ok"
    assert outcome("") == "sni_denied"


def test_a_name_whose_rule_refuses_tls_is_not_allowed():
    """TLS to a name that no tunnel reaches by TLS passed in the tunnel to another."""
    rules = (allow(hosts=("plain.example",), tls="refuse"),
             allow(hosts=("a.example",), sni="allowed"))
    assert ask(*rules, opening=("tls", "plain.example", "")).outcome == "sni_denied"


def test_two_rules_that_ask_for_each_other_s_names_end():
    rules = (allow(hosts=("a.example",), sni="allowed"),
             allow(hosts=("b.example",), sni="allowed"))
    assert ask(*rules, opening=("tls", "b.example", "")).outcome == "ok"
    assert ask(*rules, opening=("tls", "c.example", "")).outcome == "sni_denied"


def test_the_reason_is_the_first_condition_that_fails():
    rule = allow(protocol=("tls",), sni="match", ja4=(JA4,))
    assert ask(rule, opening=("ssh", "", "")).outcome == "protocol_denied"
    assert ask(rule, opening=("tls", "b.example", OTHER)).outcome == "sni_denied"
    assert ask(rule, opening=("tls", "a.example", OTHER)).outcome == "ja4_denied"


@pytest.mark.parametrize(("condition", "outcome"), [
    ({"protocol": ("tls",)}, "protocol_denied"), ({"sni": "match"}, "sni_denied"),
    ({"ja4": (JA4,), "sni": "any"}, "ja4_denied")])
def test_a_denying_rule_names_its_own_condition(condition, outcome):
    answer = ask(deny(**condition), allow(), opening=TLS)
    assert (answer.outcome, answer.rule) == (outcome, 0)


def test_what_falls_through_is_decided_by_the_next_rule():
    rules = (allow(protocol=("tls",)), Rule(action="report", protocol=("ssh",)))
    answer = ask(*rules, opening=("ssh", "", ""))
    assert (answer.outcome, answer.rule, answer.report) == ("ok", 1, True)
    assert [look.mismatch for look in answer.looked] == ["protocol", ""]


# Fingerprints


@pytest.mark.parametrize("text", [JA4, OTHER, "t12i280600_*_*", "*_*_e5627efa2ab1",
                                  "ts3d010100_000000000000_000000000000"])
def test_a_fingerprint_is_read(text):
    assert parse_fingerprint(text) == (text,)


@pytest.mark.parametrize("text", [
    "", "*", "*_*_*", JA4[:-1], JA4 + "0", JA4.upper(), JA4.replace("_", "-"),
    "q" + JA4[1:], "t13x1516h2_8daaf6152771_e5627efa2ab1", "t13d*_*_*", JA4 + "\n"])
def test_anything_else_is_no_fingerprint(text):
    with pytest.raises(ValueError, match="is no JA4"):
        parse_fingerprint(text)


def test_a_long_list_is_searched():
    many = tuple(f"t13d{i:04}h2_{i:012x}_{i:012x}" for i in range(5000))
    rule = allow(ja4=(*many, "*_00000000ffff_*"))
    starred = "t12i000000_00000000ffff_000000000000"
    for ja4 in (many[0], many[4999], many[2500], starred):
        assert ask(rule, opening=("tls", "", ja4)).outcome == "ok"
    assert ask(rule, opening=("tls", "", JA4)).outcome == "ja4_denied"


# Rules for TLS


@pytest.mark.parametrize(("tls", "waits"), [
    ("pass", False), ("intercept", True), ("refuse", True)])
def test_a_rule_about_tls_waits_for_the_first_bytes(tls, waits):
    assert ask(allow(tls=tls)).waits == waits
    assert ask(allow(), allow(tls=tls)).waits is False
    assert ask(allow(tls=tls), method="GET").waits is False


def test_a_rule_that_refuses_tls_refuses_nothing_else():
    rule = allow(tls="refuse")
    assert ask(rule, opening=TLS).outcome == "tls_refused"
    assert ask(rule, opening=("ssh", "", "")).outcome == "ok"
    assert ask(allow(), rule, opening=TLS).outcome == "ok"
    assert ask(allow(tls="intercept"), opening=TLS).outcome == "ok"
