"""Faults of a policy: how they are read, and how they are drawn."""

import itertools

import pytest

from cutthrough.policy.faults import RequestFaults, draw
from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import Faults, Policy, PolicyError


def read(text: str) -> Policy:
    return read_policy(text, "policy.toml", lambda name: "")


def faults_of(text: str) -> Faults:
    return read(f"[faults.bad]\n{text}\n").faults["bad"]


def test_all_keys_are_read():
    assert faults_of("""
        latency = "1s"
        jitter = "200ms"
        bandwidth = "64KiB"
        limit_data = 1024
        status = 503
        toxicity = 0.25
    """) == Faults(latency=1, jitter=0.2, bandwidth=65536, limit_data=1024, status=503,
                   toxicity=0.25)
    assert faults_of("reset_peer = true") == Faults(reset_peer=True)


@pytest.mark.parametrize(("text", "reason"), [
    ("", "has no fault"),
    ("toxicity = 0.5", "has no fault"),
    ("latncy = \"1s\"", "latncy"),
    ("latency = 100", "takes a duration"),
    ("latency = \"100\"", "not a duration"),
    ("latency = \"0\"", "takes a duration"),
    ("latency = \"11m\"", "takes a duration"),
    ("jitter = \"1s\"\nlatency = \"500ms\"", "cannot exceed latency"),
    ("bandwidth = 0", "takes a size"),
    ("bandwidth = true", "takes a size"),
    ("limit_data = \"many\"", "not a size"),
    ("reset_peer = false", "takes true"),
    ("reset_peer = true\nstatus = 500", "no effect"),
    ("status = 200", "takes a status"),
    ("status = 600", "takes a status"),
    ("status = \"503\"", "takes a status"),
    ("status = 503\ntoxicity = 0", "takes a probability"),
    ("status = 503\ntoxicity = 1.5", "takes a probability"),
    ("status = 503\ntoxicity = nan", "takes a probability"),
])
def test_a_mistake_is_named(text, reason):
    with pytest.raises(PolicyError, match=reason):
        faults_of(text)


def rule(text: str) -> str:
    return ('[faults.slow]\nlatency = "1s"\n[faults.lossy]\nreset_peer = true\n'
            f'[[rules]]\naction = "allow"\n{text}\n')


def test_a_rule_names_one_or_several():
    assert read(rule('faults = "slow"')).rules[0].faults == ("slow",)
    several = read(rule('faults = ["lossy", "slow"]')).rules[0]
    assert several.faults == ("lossy", "slow")


@pytest.mark.parametrize(("text", "reason"), [
    ('faults = "slo"', "slow"),
    ('faults = ["slow", "x"]', "no such faults"),
    ("faults = []", "empty"),
    ("faults = 1", "list"),
    ('faults = "slow"\nsni = "match"', "first bytes"),
])
def test_a_rule_s_mistake_is_named(text, reason):
    with pytest.raises(PolicyError, match=reason):
        read(rule(text))


def test_a_rule_that_denies_has_no_faults():
    with pytest.raises(PolicyError, match="denies"):
        read(rule('faults = "slow"').replace("allow", "deny"))


def test_faults_add_up():
    both = draw([Faults(latency=1, bandwidth=100, limit_data=50, status=503),
                 Faults(latency=0.5, bandwidth=70, limit_data=60, status=500)])
    assert both == RequestFaults(1500, 70, 50, False, 503)
    assert draw([Faults(latency=1), Faults(reset_peer=True)]) == RequestFaults(
        1000, reset_peer=True)


def test_the_jitter_goes_both_ways():
    """As toxiproxy's: latency plus or minus jitter."""
    faults = [Faults(latency=1, jitter=0.5)]
    chances = (0.0, 0.5, 0.75)
    assert [draw(faults, lambda chance=chance: chance).latency_ms
            for chance in chances] == [500, 1000, 1250]


def test_each_table_has_its_own_toxicity():
    chances = itertools.cycle((0.2, 0.8)).__next__
    drawn = draw([Faults(latency=1, toxicity=0.5), Faults(status=500, toxicity=0.5)],
                 chances)
    assert drawn == RequestFaults(1000)
    assert draw([Faults(status=500, toxicity=0.2)], lambda: 0.2) == RequestFaults()
