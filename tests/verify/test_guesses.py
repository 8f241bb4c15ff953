"""Right passwords beside wrong ones, and a start without verified users (R23, R24).

Time is the test's own (`tests.support.clock`); a hash takes 0.2 s of it.
"""

import time
from base64 import b64encode
from collections import Counter

import pytest

from cutthrough.policy.auth import Account, Authenticator
from cutthrough.policy.known import Known, create
from cutthrough.policy.source import User
from cutthrough.verify.hash_pool import LOST
from cutthrough.verify.verifier import Verifier
from tests.support.clock import Clock

HOME, AWAY, LOCAL = b"\xcb\0\x71\5", b"\xc6\x33\x64\7", b"\x7f\0\0\1"
HASH_S = 0.2
# A form that is accepted; `HashPool` decides if a password is right
FORM = "$2b$12$" + "a" * 53


def basic(name, secret):
    return b"Basic " + b64encode(f"{name}:{secret}".encode())


def table(*names, **more):
    return {name: User(name=name, hash=FORM[:-len(name)] + name, **more)
            for name in names}


class HashPool:
    """Computes for HASH_S: a password is right if it is the user's name, reversed."""

    def __init__(self, clock, most=1):
        self.clock, self.most = clock, most
        self.computed, self.running, self.died = [], 0, False

    def compute(self, hash, secret, done):
        assert self.running < self.most
        self.running += 1
        self.computed.append(secret.decode())
        right = hash.endswith(secret.decode()[::-1])
        self.clock.call_later(HASH_S, self.finish, done, right)

    def finish(self, done, right):
        self.running -= 1
        if not self.died:
            done(right, "")

    def close(self):
        self.died = True


def right(name):
    return basic(name, name[::-1])


def name_in(answer):
    return answer.name.decode() if isinstance(answer, Account) else answer


class Worker:
    """A verifier, and its answers: (name or label, Retry-After, seconds)."""

    def __init__(self, clock, users, memory=None, pid=0, most=2048, ttl=300.0, **more):
        self.clock, self.ttl = clock, ttl
        self.known = Known(memory, pid)
        self.users = Authenticator({}, users, ttl, known=self.known)
        self.pool = HashPool(clock)
        self.waits = []
        self.verifier = Verifier(clock, self.pool, most, self.known,
                                 clock=clock.time, observe=self.waits.append)
        usual = {"longest_backoff": 60.0, "auth_timeout": 10.0}
        self.verifier.configure(**usual | more)

    def ask(self, value, client=HOME):
        """Asks as a request does: the remembered credentials first. Returns the list
        that gets the answer."""
        said = []
        account = self.users.recall(value)
        if account is not None:
            return [(account.name.decode(), 0, 0.0)]
        begun = self.clock.now
        self.verifier.verify(self.users, value, client, lambda answer, retry_s: (
            said.append((name_in(answer), retry_s, round(self.clock.now - begun, 3)))))
        return said

    def try_once(self, value, client=HOME):
        """The answer, however long it takes."""
        said = self.ask(value, client)
        for _ in range(1000):
            if said:
                return said[0]
            self.clock.step()
        raise AssertionError("no answer")


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made.time)
    return made


def answers(said):
    return [one[0][0] if one else "nothing" for one in said]


# Row by row: another client's wrong ones

@pytest.mark.parametrize("name", ["eve", "ann", "nobody"])
def test_who_was_right_passes_beside_one_who_is_always_wrong(clock, name):
    """50 wrong tries a second from the same address: of 50 right logins none passed
    once the verified credentials had reached auth_cache_ttl. Here also if the wrong
    ones are for the same name, and if no user has the name."""
    worker = Worker(clock, table("ann", "eve"), ttl=2.0)
    assert worker.try_once(right("ann")) == ("ann", 0, 0.2)
    said, others = [], []
    for n in range(50 * 50):
        others.append(worker.ask(basic(name, f"wrong{n}")))
        if n % 50 == 0:
            said.append(worker.ask(right("ann")))
        clock.advance(0.02)
    clock.advance(10)
    assert answers(said) == ["ann"] * 50
    assert max(one[0][2] for one in said) <= 2 * HASH_S + 0.05
    counted = Counter(answers(others))
    assert set(counted) == {"auth_failed", "auth_throttled"}
    assert worker.pool.computed.count("nna") >= 50 / 3 - 1
    # 5 at once, then by the back-off, which a right one that is verified again does not
    # forgive: it is no sign that the wrong ones were the same person's
    tried = [secret for secret in worker.pool.computed if secret != "nna"]
    assert len(tried) in (10, 11)


