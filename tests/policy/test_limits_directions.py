"""Rates of bytes of each direction."""

import pytest

from cutthrough.policy.limits import Limiter
from cutthrough.policy.source import Limits, Policy
from tests.doors.policy import Holder


def limiter(**limits: int) -> Limiter:
    return Limiter(None, Policy(limits={"default": Limits(**limits)}))


@pytest.mark.parametrize(("up", "down", "both", "moved"), [
    (400_000, 100_000, 0, (4e6, 1e6)), (0, 100_000, 0, (None, 1e6)),
    (400_000, 0, 0, (4e6, None)), (400_000, 100_000, 1_000_000, (4e6, 1e6)),
    (100_000, 800_000, 500_000, (1e6, 4e6))])
def test_each_direction_has_a_rate_of_its_own(up, down, both, moved):
    each = limiter(bytes_per_second_up=up, bytes_per_second_down=down,
                   bytes_per_second=both)
    held = [Holder(each) for _ in range(3)]
    for lane in held:
        lane.ask(b"u")
    passed = [0, 0]
    for step in range(250):
        for lane in held:
            for n, move in enumerate((lane.move_up, lane.move)):
                if moved[n] is None:
                    assert move(1 << 20, now=1 + step * 0.04) == 1 << 20
                    continue
                while got := move(1 << 30, now=1 + step * 0.04):
                    passed[n] += got
    for n in range(2):
        assert moved[n] is None or passed[n] == pytest.approx(moved[n], rel=0.06)


def test_what_a_direction_did_not_use_is_given_back():
    each = limiter(bytes_per_second_down=8192, bytes_per_second_up=8192)
    for _ in range(40):
        lane = Holder(each)
        lane.ask(b"u", now=1)
        assert lane.move(64, now=1) == lane.move_up(64, now=1) == 64
        lane.close(now=1)
