"""Rules about paths: the compiled rules, against a scan of the same rules in Python."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Answer, Look
from cutthrough.policy.source import Policy, Rule
from tests.wire import twin_paths
from tests.wire.paths import PATHS


def ask(*rules: Rule, path: bytes | None = b"/", default: Any = "deny",
        method: str = "GET", **fields: Any) -> Answer:
    asked: dict[str, Any] = {"host": "a.b", "port": 80, **fields}
    return Acl(Policy(rules=rules, default=default)).ask(
        **asked, method=method, path=path)


def allow(*paths: str, **fields: Any) -> Rule:
    return Rule(action="allow", paths=paths, **fields)


def deny(*paths: str, **fields: Any) -> Rule:
    return Rule(action="deny", paths=paths, **fields)


def verdict(answer: Answer) -> tuple[str, int]:
    return answer.outcome, answer.rule


RULES = st.builds(
    Rule, action=st.sampled_from(("allow", "deny", "report")),
    hosts=st.sampled_from(((), ("a.b",), ("*.b",), ("c.d",))),
    addresses=st.sampled_from(((), (), ("10.0.0.0/8",))),
    methods=st.sampled_from(((), ("GET",), ("CONNECT", "GET"), ("CONNECT",))),
    paths=st.lists(st.sampled_from((
        "/", "/a", "/a/**", "/**", "/*", "/a/*/b1", "/**/a", "/:", "/a*", "/%2A")),
        max_size=2).map(tuple))


def scan(policy: Policy, method: str, path: bytes | None, address: str | None,
         ) -> tuple[str, int]:
    """The slow, obvious twin, for the host a.b and an address in 10/8, if it is known.
    """
    skipped = False
    for i, rule in enumerate(policy.rules):
        if rule.hosts == ("c.d",) or (rule.methods and method not in rule.methods):
            continue
        if rule.paths and method == "CONNECT":
            continue
        denies = rule.action == "deny"
        if rule.paths and not (twin_paths.meets(rule.paths, path, denies)
                               if path is not None else not denies):
            skipped |= not denies
            continue
        if rule.addresses and address is None and denies:
            continue
        by_path = bool(rule.paths) or skipped
        return ("path_denied" if by_path else "destination_denied") if denies else (
            "ok"), i
    if policy.default == "deny":
        return "path_denied" if skipped else "destination_denied", -1
    return "ok", -1


@given(st.lists(RULES, max_size=6).map(tuple),
       st.sampled_from(("allow", "deny", "report")),
       st.sampled_from(("GET", "CONNECT")),
       st.one_of(st.none(), PATHS), st.sampled_from((None, "10.1.2.3")))
def test_it_decides_as_a_scan_of_the_rules_does(rules, default, method, path, address):
    policy = Policy(rules=rules, default=default)
    answer = Acl(policy).ask(
        host="a.b", port=80, method=method, path=path, address=address)
    assert verdict(answer) == scan(policy, method, path, address)


def test_a_path_is_compared_case_included_and_without_its_query():
    rule = allow("/api/**", "/health")
    for path in (b"/api", b"/api/x/y", b"/health", b"/health?x=/admin", b"/api?/.."):
        assert verdict(ask(rule, path=path)) == ("ok", 0)
    for path in (b"/", b"/API/x", b"/apis", b"/health/", b"/?/api/x"):
        assert verdict(ask(rule, path=path)) == ("path_denied", -1)


UNCLEAR = (b"/api/../admin", b"/api//x", b"/api/%2e%2e/admin", b"/api/a%2Fb",
           b"/api/..;/admin", b"/api/%252e", b"/api/%00")


@pytest.mark.parametrize("path", UNCLEAR)
def test_an_unclear_path_is_refused_in_one_way(path):
    """R56: with any paths of the rules, and in any order."""
    assert verdict(ask(allow("/api/**"), path=path)) == ("path_denied", -1)
    assert verdict(ask(allow("/**"), path=path)) == ("path_denied", -1)
    assert verdict(ask(deny("/admin"), allow(), path=path)) == ("path_denied", 0)
    assert verdict(ask(Rule(action="report", paths=("/**",)), path=path)) == (
        "path_denied", -1)
    assert verdict(ask(allow("/api/**", hosts=("c.d",)), allow(), path=path)) == (
        "ok", 1), "rules about other hosts"


def test_a_rule_matches_each_spelling_or_any():
    """An encoded character that need not be is another path for some servers."""
    for path in (b"/%61dmin/x", b"/admin;v/x", b"/adm%69n%3b/x"):
        assert verdict(ask(deny("/admin/**"), allow(), path=path)) == ("path_denied", 0)
        assert verdict(ask(allow("/admin/**"), path=path)) == ("path_denied", -1)
        assert verdict(ask(allow("/*/x"), path=path)) == ("ok", 0)


@pytest.mark.parametrize("method", ["CONNECT", "OPTIONS"])
def test_what_has_no_path_meets_no_rule_about_paths(method):
    path = None if method == "CONNECT" else b"*"
    for rule in (allow("/**"), deny("/**")):
        answer = ask(rule, allow(hosts=("a.b",)), method=method, path=path)
        assert verdict(answer) == ("ok", 1)
        assert answer.looked[0] == Look(0, "method")
        answer = ask(rule, method=method, path=path)
        assert verdict(answer) == ("destination_denied", -1), "no path's fault"


def test_an_upgrade_has_a_path():
    assert verdict(ask(allow("/ws"), method="UPGRADE", path=b"/ws?v=1")) == ("ok", 0)
    assert verdict(ask(allow("/ws"), method="UPGRADE")) == ("path_denied", -1)


def test_a_path_that_is_not_known_any_more_refuses_nothing():
    """A running tunnel, after a reload."""
    assert verdict(ask(deny("/a"), allow(), method="UPGRADE", path=None)) == ("ok", 1)
    assert verdict(ask(allow("/a"), method="UPGRADE", path=None)) == ("ok", 0)


def test_the_reason_is_the_path_if_another_path_might_pass():
    api = allow("/api/**", hosts=("a.b",))
    assert ask(api).outcome == "path_denied"
    assert ask(deny("/"), allow()).outcome == "path_denied"
    assert ask(api, deny(hosts=("*.b",))).outcome == "path_denied"
    assert ask(api, host="c.d").outcome == "destination_denied"
    assert ask(deny(), api).outcome == "destination_denied", "it comes too late"
    assert ask(allow("/api", methods=("POST",))).outcome == "destination_denied"
    assert ask(deny("/api"), deny()).outcome == "destination_denied"
    assert ask(deny("/api"), default="allow").outcome == "ok"


def test_a_rule_about_paths_and_addresses_waits_for_the_address():
    rule = allow("/api/**", addresses=("10.0.0.0/8",))
    answer = ask(rule, path=b"/api")
    assert (*verdict(answer), answer.maybe) == ("ok", 0, True)
    answer = ask(rule, path=b"/api", address="10.1.2.3")
    assert (*verdict(answer), answer.opens_floor) == ("ok", 0, True)
    assert ask(rule, path=b"/api", address="11.1.2.3").outcome == "destination_denied"
    assert ask(rule, path=b"/", address="10.1.2.3").outcome == "path_denied"


def test_each_look_says_what_failed():
    answer = ask(allow("/a"), deny("/b", methods=("POST",)), allow("/c"), path=b"/c")
    assert answer.looked == (Look(0, "path"), Look(1, "method"), Look(2, ""))


def test_many_globs_are_one_set_for_all_rules_that_name_them():
    globs = tuple(f"/v1/{n}/**" for n in range(1000))
    acl = Acl(Policy(rules=(allow(*globs, hosts=("a.b",)), deny(*globs))))
    assert acl.sizes()["paths"] < 64_000
    assert acl.ask(host="a.b", port=1, method="GET", path=b"/v1/999/x").rule == 0
    assert acl.ask(host="c.d", port=1, method="GET", path=b"/v1/0").rule == 1
    assert acl.ask(host="c.d", port=1, method="GET", path=b"/v1/1000").rule == -1