def test_a_new_login_passes_beside_wrong_ones_of_other_names(clock):
    """The address was closed to all users, a new login too."""
    worker = Worker(clock, table("ann", "eve", *(f"new{n}" for n in range(50))))
    said = []
    for n in range(50 * 25):
        worker.ask(basic("eve" if n % 2 else f"nobody{n}", f"wrong{n}"))
        if n % 25 == 0:
            said.append(worker.ask(right(f"new{n // 25}")))
        clock.advance(0.02)
    clock.advance(30)
    assert answers(said) == [f"new{n}" for n in range(50)]


def test_a_wrong_try_is_refused_late_and_then_told_when_to_come_back(clock):
    """After five wrong ones everything was 429, and no browser tries again after that;
    `Retry-After` was 60 although the wait was a second."""
    worker = Worker(clock, table("ann"))
    told = [worker.try_once(basic("ann", f"wrong{n}")) for n in range(9)]
    assert told[:5] == [("auth_failed", 0, 0.2)] * 5
    # Its wait counts from the verdict before
    assert told[5:8] == [("auth_failed", 0, wait + 0.2) for wait in (1, 2, 4)]
    assert told[8] == ("auth_throttled", 8, 0.0)
    clock.advance(5.5)
    assert worker.try_once(basic("ann", "wrong8")) == ("auth_failed", 0, 2.7)
    assert worker.try_once(right("ann")) == ("auth_throttled", 16, 0.0)
    clock.advance(16)
    assert worker.try_once(right("ann")) == ("ann", 0, 0.2)
    again = worker.try_once(basic("ann", "wrong9"))
    assert again == ("auth_failed", 0, 0.2), "forgiven"


def test_one_try_at_a_name_is_held_at_a_time(clock):
    worker = Worker(clock, table("ann"))
    for n in range(5):
        worker.try_once(basic("ann", f"wrong{n}"))
    said = [worker.ask(basic("ann", f"more{n}")) for n in range(9)]
    assert answers(said) == ["nothing"] + ["auth_throttled"] * 8
    assert worker.verifier.held == 1
    clock.advance(1.3)
    assert answers(said[:1]) == ["auth_failed"]
    assert worker.verifier.held == 0


def test_what_is_held_is_bounded(clock):
    """R31: of one client, and in all."""
    users = table(*(f"u{n}" for n in range(400)))
    worker = Worker(clock, users)
    clients = [bytes([10, 0, 0, n]) for n in range(20)]
    for client in clients:
        for n in range(20):
            worker.try_once(basic(f"u{n}", "wrong"), client)
    clock.advance(1)
    said = [worker.ask(basic(f"u{n}", "other"), client)
            for client in clients for n in range(20, 40)]
    clock.advance(400 * HASH_S)
    counted = Counter(answers(said))
    assert counted["auth_failed"] + counted["auth_throttled"] == 400
    assert worker.verifier.held == 0 and worker.verifier._tarpit.full > 0
    assert worker.try_once(right("u1"), clients[0])[0] == "u1"


