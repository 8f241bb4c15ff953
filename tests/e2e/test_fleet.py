"""Limits that several programs share through a real Redis, which is killed, paused,
emptied and left; and programs that are."""

import contextlib
import itertools
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from cutthrough.policy.source import Limits
from tests.support.admin import TOKEN
from tests.support.client import Client, build_request
from tests.support.fleet import Member, in_step, is_cut
from tests.support.fleet import redis as redis
from tests.support.fleet import secret as secret
from tests.support.fleet import server as server
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.redis import PASSWORD
from tests.support.stream import Closed
from tests.support.wait import TRIES, takes_less, wait_until
from tests.support.with_policy import command_with

PIECE = bytes(16384)

_numbers = itertools.count()


@pytest.fixture
def join(secret: Path, directory: Callable[[str], Path],
         opened: contextlib.ExitStack) -> Callable[..., Member]:
    def start(*flags: str, limits: Limits | None = None, **named: float) -> Member:
        proxy = opened.enter_context(Proxy(
            directory(f"member-{next(_numbers)}"),
            "--fleet-url-file", str(secret), "--fleet-interval", "50ms",
            "--fleet-expiry", "1s", "--via", "test-proxy",
            "--admin", "127.0.0.1:0", "--admin-token", TOKEN, *flags,
            command=command_with(limits or Limits(**named))))
        return Member(proxy)

    return start


@pytest.fixture
def pair(join: Callable[..., Member]) -> Callable[..., tuple[Member, Member]]:
    def start(*flags: str, **named: float) -> tuple[Member, Member]:
        both = join(*flags, **named), join(*flags, **named)
        for member in both:
            member.wait_instances(2)
        return both

    return start


def held_tunnel(dial: Any, member: Member, authority: str) -> Client | None:
    """A tunnel, or None if there may not be one."""
    client = dial(member.proxy)
    status = client.connect(authority).status
    assert status in (200, 429)
    if status == 200:
        return client
    client.close()
    return None


# Connections and tunnels


def test_tunnels_of_a_user_are_counted_over_all(pair, make_origin, dial):
    a, b = pair("--workers", "2", tunnels=4)
    authority = make_origin(echo).authority
    held = [held_tunnel(dial, a, authority) for _ in range(3)]
    assert all(held)
    in_step(a, b)
    held.append(held_tunnel(dial, b, authority))
    assert held[-1] and not held_tunnel(dial, b, authority)
    assert b.proxy.wait_reason("user_limit")["status"] == 429
    in_step(a, b)
    assert not held_tunnel(dial, a, authority)
    held[0].close()
    wait_until(lambda: held_tunnel(dial, b, authority), "room at the other one")


def test_connections_of_a_user_are_counted_over_all(pair, make_origin, dial):
    a, b = pair(connections=1)
    origin = make_origin()
    first, second = dial(a.proxy), dial(b.proxy)
    assert first.get(origin.url()).status == 200
    in_step(a, b)
    assert second.get(origin.url()).status == 429
    first.close()
    wait_until(lambda: second.get(origin.url()).status == 200, "room for the second")


def test_at_once_each_gives_its_limit_at_most_and_then_nobody(pair, make_origin, dial):
    """The number that one interval lets through: docs/limits.md."""
    limit = 10
    a, b = pair(tunnels=limit)
    authority = make_origin(echo).authority
    clients = [(member, dial(member.proxy)) for member in (a, b) for _ in range(30)]
    for _, client in clients:
        client.send(build_request("CONNECT", authority, host=authority))
    statuses = [client.read_response("CONNECT").status for _, client in clients]
    assert limit <= statuses.count(200) <= 2 * limit
    in_step(a, b)
    assert not held_tunnel(dial, a, authority) and not held_tunnel(dial, b, authority)
    held = [client for (_, client), status in zip(clients, statuses, strict=True)
            if status == 200]
    while len(held) >= limit:
        held.pop().close()
    wait_until(lambda: held_tunnel(dial, a, authority), "room below the limit")
    in_step(a, b)
    assert not held_tunnel(dial, b, authority)


# Requests


def hammer(member: Member, url: str, over: threading.Event, taken: list[int]) -> None:
    """Five times the rate: each refusal is a line of the log."""
    with member.proxy.client() as client:
        while not over.wait(0.005):
            if client.get(url).status == 200:
                taken.append(1)


def test_requests_keep_the_rate_but_for_what_an_interval_lets_through(
    pair, make_origin
):
    """Of a rate that is not used up, every try has too little; if a busy machine keeps
    the clients from asking, only some have."""
    rate, burst, seconds = 40, 10, 4.0
    a, b = pair(requests_per_second=rate, burst=burst)
    url = make_origin().url()
    parts: list[float] = []
    for _ in range(TRIES):
        over, taken = threading.Event(), []
        threads = [threading.Thread(target=hammer, args=(member, url, over, taken))
                   for member in (a, b)]
        steps = a.steps()
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        wait_until(lambda start=begin: time.monotonic() - start > seconds, "its end")
        over.set()
        for thread in threads:
            thread.join()
        passed = time.monotonic() - begin
        exact = burst + rate * passed
        late = passed / (a.steps() - steps)   # an interval, as this machine made it
        # A member that does not know yet gives a bucket, and its new tokens meanwhile
        assert len(taken) <= exact + burst + 2 * rate * late
        parts.append(len(taken) / (rate * passed))
        if parts[-1] >= 0.8:
            return
    raise AssertionError(f"parts of the rate that were granted: {parts}")


