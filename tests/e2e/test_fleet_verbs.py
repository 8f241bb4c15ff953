"""`cutthrough fleet` and verbs with --fleet, over several programs and a real Redis;
programs that are killed, stopped, unreachable, and entries that others wrote."""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator

import psutil
import pytest

from cutthrough.process.fleet_registry import Entry, entry_key, write_entry
from tests.support.admin import TOKEN
from tests.support.client import USER
from tests.support.fleet import Member
from tests.support.fleet import redis as redis
from tests.support.fleet import secret as secret
from tests.support.fleet import server as server
from tests.support.nginx import free_port
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.redis import Redis
from tests.support.registered import IN_REDIS, listed, name
from tests.support.registered import join as join
from tests.support.registered import verb as verb
from tests.support.successors import end, successor_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

INDEX = "{cutthrough}:fleet"


def in_order(members: list[Member]) -> list[str]:
    """Names as the verbs list the programs of a host: by the number of the process."""
    return [name(member) for member in sorted(
        members, key=lambda member: member.proxy.process.pid)]


# The list


def test_the_fleet_is_listed(join, verb, make_origin, dial):
    members = [join(), join()]
    client = dial(members[0].proxy).tunnel(make_origin(echo).authority)
    done = verb("fleet")
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.split() == [
        "proxy", "state", "version", "revision", "renewed", "conns", "req/s", "cpu"]
    assert [row.split()[0] for row in rows] == in_order(members)
    assert all(row.split()[1] == "serving" for row in rows)
    rows = listed(verb)
    assert {row["pid"] for row in rows} == {m.proxy.process.pid for m in members}
    assert all(row["failure"] is None and row["workers"] == 1 for row in rows)
    assert len({row["revision"] for row in rows}) == 1
    assert all(0 <= row["renewed"] <= 15 for row in rows)
    client.close()


def test_other_options_are_another_revision(join, verb):
    join(), join("--head-timeout", "11s")
    done = verb("fleet")
    assert done.returncode == 0 and "2 revisions are in force" in done.stdout


def test_a_clean_stop_removes_the_entry(join, verb, redis):
    member = join()
    assert len(redis.ask("KEYS", f"{INDEX}*")) == 2
    member.proxy.stop()
    assert redis.ask("KEYS", f"{INDEX}*") == []
    done = verb("fleet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no proxy is registered as cutthrough" in done.stderr


def test_the_lease_of_a_killed_program_ends(join, verb):
    stays, dies = join(lease="1s"), join(lease="1s")
    dies.kill()
    wait_until(lambda: [row["pid"] for row in listed(verb)] == [
        stays.proxy.process.pid], "the end of its lease")
    assert verb("fleet").returncode == 0


def test_an_upgrade_is_one_entry(join, verb):
    member = join()
    successor = successor_of(member.proxy)
    try:
        wait_until(lambda: [row["pid"] for row in listed(verb)] == [successor.pid],
                   "the new program alone")
    finally:
        end(successor)


def test_an_admin_listener_on_loopback_is_named_as_unreachable(join, verb):
    alone = join(is_public=False)
    done = verb("status", "--fleet")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{name(alone)}: cannot be asked: its admin listener is on loopback" in (
        done.stderr)
    other = join()
    done = verb("status", "--fleet")
    assert done.returncode == 1 and done.stdout.startswith(f"{name(other)}: ready\n")
    assert verb("fleet").returncode == 1


# Verbs


def test_verbs_go_to_all(join, verb, make_origin, dial):
    members = [join(), join()]
    authority = make_origin(echo).authority
    tunnels = [dial(member.proxy).tunnel(authority) for member in members]
    done = verb("--fleet", "conns", "--user", USER, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["proxy"] for row in rows} == set(map(name, members))
    assert all(row["user"] == USER for row in rows)
    done = verb("status", "--fleet")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if "ready" in line] == [
        f"{each}: ready" for each in in_order(members)]
    done = verb("top", "--fleet", "--interval", "0.1")
    assert done.returncode == 0 and done.stdout.count("requests/s") == 2
    done = verb("kill", "--fleet", "--user", USER)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(
        f"{name(member)}: 1 cut" for member in members)
    done = verb("reload", "--fleet")
    assert done.stdout.count("generation 2: no changes") == 2
    done = verb("flows", "arm", "60", "--fleet")
    assert done.returncode == 0 and done.stdout.count("armed for 60 s") == 2
    done = verb("flows", "disarm", "--fleet")
    assert done.returncode == 0 and done.stdout.count("not armed") == 2
    tunnels.append(dial(members[0].proxy).tunnel(authority))
    done = verb("drain", "--fleet")
    assert done.returncode == 0 and done.stdout.count("draining") == 2
    assert {row["pid"]: row["state"] for row in listed(verb)}[
        members[0].proxy.process.pid] == "draining"
    for tunnel in tunnels:
        tunnel.close()
    for member in members:
        wait_until(lambda m=member: m.proxy.process.poll() is not None,
                   member.proxy.stderr)