def test_the_same_wrong_credentials_cost_one_hash_and_one_guess(clock):
    """A program with an old password asks for ever; its user's new one passes."""
    worker = Worker(clock, table("ann"))
    assert worker.try_once(basic("ann", "old")) == ("auth_failed", 0, 0.2)
    for _ in range(18):
        assert worker.try_once(basic("ann", "old")) == ("auth_failed", 0, 0.0)
    late = [worker.try_once(basic("ann", "old"))[2] for _ in range(4)]
    assert late == [1.0, 2.0, 4.0, 4.0]
    assert worker.pool.computed == ["old"]
    assert worker.try_once(right("ann")) == ("ann", 0, 0.2)


def test_a_person_on_this_host_is_never_locked_out(clock):
    """Five mistyped passwords on loopback closed it for a minute."""
    worker = Worker(clock, table("ann"))
    for n in range(50):
        said = worker.try_once(basic("ann", f"wrong{n}"), LOCAL)
        assert said == ("auth_failed", 0, 0.2)
    assert worker.try_once(right("ann"), LOCAL) == ("ann", 0, 0.2)


def test_without_a_back_off_nobody_waits(clock):
    worker = Worker(clock, table("ann"), longest_backoff=0.0)
    for n in range(50):
        assert worker.try_once(basic("ann", f"w{n}")) == ("auth_failed", 0, 0.2)


# A guesser learns nothing about names

@pytest.mark.parametrize("before", [0, 25])
def test_a_name_that_nobody_has_is_answered_like_one_that_somebody_has(clock, before):
    """R22: the same words, after the same time, with the same Retry-After; also from
    an address that has tried so many names that those cost no hash any more."""
    told = []
    for name, client in (("ann", HOME), ("nobody", AWAY)):
        worker = Worker(clock, table("ann", "bob"))
        for n in range(before):
            worker.try_once(basic(f"some{n}", "x"), client)
        told.append([worker.try_once(basic(name, f"wrong{n}"), client)
                     for n in range(12)])
    assert told[0] == told[1]


def test_names_that_nobody_has_cost_no_hash_from_an_address_that_tried_many(clock):
    worker = Worker(clock, table("ann"))
    for n in range(100):
        worker.try_once(basic(f"nobody{n}", "x"))
    assert len(worker.pool.computed) == 20
    assert worker.try_once(basic("else", "x"), AWAY)[0] == "auth_failed"
    assert len(worker.pool.computed) == 21, "another address's do"


# One verification for all workers, and none is lost

def test_one_verification_serves_all_workers(clock):
    """Each worker computed every hash for itself."""
    memory, users = create(), table("ann")
    workers = [Worker(clock, users, memory, pid) for pid in (11, 12, 13)]
    said = [worker.ask(right("ann")) for worker in workers for _ in range(3)]
    clock.advance(0.3)
    assert answers(said) == ["ann"] * 9
    assert sum(len(worker.pool.computed) for worker in workers) == 1
    assert [worker.users.remembered for worker in workers] == [1] * 3


def test_a_wrong_one_is_computed_once_too_and_counted_once(clock):
    memory, users = create(), table("ann")
    workers = [Worker(clock, users, memory, pid) for pid in (11, 12)]
    said = [worker.ask(basic("ann", "x")) for worker in workers]
    clock.advance(0.5)
    assert answers(said) == ["auth_failed"] * 2
    assert sum(len(worker.pool.computed) for worker in workers) == 1
    assert workers[0].known.read_mark(0, b"\4" + HOME + b"ann")[0] == 1


def test_what_a_worker_computed_that_died_is_computed_by_another(clock):
    memory, users = create(), table("ann")
    first, second = (Worker(clock, users, memory, pid) for pid in (11, 12))
    first.ask(right("ann"))
    said = second.ask(right("ann"))
    first.verifier.close()
    clock.advance(1)
    assert not said
    second.known.reap(11)               # as the supervisor does
    clock.advance(0.3)
    assert answers([said]) == ["ann"]


