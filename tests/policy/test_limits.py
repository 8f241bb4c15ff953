"""Limits of users: one worker, two workers, and one of them killed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.policy.ledger import Ledger
from cutthrough.policy.limits import Limiter
from cutthrough.policy.shared_table import create
from cutthrough.policy.source import Limits, Policy, PolicyError, User
from tests.doors.policy import Holder, of_user

HERE = bytes([192, 0, 2, 1])
DAY = 86400


def limiter(most: int = 0, most_of_client: int = 0, **limits: float) -> Limiter:
    policy = Policy(limits={"default": Limits(**limits)}) if limits else None
    return Limiter(None, policy, most=most, most_of_client=most_of_client)


def holders(of: Limiter, n: int) -> list[Holder]:
    return [Holder(of) for _ in range(n)]


# Connections


def test_connections_in_all_are_limited():
    each = limiter(most=2)
    addresses = [bytes([192, 0, 2, n]) for n in range(3)]
    held = holders(each, 3)
    answers = [one.enter(address) for one, address in zip(held, addresses, strict=True)]
    assert answers == ["entered", "entered", "over all"]
    held[0].close()
    assert held[2].enter(addresses[2]) == "entered"


def test_connections_of_one_address_are_limited_and_others_are_not():
    each = limiter(most_of_client=1)
    first, second, other = holders(each, 3)
    assert first.enter(HERE) == "entered"
    assert second.enter(HERE) == "over client"
    assert other.enter(bytes([192, 0, 2, 2])) == "entered"


def test_an_ipv6_client_is_its_prefix():
    each = limiter(most_of_client=1)
    first, second, other = holders(each, 3)
    prefix = bytes.fromhex("20010db800000001")
    assert first.enter(prefix + bytes(8)) == "entered"
    assert second.enter(prefix + bytes(7) + b"\1") == "over client"
    assert other.enter(bytes.fromhex("20010db800000002") + bytes(8)) == "entered"


def test_a_row_of_a_client_is_free_again_at_zero():
    each = limiter(most_of_client=2)
    held = holders(each, 2)
    for one in held:
        one.enter(HERE)
    assert each.ledger.read()["clients"] == 1
    for one in held:
        one.close()
    assert each.ledger.read()["clients"] == 0


def test_without_limits_nothing_is_counted():
    each = limiter()
    one = Holder(each)
    assert one.enter(HERE) == "entered"
    assert one.ask(b"user", True) == ("entered", 0)
    assert each.ledger.held() == 0


def test_a_user_s_connections_are_limited():
    each = limiter(connections=2)
    held = holders(each, 3)
    assert [one.ask(b"u")[0] for one in held] == [
        "entered",
        "entered",
        "over connections",
    ]
    assert [one.ask(b"u")[0] for one in held[:2]] == ["entered", "entered"], (
        "the same ones"
    )
    assert held[2].ask(b"other")[0] == "entered"


def test_a_connection_is_the_user_s_of_its_last_request():
    """R23: a user holds a connection no longer when another one speaks on it."""
    each = limiter(connections=1)
    one, other = holders(each, 2)
    assert one.ask(b"u")[0] == "entered"
    assert one.ask(b"v")[0] == "entered"
    assert of_user(each.ledger, b"v") == (1, 0, 0)
    assert other.ask(b"u")[0] == "entered"


def test_tunnels_are_limited_and_end_with_their_request():
    each = limiter(tunnels=1)
    one, other = holders(each, 2)
    assert one.ask(b"u", True)[0] == "entered"
    assert other.ask(b"u", True)[0] == "over tunnels"
    assert other.ask(b"u", False)[0] == "entered", "a plain request is none"
    one.end()
    assert other.ask(b"u", True)[0] == "entered"


def test_nothing_is_divided_by_a_row_that_nobody_holds():
    """A count that was lost ended the worker, by SIGFPE."""
    each = limiter(bytes_per_day=1 << 30)
    one = Holder(each)
    one.ask(b"u")
    each.ledger.reap(0)
    assert one.move(1000) == 1000


# Requests


def test_a_burst_passes_and_then_the_rate():
    one = Holder(limiter(requests_per_second=2, burst=3))
    assert [one.ask(b"u", now=1)[0] for _ in range(4)] == ["entered"] * 3 + [
        "over rate"
    ]
    assert one.ask(b"u", now=1.5)[0] == "entered"
    assert one.ask(b"u", now=1.5) == ("over rate", 1)


def test_retry_after_is_when_the_next_one_passes():
    one = Holder(limiter(requests_per_second=0.1))
    assert one.ask(b"u", now=1)[0] == "entered"
    answer, seconds = one.ask(b"u", now=4)
    assert answer == "over rate" and 7 <= seconds <= 8
    assert one.ask(b"u", now=4 + seconds)[0] == "entered"


def test_a_new_connection_is_no_new_allowance():
    each = limiter(requests_per_second=1, burst=1)
    one = Holder(each)
    assert one.ask(b"u", now=1)[0] == "entered"
    one.close(now=1)
    assert Holder(each).ask(b"u", now=1.1)[0] == "over rate"


def test_the_clock_of_another_worker_may_lie_a_little_before():
    one = Holder(limiter(requests_per_second=1, burst=1))
    assert one.ask(b"u", now=1)[0] == "entered"
    assert one.ask(b"u", now=0.5)[0] == "over rate"
    assert one.ask(b"u", now=2)[0] == "entered"


# Bytes


@pytest.mark.parametrize("rate", [20_000, 1_000_000, 1_000_000_000])
def test_bytes_of_a_user_pass_at_the_rate(rate: int):
    each = limiter(bytes_per_second=rate)
    held = holders(each, 3)
    for one in held:
        one.ask(b"u")
    passed = 0
    for step in range(250):  # 10 s; the wheel comes every 32 ms or so
        for one in held:
            while n := one.move(1 << 30, now=1 + step * 0.04):
                passed += n
    assert passed == pytest.approx(10 * rate, rel=0.05)


def test_bytes_of_a_tunnel_pass_at_its_rate_and_each_has_its_own():
    each = limiter(tunnel_bytes_per_second=100_000)
    held = holders(each, 2)
    for one in held:
        one.ask(b"u", True)
    passed = sum(
        one.move(1 << 20, now=1 + step * 0.04) for step in range(250) for one in held
    )
    assert passed == pytest.approx(2 * 10 * 100_000, rel=0.05)


def all_at_once(one: Holder, now: float) -> int:
    return sum(iter(lambda: one.move(1 << 30, now=now), 0))


def test_no_more_than_a_bucket_passes_at_once_after_a_rest():
    """Bytes granted before the rest passed beside those that had filled up since."""
    one = Holder(limiter(tunnel_bytes_per_second=800_000))
    one.ask(b"u", True)
    assert one.move(1) == 1
    assert 99_999 <= all_at_once(one, 1.9) <= 100_000


def test_relays_at_rest_store_up_nothing_of_a_user_s_rate():
    """Each kept its quantum for as long as it rested: fifty had a bucket each four."""
    each = limiter(bytes_per_second=800_000)
    held = holders(each, 50)
    for step, one in enumerate(held, 1):
        one.ask(b"u", now=step)
        assert one.move(1, now=step) == 1
    assert 99_999 <= sum(all_at_once(one, 100) for one in held) <= 100_000


def test_relays_that_trickle_leave_the_others_what_they_do_not_use():
    each = limiter(bytes_per_second=800_000)
    bulk, *trickles = holders(each, 9)
    for one in (bulk, *trickles):
        one.ask(b"u")
    passed = 0
    for step in range(250):
        now = 1 + step * 0.04
        passed += sum(one.move(10, now=now) for one in trickles)
        passed += all_at_once(bulk, now)
    assert passed == pytest.approx(10 * 800_000, rel=0.05)


def test_a_plain_request_has_no_tunnel_s_rate():
    one = Holder(limiter(tunnel_bytes_per_second=1000))
    one.ask(b"u", False)
    assert one.move(1 << 20) == 1 << 20


def test_the_wait_is_until_there_is_something_worth_it():
    one = Holder(limiter(bytes_per_second=32_000))
    one.ask(b"u")
    while one.move(1 << 20, now=1):
        pass
    assert 0.02 < one.wait() < 0.05
    assert one.move(1 << 20, now=1 + one.wait() + 0.001) >= 900


def test_what_was_not_used_of_a_draw_is_given_back():
    each = limiter(bytes_per_second=8192)
    for _ in range(40):  # of 64 bytes each; a full bucket is 4096, four quanta
        one = Holder(each)
        one.ask(b"u", now=1)
        assert one.move(64, now=1) == 64
        one.close(now=1)


def test_a_quota_ends_the_relay_and_refuses_the_next_request():
    each = limiter(bytes_per_day=1_000_000)
    one = Holder(each)
    assert one.ask(b"u", True)[0] == "entered"
    passed = 0
    while (n := one.move(1 << 20)) is not None:
        passed += n
    assert 1_000_000 <= passed <= 1_000_000 + 16_384
    answer, seconds = one.ask(b"u")
    assert answer == "over quota" and 0 < seconds <= DAY
    assert of_user(each.ledger, b"u")[2] == passed


def test_what_a_request_used_is_booked_at_its_end():
    each = limiter(bytes_per_day=1_000_000)
    one = Holder(each)
    one.ask(b"u")
    assert one.move(1000) == 1000
    one.end()
    assert of_user(each.ledger, b"u")[2] == 1000


# Which limits


def test_the_user_s_own_go_before_the_group_s_and_these_before_the_default():
    limits = {
        name: Limits(tunnels=n) for n, name in enumerate(("default", "g", "own"), 1)
    }
    policy = Policy(
        limits={**limits, "none": Limits()},
        users={
            "a": User(name="a", hash="", groups=("x", "g")),
            "b": User(name="b", hash="", groups=("g",)),
            "c": User(name="c", hash="", groups=("x",)),
        },
        user_limits={"b": "own", "d": "none"},
        group_limits={"g": "g"},
    )
    each = Limiter(None, policy)

    def tunnels(user: bytes, name: str | None = None) -> int:
        held = holders(each, 5)
        n = sum(one.ask(user, True, name)[0] == "entered" for one in held)
        for one in held:
            one.close()
        return n

    assert [tunnels(user) for user in (b"a", b"b", b"c", b"d", b"e")] == [2, 3, 1, 5, 1]
    assert tunnels(b"e", "own") == 3, "a rule's go before everything"


def test_limits_that_are_not_there_are_told():
    with pytest.raises(PolicyError, match="no such limits, for user u"):
        Limiter(None, Policy(user_limits={"u": "gone"}, source="policy.toml"))


# Bounds


def test_a_full_table_refuses_and_is_counted():
    each = Limiter(Ledger(create(1, capacity=4)), most_of_client=9)
    held = holders(each, 4)
    answers = [one.enter(bytes([192, 0, 2, n])) for n, one in enumerate(held)]
    assert answers == ["entered"] * 3 + ["no row"]
    assert each.ledger.read()["full"] == 1
    held[0].close()
    assert held[3].enter(bytes([192, 0, 2, 3])) == "entered"


def test_users_who_are_at_rest_make_room_for_others():
    policy = Policy(limits={"default": Limits(requests_per_second=1, burst=5)})
    each = Limiter(Ledger(create(1, capacity=4)), policy)
    for n in range(3):
        one = Holder(each)
        assert one.ask(b"user %d" % n, now=1)[0] == "entered"
        one.close(now=1)
    newcomer = Holder(each)
    assert newcomer.ask(b"new", now=1.5)[0] == "no row", "nobody's bucket is full again"
    assert newcomer.ask(b"new", now=3)[0] == "entered"


# Two workers: the sums are right after any steps, and if either worker is killed

USERS = (b"a", b"b")
OPERATION = st.tuples(
    st.sampled_from(["enter", "plain", "tunnel", "end", "close", "kill"]),
    st.integers(0, 1),  # worker
    st.integers(0, 5),  # connection
    st.sampled_from(USERS),
)
MOST, OF_CLIENT, CONNECTIONS, TUNNELS = 7, 3, 4, 2


class Model:
    """The same, by lists: slow and obvious."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, int], dict] = {}

    def count(self, **wanted: object) -> int:
        return sum(
            all(conn[key] == value for key, value in wanted.items())
            for conn in self.open.values()
        )

    def enter(self, key: tuple[int, int]) -> str:
        address = key[1] % 2
        if len(self.open) >= MOST:
            return "over all"
        if self.count(address=address) >= OF_CLIENT:
            return "over client"
        self.open[key] = {"address": address, "user": None, "tunnel": None}
        return "entered"

    def ask(self, key: tuple[int, int], user: bytes, is_tunnel: bool) -> str:
        conn = self.open[key]
        conn["tunnel"] = None
        if conn["user"] != user:
            conn["user"] = None
            if self.count(user=user) >= CONNECTIONS:
                return "over connections"
        conn["user"] = user
        if is_tunnel and self.count(tunnel=user) >= TUNNELS:
            return "over tunnels"
        conn["tunnel"] = user if is_tunnel else None
        return "entered"


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATION, max_size=60))
def test_everything_is_released_exactly_once(operations):
    """R33, over two workers; each may be killed at any moment."""
    memory = create(2, capacity=16)
    limits = Limits(connections=CONNECTIONS, tunnels=TUNNELS, bytes_per_day=1 << 40)
    policy = Policy(limits={"default": limits})
    workers = [
        Limiter(Ledger(memory, slot), policy, most=MOST, most_of_client=OF_CLIENT)
        for slot in (0, 1)
    ]
    model = Model()
    held: dict[tuple[int, int], Holder] = {}
    for what, slot, number, user in operations:
        key = slot, number
        if what == "kill":
            workers[1 - slot].ledger.reap(slot)
            for gone in [key for key in held if key[0] == slot]:
                del held[gone], model.open[gone]
        elif what == "enter":
            if key not in held:
                holder = Holder(workers[slot])
                answer = holder.enter(bytes([192, 0, 2, number % 2]))
                assert answer == model.enter(key)
                if answer == "entered":
                    held[key] = holder
        elif key not in held:
            continue
        elif what == "end":
            held[key].end()
            model.open[key]["tunnel"] = None
        elif what == "close":
            holder = held.pop(key)
            holder.close()
            holder.close()
            del model.open[key]
        else:
            is_tunnel = what == "tunnel"
            assert held[key].ask(user, is_tunnel)[0] == model.ask(key, user, is_tunnel)
            held[key].move(100)
        counted = workers[0].ledger.read()
        assert counted["connections"] == counted["of_clients"] == len(model.open)
        for name in USERS:
            seen = of_user(workers[0].ledger, name)
            assert (seen or (0, 0))[:2] == (
                model.count(user=name),
                model.count(tunnel=name),
            )
    for holder in held.values():
        holder.close()
    end = workers[1].ledger.read()
    assert [
        end[k] for k in ("connections", "of_clients", "of_users", "underflows")
    ] == [0] * 4
    assert end["clients"] == 0, "and their rows are free"
