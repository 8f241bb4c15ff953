"""An instance of a fleet without a proxy: it runs the fleet's script by hand."""

import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import redis

from cutthrough.supervisor.fleet_script import (
    BATCH,
    SCRIPT,
    Answer,
    Step,
    Use,
    arguments,
    key_of,
    parse_answer,
    usage_of,
)

SUMS = key_of("cutthrough")


def key(client: redis.Redis, name: str) -> str:
    return f"{SUMS.removesuffix('sums')}{client.hget(SUMS, 'epoch')}:{name}"


def sums(client: redis.Redis) -> dict[str, tuple[int, ...]]:
    """Connections, tunnels and spent tokens of each user in the sums."""
    return {id: tuple(map(int, text.split()))
            for id, text in client.hgetall(SUMS).items() if len(id) == 32}


def expire(client: redis.Redis, name: str) -> None:
    """As if its time were over."""
    client.zadd(key(client, "alive"), {name: 0}, xx=True)


def run(client: redis.Redis, step: Step, usage: Mapping[str, str]) -> Answer:
    """One step of the script."""
    return parse_answer(client.register_script(SCRIPT)(
        [SUMS], arguments(step, usage, secrets.token_hex(8))))


class Peer:
    """`day` is its own clock's. Its usage is in `held` (connections, tunnels), `spent`
    and `moved`, that of others in `others`. All are by ID."""

    def __init__(self, client: redis.Redis, name: str, day: int) -> None:
        self.client, self.name, self.day = client, name, day
        self.held: dict[str, tuple[int, int]] = {}
        self.spent: dict[str, int] = defaultdict(int)    # in this session
        self.moved: dict[tuple[str, int], int] = defaultdict(int)    # by day
        self.others: dict[str, Use] = {}
        self.due: set[str] = set()
        self.position = 0
        self.instances = 0
        self.begin()

    def begin(self) -> None:
        """Forgets the session, as a program whose configuration changed."""
        self.session, self.number = secrets.token_hex(8), 0

    def usage(self, users: Iterable[str]) -> dict[str, tuple[int, int, int, int]]:
        return {id: (*self.held.get(id, (0, 0)), self.spent[id],
                     self.moved[id, self.day]) for id in users}

    def exchange(self, users: Iterable[str] = (), **named: Any) -> Answer:
        usage = {id: usage_of(*use) for id, use in self.usage(users).items()}
        answer = run(self.client, Step(
            self.name, self.session, self.number, self.position if self.number else 0,
            60_000, self.day, **named), usage)
        if answer.number == 0:
            self.begin()
        self.number = answer.number
        self.instances = answer.instances
        return answer

    def join(self) -> None:
        """Begins a session, unless it is in one."""
        if self.number and self.exchange(limit=0).number:
            return
        while not self.exchange(limit=0).number:
            pass
        self.spent.clear()
        self.set_day(self.day)
        self.due.update(self.others)

    def sync(self) -> dict[str, tuple[int, int, int, int]]:
        """Publishes what is due, receives what is new. Returns what it published."""
        self.join()
        published = {}
        has_more = True
        while self.due or has_more:
            batch = sorted(self.due)[:BATCH]
            published |= self.usage(batch)
            answer = self.exchange(batch)
            self.due.difference_update(batch)
            self.position, has_more = answer.position, answer.target > 0
            self.others |= {use.id: use for use in answer.uses}
        return published

    def set_day(self, day: int) -> None:
        """Sets the peer's clock: all is due again, and others' bytes are read anew."""
        self.day, self.position = day, 0
        self.due |= {*self.held, *(id for id, _ in self.moved)}

    def leave(self) -> None:
        self.sync()
        self.begin()
        while self.exchange(is_leaving=True).target:
            pass