def test_a_verdict_that_comes_too_late_is_remembered(clock):
    worker = Worker(clock, table(*(f"u{n}" for n in range(200))))
    said = [worker.ask(right(f"u{n}")) for n in range(200)]
    clock.advance(30)                   # every request has ended, by its deadline
    assert len(worker.pool.computed) == 150, "though nobody waits"
    clock.advance(11)
    assert all(said) and worker.verifier.waiting == 0
    assert [worker.try_once(right(f"u{n}"))[2] for n in range(200)] == [0.0] * 200


def test_requests_that_have_ended_are_not_kept(clock):
    worker = Worker(clock, table("ann", "bob"))
    worker.pool.most = 0
    for _ in range(100):
        worker.ask(right("ann"))
        clock.advance(2)
    assert len(worker.verifier) <= 7
    assert worker.verifier.waiting == 1


def test_a_cold_start_of_a_thousand_users_is_bounded_by_the_hashes_alone(clock):
    """The queue took 128 and refused the rest; the newest was always the first,
    and each worker computed for itself. Each user asks every 2 s, at any worker."""
    names = [f"u{n}" for n in range(1000)]
    memory, users = create(), table(*names)
    workers = [Worker(clock, users, memory, pid) for pid in (11, 12)]
    served, refused = {}, Counter()
    waiting = {}
    for step in range(60):
        for n, name in enumerate(names):
            worker = workers[(n + step) % 2]
            said = worker.ask(right(name))
            waiting.setdefault(name, []).append(said)
            if n % 50 == 49:
                clock.advance(0.1)
        for name, all_said in waiting.items():
            for said in [one for one in all_said if one]:
                all_said.remove(said)
                if said[0][0] == name:
                    served.setdefault(name, step)
                else:
                    refused[said[0][0]] += 1
        if step == 9:
            assert len(served) >= 2 * 20 / HASH_S * 0.9, "as fast as hashes come"
    assert len(served) == 1000 and set(refused) <= {"overloaded"}
    computed = [one for worker in workers for one in worker.pool.computed]
    assert len(computed) == len(set(computed)) == 1000, "none twice"
    assert max(served.values()) * 2 <= 1000 * HASH_S / 2 * 1.1
    assert workers[0].verifier.waiting == workers[1].verifier.waiting == 0
    assert sum(worker.verifier.overloaded for worker in workers) == 0


def test_what_is_under_way_survives_a_reload(clock):
    worker = Worker(clock, table("ann", "bob"))
    ann, bob = worker.ask(right("ann")), worker.ask(right("bob"))
    before = worker.users
    users = table("ann", "bob", groups=("staff",))
    worker.users = Authenticator({}, users, known=worker.known)
    again = worker.ask(right("bob"))
    clock.advance(0.5)
    assert answers([ann, bob, again]) == ["ann", "bob", "bob"]
    assert worker.verifier.shared == 1 and len(worker.pool.computed) == 2
    assert before.find(b"bob").groups == ()
    assert worker.users.recall(right("bob")).groups == ("staff",)


def test_a_record_that_changed_meanwhile_is_verified_anew(clock):
    worker = Worker(clock, table("ann"))
    old = worker.ask(right("ann"))
    changed = {"ann": User(name="ann", hash=FORM)}
    worker.users = Authenticator({}, changed, known=worker.known)
    new = worker.ask(right("ann"))
    clock.advance(1)
    assert answers([old, new]) == ["ann", "auth_failed"]
    assert worker.users.recall(right("ann")) is None


def test_a_lost_hash_gives_its_claim_back(clock):
    worker = Worker(clock, table("ann"))
    lost = []
    worker.pool.compute = lambda hash, secret, done: lost.append(done)
    said = worker.ask(right("ann"))
    lost[0](None, LOST)
    assert answers([said]) == ["overloaded"] and worker.known.read()["claims"] == 0


def test_how_long_they_wait_is_told(clock):
    worker = Worker(clock, table("ann", "bob"))
    said = [worker.ask(right("ann")), worker.ask(right("bob"))]
    clock.advance(1)
    assert all(said) and worker.verifier.hashes == 2
    assert [round(us, -3) for us in worker.waits] == [200_000, 400_000]
