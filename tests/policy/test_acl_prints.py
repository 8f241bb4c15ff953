"""Rules about the fingerprints of a client's own connection."""

import pytest

from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Answer, Caller
from cutthrough.policy.fingerprints import parse_http2_fingerprint
from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import Policy, PolicyError, Rule

JA4 = "t13d1516h2_8daaf6152771_e5627efa2ab1"
CHROME = "1:65536;3:1000;4:6291456|15663105|0|m,a,s,p"
FIREFOX = "1:65536;4:131072;5:16384|12517377|3:0:0:201,5:0:0:101|m,p,a,s"


def ask(*rules: Rule, ja4: str = "", http2: str = "", method: str = "GET") -> Answer:
    acl = Acl(Policy(rules=rules))
    return acl.ask(host="a.example", port=443, method=method,
                   caller=Caller(ja4=ja4, http2=http2))


@pytest.mark.parametrize("method", ["GET", "CONNECT", "UPGRADE"])
def test_every_request_is_compared(method: str) -> None:
    rule = Rule(action="allow", client_ja4=(JA4,))
    answer = ask(rule, ja4=JA4, method=method)
    assert (answer.outcome, answer.waits) == ("ok", False)
    answer = ask(rule, ja4=JA4.replace("e5", "00"), method=method)
    assert answer.outcome == "destination_denied"
    assert answer.looked[0].mismatch == "client_ja4"
    assert ask(rule, method=method).outcome == "destination_denied"


@pytest.mark.parametrize(("pattern", "text", "is_met"), [
    (CHROME, CHROME, True), (FIREFOX, FIREFOX, True), (CHROME, FIREFOX, False),
    ("*|15663105|*|*", CHROME, True), ("*|15663105|*|*", FIREFOX, False),
    ("*|*|*|m,p,a,s", FIREFOX, True), ("*|*|0|*", CHROME, True),
    ("*|*|0|*", FIREFOX, False), ("|00|0|m,a,s,p", "|00|0|m,a,s,p", True),
    (CHROME, CHROME + ",x", False), (CHROME, CHROME[:-1], False),
    ("*|*|*|m,a,s,p", "m,a,s,p", False), (CHROME, "", False), ("*|*|0|*", "", False)])
def test_each_part_is_compared_or_starred(pattern: str, text: str, is_met: bool
                                          ) -> None:
    answer = ask(Rule(action="allow", http2_fingerprint=("1:2|3|0|m", pattern)),
                 http2=text)
    assert (answer.outcome == "ok") == is_met
    if not is_met:
        assert answer.looked[0].mismatch == "http2_fingerprint"


@pytest.mark.parametrize("text", [
    "", "*|*|*|*", "1:2", "1:2|3|0", "a|1|0|m", "1:2|3|0|m|p", "1:2|3|0|x", "1:|3|0|m",
    "1:2|3|1:2|m", "1:2| 3|0|m", "1:2|3|0|m\n", "1:2;" * 70 + "1:2|3|0|m"])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no fingerprint of HTTP/2"):
        parse_http2_fingerprint(text)


def read(text: str) -> Policy:
    return read_policy(text, "policy.toml", lambda name: "")


def test_a_policy_names_lists_of_them() -> None:
    rule = read(f'[lists]\nold = ["{JA4}"]\nnew = ["{CHROME}"]\n'
                '[[rules]]\naction = "deny"\n'
                'client_ja4 = ["@old", "*_*_000000000000"]\n'
                'http2_fingerprint = ["@new"]\n').rules[0]
    assert rule.client_ja4 == (JA4, "*_*_000000000000")
    assert rule.http2_fingerprint == (CHROME,)
    with pytest.raises(PolicyError, match="no JA4"):
        read('[[rules]]\naction = "deny"\nclient_ja4 = ["x"]\n')
