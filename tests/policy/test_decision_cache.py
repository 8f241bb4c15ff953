"""A hook's decisions: of exact form, and kept for their time to live."""

import math
import pickle

import pytest

from cutthrough.policy.decision_cache import Decision, DecisionCache

KEY = b"example.com\x01\xbb"


@pytest.mark.parametrize("allow", [None, 1, 0, "yes", object()])
def test_only_true_and_false_are_answers(allow):
    with pytest.raises(TypeError):
        Decision(allow)


@pytest.mark.parametrize("reason", [
    "x" * 65, "two\nlines", "\x1b[31m", "caf\xe9", "\x00"])
def test_a_reason_cannot_forge_a_log_line(reason):
    with pytest.raises(ValueError, match="reason"):
        Decision(False, reason)


@pytest.mark.parametrize("ttl", [-1, math.nan, math.inf, 86401])
def test_a_time_to_live_is_bounded(ttl):
    with pytest.raises(ValueError, match="ttl"):
        Decision(True, ttl=ttl)


@pytest.mark.parametrize("tls", ["intercept", None, True, "Pass"])
def test_a_tunnel_passes_or_is_as_the_rule_says(tls):
    with pytest.raises(ValueError, match="tls"):
        Decision(True, tls=tls)


def test_a_decision_can_be_pickled_and_no_other_compiled_object():
    """A build makes no code for the others, because it took a quarter of some modules'
    time; an object that lost its fields on the way would be worse than an exception."""
    made = Decision(True, "known", 60, "calm", "pass")
    assert repr(pickle.loads(pickle.dumps(made))) == repr(made)
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(DecisionCache())
    kept = DecisionCache()
    kept.keep(b"alice", KEY, Decision(True, ttl=2, tls="pass"), 1000)
    assert kept.get(b"alice", KEY, 2000).tls == "pass"


def test_a_verdict_is_of_one_user_and_one_destination_for_its_time():
    kept = DecisionCache()
    kept.keep(b"alice", KEY, Decision(True, "listed", ttl=2), 1000)
    assert kept.get(b"alice", KEY, 2999).reason == "listed"
    assert kept.get(b"alice", KEY, 3000) is None
    assert kept.get(b"bob", KEY, 1000) is None
    assert kept.get(b"alice", b"example.com\x00\x50", 1000) is None
    assert kept.hits == 1


def test_no_time_to_live_keeps_nothing_and_forgets_what_was():
    kept = DecisionCache()
    kept.keep(b"alice", KEY, Decision(True, ttl=60), 0)
    kept.keep(b"alice", KEY, Decision(False), 0)
    assert kept.get(b"alice", KEY, 0) is None and len(kept) == 0


def test_one_object_may_be_the_answer_for_ever():
    kept, yes = DecisionCache(), Decision(True, ttl=1)
    kept.keep(b"alice", KEY, yes, 0)
    kept.keep(b"bob", KEY, yes, 5000)
    assert kept.get(b"alice", KEY, 1500) is None


def test_the_oldest_goes_first():
    kept = DecisionCache(2)
    for name in (b"a", b"b", b"c"):
        kept.keep(name, KEY, Decision(True, ttl=60), 0)
    assert [kept.get(name, KEY, 1) is not None for name in (b"a", b"b", b"c")] == [
        False, True, True]
