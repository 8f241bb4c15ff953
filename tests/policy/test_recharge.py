"""A request charged before the hook is called, and under other limits after it."""

import pytest

from cutthrough.policy.limits import Limiter
from cutthrough.policy.source import Limits, Policy
from tests.doors.policy import Holder, of_user

SOME = {"default": Limits(requests_per_second=1, burst=2, connections=3, tunnels=2),
        "slow": Limits(requests_per_second=1, burst=2, connections=1, tunnels=1),
        "none": Limits()}


@pytest.mark.parametrize("is_tunnel", [False, True])
def test_a_request_that_is_charged_under_other_limits_counts_once(is_tunnel):
    each = Limiter(None, Policy(limits=SOME))
    first, second = Holder(each), Holder(each)
    assert first.ask(b"ann", is_tunnel) == ("entered", 0)
    assert first.ask_again(b"ann", is_tunnel, "slow") == ("entered", 0)
    assert of_user(each.ledger, b"ann")[:2] == (1, int(is_tunnel))
    assert second.ask(b"ann", is_tunnel) == ("entered", 0), "one token was left"
    assert second.ask_again(b"ann", is_tunnel, "slow") == ("over connections", 0)
    first.close()
    second.close()
    assert each.ledger.held() == 0
    assert each.ledger.read()["underflows"] == 0


def test_a_charge_that_is_undone_gives_its_token_back():
    each = Limiter(None, Policy(limits=SOME))
    one = Holder(each)
    for _ in range(10):
        assert one.ask(b"ann") == ("entered", 0)
        assert one.ask_again(b"ann", limits="none") == ("entered", 0)
    assert one.ask(b"ann")[0] == one.ask(b"ann")[0] == "entered"
    assert one.ask(b"ann")[0] == "over rate"
    one.close()


def test_a_connection_of_a_higher_limit_is_none_of_a_lower():
    """Connections that were let in by one rule had the limit of another escape."""
    limiter = Limiter(None, Policy(limits={
        "default": Limits(connections=3), "slow": Limits(connections=1)}))
    held = [Holder(limiter) for _ in range(3)]
    assert [one.ask(b"ann", limits="default")[0] for one in held] == ["entered"] * 3
    assert [one.ask(b"ann", limits="slow")[0] for one in held] == [
        "over connections", "over connections", "entered"]
    assert held[2].ask(b"ann", limits="slow") == ("entered", 0)
    assert of_user(limiter.ledger, b"ann")[0] == 1, "what was refused is given back"
    assert held[0].ask(b"ann", limits="default") == ("entered", 0)
    assert held[2].ask(b"ann", limits="slow") == ("entered", 0)
    assert held[0].ask(b"ann", limits="slow")[0] == "over connections"
    for one in held:
        one.close()
    assert limiter.ledger.held() == 0
    assert limiter.ledger.read()["underflows"] == 0