def test_the_mode_changes_everywhere(join, verb, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    members = [join("--recording-directory", str(folder)) for folder in folders]
    done = verb("mode", "replay", "--fleet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("mode replay, session as configured") == 2
    assert verb("mode", "--fleet", "--json").stdout.count('"mode": "replay"') == 2
    plain = join()
    done = verb("mode", "--fleet")
    assert done.returncode == 1 and done.stdout.count("mode replay") == len(members)
    assert f"{name(plain)}: " in done.stderr and "404" in done.stderr


def test_a_program_that_hangs_is_named_and_the_others_answer(join, verb):
    answers, hangs = join(lease="5m"), join(lease="5m")
    stopped = psutil.Process(hangs.proxy.process.pid)
    stopped.suspend()
    try:
        begin = time.monotonic()
        done = verb("status", "--fleet", "--timeout", "5")
        assert time.monotonic() - begin >= 5
        assert done.returncode == 1
        assert f"{name(hangs)}: no answer within 5 s" in done.stderr
        assert done.stdout.startswith(f"{name(answers)}: ready\n")
        done = verb("fleet", "--timeout", "5")
        assert done.returncode == 1 and "no answer" in done.stdout
    finally:
        stopped.resume()


def test_a_worker_that_hangs_is_named_with_its_program(join, verb):
    member = join()
    worker = psutil.Process(member.proxy.worker.pid)
    worker.suspend()
    try:
        done = verb("conns", "--fleet")
    finally:
        worker.resume()
    assert done.returncode == 1
    assert f"{name(member)}: worker 0 (pid {worker.pid}) does not answer" in done.stderr


# Others who can write to Redis


@pytest.fixture
def trap() -> Iterator[tuple[str, socket.socket]]:
    """The address of somebody who would like to have the token."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", listening


def plant(redis: Redis, id: str, value: str | bytes) -> None:
    redis.ask("ZADD", INDEX, int(time.time() * 1000) + 60_000, id)
    redis.ask("SET", f"{INDEX}:{id}", value, "PX", 60_000)


def entry_of(url: str, at: float) -> Entry:
    return Entry(
        host="trap", pid=1, version="1", url=url, unreachable="", started=at, at=at,
        lease=15.0, state="serving", revision="0", generation=1, workers=1,
        connections=0, requests=0.0, cpu=0.0)


def test_the_token_goes_to_no_address_that_it_did_not_sign(join, verb, redis, trap):
    url, listening = trap
    member = join()
    now = time.time()
    plant(redis, "0" * 16, write_entry(
        entry_key("another token"), "cutthrough", "0" * 16, entry_of(url, now)))
    plant(redis, "1" * 16, write_entry(         # an old one of ours, written again
        entry_key(TOKEN), "cutthrough", "1" * 16, entry_of(url, now - 3600)))
    plant(redis, "2" * 16, write_entry(         # of another id
        entry_key(TOKEN), "cutthrough", "3" * 16, entry_of(url, now)))
    done = verb("kill", "--fleet", "--all")
    assert done.returncode == 1 and done.stdout == f"{name(member)}: 0 cut\n"
    assert "2 entries of the registry were left out: each of them is not signed" in (
        done.stderr)
    assert "1 entry of the registry was left out: it was written 36" in done.stderr
    with pytest.raises(BlockingIOError):
        listening.accept()


def test_what_strangers_write_neither_ends_nor_misleads_a_verb(join, verb, redis):
    member = join()
    plant(redis, "0" * 16, b"\xff\xfe")
    plant(redis, "1" * 16, "\x1b[2J {}")
    plant(redis, "2" * 16, "x" * 100_000)
    plant(redis, "3" * 16, f"{'0' * 64} {{}}")
    plant(redis, "\x1b]0;title\x07", "x")
    redis.ask("ZADD", INDEX, int(time.time() * 1000) + 60_000, "4" * 16)
    redis.ask("LPUSH", f"{INDEX}:{'4' * 16}", "of another type")
    done = verb("fleet")
    assert done.returncode == 1 and "\x1b" not in done.stdout + done.stderr
    assert name(member) in done.stdout
    assert "1 entry of the registry was left out" in done.stderr
    redis.ask("DEL", INDEX)
    redis.ask("SET", INDEX, "of another type")
    done = verb("fleet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "answers with an error" in done.stderr
    assert member.operator.ask("GET", "/readyz")[0] == 200


def test_reading_sends_no_token(verb, redis, trap):
    url, listening = trap
    plant(redis, "0" * 16, write_entry(
        entry_key(TOKEN), "cutthrough", "0" * 16, entry_of(url, time.time())))
    done = verb("conns", "--fleet", "--timeout", "5")
    assert done.returncode == 1 and "no answer within 5 s" in done.stderr
    listening.setblocking(True)
    with contextlib.closing(listening.accept()[0]) as caller:
        head = caller.recv(4096)
    assert head.startswith(b"GET /connections?") and TOKEN.encode() not in head


# Without a token, without Redis


def test_what_is_missing_is_named(verb, redis, tmp_path):
    for words, more, reason in (
            ((), {"CUTTHROUGH_ADMIN_TOKEN": ""}, "--token-file"),
            ((), {"CUTTHROUGH_FLEET_URL_FILE": ""}, "--fleet-url-file"),
            (("--timeout", "x"), {}, "--timeout"),
            (("--cacert", str(tmp_path / "none")), {}, "--cacert"),
            (("--admin", "127.0.0.1:1"), {}, "--admin")):
        done = verb("status", "--fleet", *words, **more)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert reason in done.stderr, done.stderr
    done = verb("conns", "--fleet", "--trace", "1")
    assert done.returncode == 2 and "--trace" in done.stderr


def test_another_token_finds_nobody(join, verb):
    join()
    done = verb("reload", "--fleet", CUTTHROUGH_ADMIN_TOKEN="not this one, but as long")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not signed with this admin token" in done.stderr


def test_while_redis_is_away_nothing_else_changes(join, verb, redis, make_origin, dial):
    member = join(lease="1s")
    redis.kill()
    member.wait_said("do not know this program")
    done = verb("fleet")
    assert done.returncode == 2 and "cannot be reached" in done.stderr
    assert dial(member.proxy).get(make_origin().url()).status == 200
    assert member.operator.ask("GET", "/readyz")[0] == 200
    redis.start()
    member.wait_said("registered in Redis again$")
    assert member.said("do not know this program") == 1, "once"
    assert [row["pid"] for row in listed(verb)] == [member.proxy.process.pid]
    assert verb("fleet").returncode == 0


def test_a_redis_that_hangs_does_not_hold_up_a_stop(join, redis):
    member = join()
    redis.pause()
    os.kill(member.proxy.process.pid, signal.SIGTERM)
    assert member.proxy.process.wait(60) == 0


# Configuration


@pytest.mark.parametrize(("flags", "reason"), [
    (("--admin-token", TOKEN), "needs fleet_url"),
    (("--fleet-url", "redis://127.0.0.1:1"), "needs an admin_token of 16"),
    (("--fleet-url", "redis://127.0.0.1:1", "--admin-token", "short"), "of 16"),
    (("--admin-public", "127.0.0.1:9090"), "is not http://host:port"),
    (("--share-credentials", "--fleet-register=false"), "needs fleet_url"),
    (("--share-credentials", "--fleet-register=false", "--fleet-url",
      "redis://127.0.0.1:1"), "needs a credentials_key of 32"),
    (("--admin-public", "http://a.example:0"), "port 0"),
    (("--admin-public", "http://a_b@c:1"), "is not a host name")])
def test_a_contradiction_is_named(verb, flags, reason):
    done = verb("check", "--fleet-register", *flags, CUTTHROUGH_FLEET_URL_FILE="",
                CUTTHROUGH_ADMIN_TOKEN="")
    assert done.returncode == 2 and reason in done.stderr


def test_a_reload_begins_and_ends_the_registration(
        secret, verb, directory, opened, loop_name):
    port = free_port()
    text = (f'fleet_url_file = "{secret}"\nadmin = "127.0.0.1:{port}"\n'
            f'admin_token = "{TOKEN}"\nadmin_public = "http://127.0.0.1:{port}"\n')
    proxy = opened.enter_context(
        Proxy(directory("reloaded"), loop=loop_name, config=text))
    member = Member(proxy)
    assert listed(verb) == []
    proxy.reload(text + 'fleet_register = true\nfleet_lease = "1s"\n')
    member.wait_said(IN_REDIS)
    wait_until(lambda: [row["generation"] for row in listed(verb)] == [2],
               "an entry of the new generation")
    proxy.reload(text)
    wait_until(lambda: listed(verb) == [], "no entry")
    proxy.reload(text + 'fleet_register = true\nfleet_prefix = "other"\n')
    member.wait_said(IN_REDIS, 2)
    assert listed(verb) == []
    assert verb("fleet", "--fleet-prefix", "other").returncode == 0