# Bytes


def test_a_quota_cuts_a_tunnel_for_what_was_moved_elsewhere(pair, make_origin, dial):
    a, b = pair(bytes_per_day=1_000_000)
    authority = make_origin(echo).authority
    resting, busy = (dial(member.proxy).tunnel(authority) for member in (a, b))
    resting.send(b"hello")
    assert resting.read_exact(5) == b"hello"
    with contextlib.suppress(OSError, Closed):
        for _ in range(100):                  # twice the quota, there and back
            busy.send(PIECE)
            busy.read_exact(len(PIECE))
    record = b.proxy.wait_reason("quota_exceeded")
    moved = record["bytes_up"] + record["bytes_down"]
    assert 900_000 <= moved <= 1_000_000 + 4 * 16384
    a.proxy.wait_reason("quota_exceeded")
    assert is_cut(resting)
    refused = dial(a.proxy).connect(authority)
    assert refused.status == 429 and int(refused.get("Retry-After")) > 1


def test_a_quota_outlives_who_moved_its_bytes(pair, join, make_origin, dial):
    a, b = pair(bytes_per_day=500_000)
    authority = make_origin(echo).authority
    with contextlib.suppress(OSError, Closed):
        busy = dial(a.proxy).tunnel(authority)
        for _ in range(100):
            busy.send(PIECE)
            busy.read_exact(len(PIECE))
    a.proxy.wait_reason("quota_exceeded")
    a.proxy.stop()
    b.wait_instances(1)
    assert not held_tunnel(dial, b, authority)
    new = join(bytes_per_day=500_000)
    new.wait_instances(2)
    in_step(new)
    assert not held_tunnel(dial, new, authority), "a restart forgives nothing"


# Redis comes and goes


def test_without_redis_local_limits_hold_and_it_is_said(pair, redis, make_origin, dial):
    a, b = pair(tunnels=2)
    authority = make_origin(echo).authority
    held = [held_tunnel(dial, a, authority) for _ in range(2)]
    in_step(a, b)
    assert not held_tunnel(dial, b, authority)
    redis.kill()
    for member in (a, b):
        member.wait_said("cannot be reached.*until it is back, limits count this")
        assert member.metric("up") == member.metric("instances") == 0
        assert member.operator.ask("GET", "/readyz")[0] == 200
        failed = member.failures()
        wait_until(lambda m=member, n=failed: m.failures() > n, "another attempt")
        assert member.said("limits count this program alone") == 1, "once"
    assert not held_tunnel(dial, a, authority), "its own are counted still"
    own = [held_tunnel(dial, b, authority) for _ in range(2)]
    assert all(own) and not held_tunnel(dial, b, authority)
    assert not any(map(is_cut, held)), "nobody was cut"
    redis.start()
    for member in (a, b):
        member.wait_said("shared through Redis", 2)
        member.wait_instances(2)
    in_step(a, b)
    for client in (held[0], own[0], own[1]):
        client.close()
    wait_until(lambda: held_tunnel(dial, b, authority), "one is held, of two")
    in_step(a, b)
    assert not held_tunnel(dial, a, authority) and not held_tunnel(dial, b, authority)


def test_a_redis_that_does_not_answer_holds_nobody_up(pair, redis, make_origin, dial):
    a, _ = pair(tunnels=2)
    authority = make_origin(echo).authority
    redis.pause()

    def connect() -> None:
        with dial(a.proxy) as client:
            assert client.connect(authority).status == 200

    takes_less(0.5, connect)
    a.wait_said("does not answer in time")
    assert a.metric('steps_total{result="timeout"}') >= 1
    redis.resume()
    a.wait_instances(2)


def test_a_redis_that_lost_its_data_is_told_again(pair, redis, make_origin, dial):
    a, b = pair(tunnels=2)
    authority = make_origin(echo).authority
    held = [held_tunnel(dial, a, authority) for _ in range(2)]
    in_step(a, b)
    redis.ask("FLUSHALL")
    in_step(a, b)
    assert all(held) and not held_tunnel(dial, b, authority)
    assert a.said("own until") == b.said("own until") == 0


def test_one_that_begins_without_redis_joins_later(redis, join, make_origin, dial):
    redis.kill()
    a = join(tunnels=1)
    assert held_tunnel(dial, a, make_origin(echo).authority), "it serves"
    a.wait_said("cannot be reached")
    redis.start()
    a.wait_said("shared through Redis")


# Instances come and go


def test_the_share_of_one_that_was_killed_expires(pair, make_origin, dial):
    a, b = pair(tunnels=2)
    authority = make_origin(echo).authority
    assert all(held_tunnel(dial, a, authority) for _ in range(2))
    in_step(a, b)
    assert not held_tunnel(dial, b, authority)
    a.kill()
    killed_at = time.monotonic()
    wait_until(lambda: held_tunnel(dial, b, authority), "its share")
    assert time.monotonic() - killed_at > 0.3
    b.wait_instances(1)


