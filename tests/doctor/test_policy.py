"""`cutthrough doctor`: probable mistakes in a policy file."""

import re

import pytest

from cutthrough.doctor import rules
from cutthrough.doctor.finding import Finding
from cutthrough.policy.rules import read_policy
from tests.doctor.hosts import ME, OUTSIDE, make_case, verdicts


def findings_of(text: str, **options) -> list[Finding]:
    policy = read_policy(text, "policy.toml", lambda name: "")
    return list(rules.check_policy(make_case(policy=policy, **ME, **options)))


def test_a_policy_without_flaw_is_one_line():
    (found,) = findings_of('[[rules]]\naction = "allow"\nhosts = ["a.test"]\n')
    assert (found.verdict, found.seen) == ("ok", "policy.toml: 1 rules, 0 users")


@pytest.mark.parametrize(("text", "said"), [
    ('[[rules]]\naction = "deny"\n[[rules]]\naction = "allow"\nhosts = ["a.test"]\n',
     "1 rule after it cannot match"),
    ('[[rules]]\naction = "allow"\nhosts = ["a.test"]\n'
     '[[rules]]\naction = "deny"\nhosts = ["a.test"]\n', "cannot match"),
    ('[[rules]]\naction = "allow"\nhosts = ["a.test"]\nroute = "direct"\n'
     '[[rules]]\naction = "allow"\nhosts = ["a.test"]\n', "cannot match"),
    ('[[rules]]\naction = "allow"\nhosts = ["a.test"]\norigin = "a"\n'
     '[[rules]]\naction = "allow"\nhosts = ["a.test"]\norigin = "b"\n',
     "cannot match"),
    ('[[rules]]\naction = "allow"\nusers = ["me", "nobody"]\n',
     "no user nobody"),
])
def test_what_a_policy_surely_does_not_mean_is_told(text, said):
    told = [finding for finding in findings_of(text) if finding.verdict == "warn"]
    assert [finding.seen for finding in told] == [said]
    assert re.match(r"policy\.toml:\d+", told[0].name) and told[0].advice


def test_a_rule_for_an_origin_leaves_other_requests_to_later_rules():
    (found,) = findings_of('[[rules]]\naction = "allow"\norigin = "a"\n'
                           '[[rules]]\naction = "deny"\n')
    assert found.verdict == "ok"


def test_a_group_of_somebody_who_is_not_there_is_told():
    """A name that is mistyped there takes no user in, and gives no error."""
    (found,) = findings_of('[groups]\nci = ["me", "nobdy"]\n')
    assert (found.name, found.verdict) == ("group ci", "note")
    assert found.seen == "no user nobdy"


def test_a_user_of_a_certificate_is_defined_nowhere(tmp_path):
    """It was a warning."""
    file = tmp_path / "c.toml"
    file.write_text('[[listeners]]\naddress = "127.0.0.1:0"\n'
                    'certificates = ["a.pem"]\nclient_ca = "ca.pem"\n'
                    'client_certificate = "optional"\n')
    (found,) = findings_of('[[rules]]\naction = "allow"\n'
                           'users = ["spiffe://td/ns/x"]\n', file=str(file))
    assert (found.verdict, found.seen) == ("note", "no user spiffe://td/ns/x")


def test_an_open_floor_on_an_exposed_listener_is_told():
    case = make_case(**OUTSIDE, address_floor="off")
    assert verdicts(rules.check_policy(case))["address floor"] == "warn"
    assert "address floor" not in verdicts(rules.check_policy(make_case(**OUTSIDE)))
