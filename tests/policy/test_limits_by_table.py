"""One user under several tables of limits: each has buckets of its own."""

from cutthrough.policy.limits import Limiter
from cutthrough.policy.source import Limits, Policy
from tests.doors.policy import Holder

SLOW = Limits(requests_per_second=0.01, burst=1)
FAST = Limits(requests_per_second=1000, burst=1000)


def test_a_higher_rate_fills_no_bucket_of_a_lower():
    """One bucket filled at the higher rate, and ran over at the depth of the lower."""
    one = Holder(Limiter(None, Policy(limits={"slow": SLOW, "fast": FAST})))
    for n in range(50):
        assert one.ask(b"ann", limits="fast", now=1 + n / 100)[0] == "entered"
        slow = one.ask(b"ann", limits="slow", now=1 + n / 100)[0]
        assert slow == ("over rate" if n else "entered")
    assert one.ask(b"ann", limits="slow", now=102)[0] == "entered"


def test_a_charge_that_is_undone_is_undone_in_its_own_bucket():
    one = Holder(Limiter(None, Policy(limits={"slow": SLOW, "fast": FAST})))
    for _ in range(3):
        assert one.ask(b"ann", limits="slow")[0] == "entered"
        assert one.ask_again(b"ann", limits="fast")[0] == "entered"
    assert one.ask(b"ann", limits="slow")[0] == "entered"
    assert one.ask(b"ann", limits="slow")[0] == "over rate"


def test_the_bytes_of_one_table_are_not_the_tokens_of_another():
    limiter = Limiter(None, Policy(limits={
        "slow": Limits(bytes_per_second=8192),
        "fast": Limits(bytes_per_second=1 << 30)}))
    slow, fast = Holder(limiter), Holder(limiter)
    assert slow.ask(b"ann", limits="slow")[0] == "entered"
    assert fast.ask(b"ann", limits="fast")[0] == "entered"
    passed = 0
    for n in range(1000):
        assert fast.move(1000, 1 + n / 1000) == 1000
        passed += slow.move(1000, 1 + n / 1000)
    assert passed <= 4096 + 8192


def test_beyond_the_room_a_table_shares_the_buckets_used_longest_ago():
    """A cycle through many tables gives no new tokens."""
    names = [f"t{n}" for n in range(6)]
    one = Holder(Limiter(None, Policy(limits=dict.fromkeys(names, SLOW))))
    answers = [one.ask(b"ann", limits=name, now=1 + turn / 10 + n / 100)[0]
               for turn in range(5) for n, name in enumerate(names)]
    assert answers.count("entered") == 4