def test_the_share_of_a_killed_worker_is_given_back_everywhere(pair, make_origin, dial):
    a, b = pair(tunnels=2)
    authority = make_origin(echo).authority
    assert all(held_tunnel(dial, a, authority) for _ in range(2))
    in_step(a, b)
    assert not held_tunnel(dial, b, authority)
    a.proxy.worker.kill()
    wait_until(lambda: held_tunnel(dial, b, authority), "its share")
    assert b.metric("instances") == 2


def test_one_that_leaves_is_not_waited_for(join, make_origin, dial):
    a, b = (join("--fleet-expiry", "10m", tunnels=1) for _ in range(2))
    a.wait_instances(2)
    b.wait_instances(2)
    authority = make_origin(echo).authority
    assert held_tunnel(dial, a, authority)
    in_step(a, b)
    assert not held_tunnel(dial, b, authority)
    a.proxy.stop()
    b.wait_instances(1)
    wait_until(lambda: held_tunnel(dial, b, authority), "its share")


def test_an_upgrade_is_two_instances_for_a_while(join, make_origin, dial):
    a = join("--drain-timeout", "1m", "--handover", "false", tunnels=2)
    a.wait_instances(1)
    authority = make_origin(echo).authority
    old = held_tunnel(dial, a, authority)
    a.proxy.signal(signal.SIGUSR2)
    wait_until(lambda: a.said("instances: 2"), a.proxy.stderr)
    children = psutil.Process(a.proxy.process.pid).children(recursive=True)
    try:
        wait_until(
            lambda: "serves; this program drains" in a.proxy.stderr(), a.proxy.stderr)
        new = Member(a.proxy)
        new.wait_instances(2)
        in_step(new)
        assert held_tunnel(dial, new, authority)
        assert not held_tunnel(dial, new, authority), "one is held in the old program"
        old.close()
        assert a.proxy.wait_exit() == 0
        wait_until(lambda: held_tunnel(dial, new, authority), "the old one's place")
    finally:
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


# How it is reached


@pytest.mark.parametrize("way", ["tls_url", "path_url"])
def test_redis_is_reached_by_tls_and_by_a_path(join, redis, secret, way):
    a = join()
    secret.write_text(getattr(redis, way))
    b = join()
    a.wait_instances(2)
    b.wait_instances(2)


def test_a_certificate_that_nobody_signed_is_refused(join, redis, secret):
    secret.write_text(redis.tls_url.partition("?")[0])
    a = join()
    # A try has a second for a handshake: the first may have been too slow
    a.wait_said("cannot be reached", seconds=100)
    assert a.metric("up") == 0 and PASSWORD not in a.proxy.stderr()


def test_a_wrong_password_is_said_and_not_shown(join, redis, secret):
    secret.write_text(redis.url.replace(PASSWORD, "guess-of-ours"))
    a = join()
    a.wait_said("refuses our credentials")
    assert a.metric('steps_total{result="refused"}') >= 1
    seen = a.proxy.stderr() + a.operator.get("/config") + a.operator.get("/metrics")
    assert "guess-of-ours" not in seen and "fleet_url is set" in seen


def test_redis_is_told_no_name(pair, redis, make_origin, dial):
    a, b = pair(tunnels=2)
    assert held_tunnel(dial, a, make_origin(echo).authority)
    in_step(a, b)
    keys = redis.ask("KEYS", "*")
    fields = {field for key in keys if redis.ask("TYPE", key) == "hash"
              for field in redis.ask("HKEYS", key)}
    users = {field for field in fields if re.fullmatch("[0-9a-f]{32}", field)}
    assert len(users) == 1 and fields - users == {
        "#", "epoch", "version", "clock", "at", "day", "before", "older"}
    assert all(redis.ask("PTTL", key) > 0 for key in keys), "nothing stays for ever"


# Reload


def test_a_reload_changes_the_fleet_and_replaces_no_worker(
    join, redis, secret, make_origin, dial
):
    a, b = join(tunnels=1), join(tunnels=1)
    b.wait_instances(2)
    worker, authority = a.proxy.worker.pid, make_origin(echo).authority
    held = held_tunnel(dial, a, authority)
    in_step(a, b)
    assert not held_tunnel(dial, b, authority)
    secret.write_text(redis.url.removesuffix("0") + "1")  # another data base
    assert a.proxy.hup() == "generation 2: fleet_url"
    b.wait_instances(1)                       # it left, and said so
    a.wait_instances(1)
    wait_until(lambda: held_tunnel(dial, b, authority), "room at the other one")
    assert not is_cut(held)
    secret.write_text("redis://host:not-a-port/" + PASSWORD)
    assert "reload refused" in a.proxy.hup()
    assert PASSWORD not in a.proxy.stderr()
    secret.write_text(redis.url)
    a.proxy.hup()
    a.wait_instances(2)
    assert a.proxy.worker.pid == worker
