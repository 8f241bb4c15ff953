"""What an origin may take for the method: its capitals, and that behind an offer to
upgrade (R4)."""

import pytest

from tests.policy.acls import acl_of, allow, deny


def test_an_upgrade_is_a_kind_of_its_own_and_no_method():
    # R4: to a rule with the method alone an offer looked like any GET.
    for rules, passes in (
            ((allow(methods=("GET",)),), False), ((allow(methods=("OTHER",)),), False),
            ((allow(methods=("UPGRADE",)),), True), ((allow(),), True),
            ((deny(methods=("GET", "CONNECT")), allow()), False),
            ((deny(methods=("PUT", "CONNECT")), allow()), True),
            ((deny(methods=("UPGRADE",)), allow()), False)):
        acl = acl_of(*rules)
        answer = acl.ask(host="a.b", port=80, method="UPGRADE")
        assert (answer.outcome == "ok") is passes
    acl = acl_of(allow(methods=("UPGRADE",)))
    for method in ("GET", "CONNECT", "OTHER", "PATCH"):
        assert acl.ask(host="a.b", port=80, method=method).outcome != "ok"


@pytest.mark.parametrize("own", ["DELETE", "POST", "PATCH"])
def test_an_offer_to_upgrade_hides_no_method(own):
    """R56's principle: the origin may ignore the offer, and do what the method says."""
    for rules, passes in (
            ((deny(methods=(own,)), allow()), False),
            ((deny(methods=("OTHER",)), allow()), own != "PATCH"),
            ((deny(methods=("GET",)), allow()), True),
            ((allow(methods=("GET", "UPGRADE")),), False),
            ((allow(methods=(own,)),), False),
            ((allow(methods=(own, "UPGRADE")),), True), ((allow(),), True)):
        answer = acl_of(*rules).ask(
            host="a.b", port=80, method="UPGRADE", own_method=own)
        assert (answer.outcome == "ok") is passes, rules


@pytest.mark.parametrize("sent", ["delete", "Delete", "dELETE"])
def test_a_method_is_denied_in_any_spelling(sent):
    """Django, Symfony and ASP.NET do what "delete" says: they write it in capitals."""
    for rules, passes in (
            ((deny(methods=("DELETE",)), allow()), False),
            ((deny(methods=("OTHER",)), allow()), False),
            ((deny(methods=("PATCH", "POST")), allow()), True),
            ((allow(methods=("GET", "OTHER")),), False),
            ((allow(methods=("DELETE",)),), False),
            ((allow(methods=("DELETE", "OTHER")),), True), ((allow(),), True)):
        acl = acl_of(*rules)
        for more in ({"method": sent}, {"method": "UPGRADE", "own_method": sent}):
            outcome = acl.ask(host="a.b", port=80, **more).outcome
            assert outcome != "ok" or passes, (rules, more)
            assert outcome == "ok" or not passes or "own_method" in more


def test_another_method_is_denied_in_any_spelling():
    acl = acl_of(deny(methods=("M-SEARCH", "PATCH")), allow())
    for sent, passes in (("m-search", False), ("Patch", False), ("patchy", True),
                         ("p" * 32, True), ("p" * 33, True), ("get", True)):
        outcome = acl.ask(host="a.b", port=80, method=sent).outcome
        assert (outcome == "ok") is passes, sent
