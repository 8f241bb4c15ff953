"""Names against real name servers on loopback: answers, failures, memory."""

import asyncio
import contextlib
import socket
import threading
import time

import pycares
import pytest

from cutthrough.doctor.rebinding_dns import NameServer as Unprivileged
from cutthrough.net.dns import resolver as module
from cutthrough.net.dns.answer import ERROR, NOT_FOUND, TIMEOUT
from tests.support.dns import (
    AAAA,
    NXDOMAIN,
    REFUSED,
    SERVFAIL,
    A,
    Reply,
    many_addresses,
)
from tests.support.resolving import PATIENCE, Asking, in_loop, told
from tests.support.resolving import names as names
from tests.support.wait import TRIES

# c-ares sorts addresses by the source address that the kernel would use (RFC 6724). It
# finds the source by connect(2) of a UDP socket. That sends nothing, and counts as a
# dial.
pytestmark = pytest.mark.dials_out

ONE = "192.0.2.1"
BOTH = ("2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2", "192.0.2.3")

ANSWERS = [
    ("one address", ONE, [ONE]),
    ("IPv6 alone", "2001:db8::1", ["2001:db8::1"]),
    ("a chain of aliases",
     Reply((ONE,), aliases=("b.test", "c.test", "d.test")), [ONE]),
    ("aliases that lead nowhere", Reply(aliases=("b.test", "a.test")), NOT_FOUND),
    ("more addresses than are tried", Reply(many_addresses(120)), 16),
    ("truncated, whole over TCP", Reply((ONE,), truncated=True), [ONE]),
    ("no such name", NXDOMAIN, NOT_FOUND),
    ("no such name, with SOA", Reply(code=NXDOMAIN, minimum=60), NOT_FOUND),
    ("no address", Reply(), NOT_FOUND),
    ("a server's failure", SERVFAIL, ERROR),
    ("refused", REFUSED, ERROR),
    ("silence", None, TIMEOUT),
    ("half a head", Reply(garbage=b"\x81\x80\0"), None),
    ("noise", Reply(garbage=b"\xff" * 200), None),
    ("an alias that points to itself",
     Reply(garbage=b"\x81\x80\0\1\0\1\0\0\0\0\xc0\x0c\0\1\0\1\xc0\x0c"), None),
    ("the other family is silent", Reply((ONE,), silent=(AAAA,)), [ONE]),
    # c-ares gives up IPv6 for IPv4, not the other way round
    ("IPv4 is silent", Reply(("2001:db8::1",), silent=(A,)), TIMEOUT),
]


@pytest.mark.parametrize(("reply", "expected"), [row[1:] for row in ANSWERS],
                         ids=[row[0] for row in ANSWERS])
@in_loop
async def test_an_answer_becomes_addresses_or_a_label(names, reply, expected):
    names.zone["a.test"] = reply
    async with Asking(names.address) as resolver:
        answer = await resolver.query("a.test")
        if expected is None:            # garbage: a failure, of whatever name
            assert answer in (ERROR, TIMEOUT)
        elif isinstance(expected, int):
            assert len(answer) == expected
            assert names.asked_over_tcp
        else:
            assert answer == expected
        assert sum(resolver.failures.values()) == isinstance(answer, str)


@in_loop
async def test_families_take_turns(names):
    """RFC 8305 section 4. RFC 6724 decides by this host's routes which one begins."""
    names.zone["a.test"] = Reply(BOTH)
    async with Asking(names.address) as resolver:
        answer = await resolver.query("a.test")
    families = [":" in address for address in answer]
    assert sorted(answer) == sorted(BOTH)
    assert families[0] != families[1] == families[3] != families[2]


@in_loop
async def test_a_name_is_not_completed_by_a_search_list(names, monkeypatch):
    """`short` became short.corp.test: another host than the policy had judged."""
    monkeypatch.setenv("LOCALDOMAIN", "corp.test")
    monkeypatch.setenv("RES_OPTIONS", "ndots:3")
    names.zone.update({"short.corp.test": ONE, "a.b.corp.test": ONE})
    async with Asking(names.address) as resolver:
        assert await resolver.query("short") == NOT_FOUND
        assert await resolver.query("a.b") == NOT_FOUND
    assert names.asked == ["short", "a.b"]


@in_loop
async def test_a_name_is_not_replaced_by_hostaliases(names, monkeypatch, tmp_path):
    (tmp_path / "aliases").write_text("short other.test\n")
    monkeypatch.setenv("HOSTALIASES", str(tmp_path / "aliases"))
    names.zone["other.test"] = ONE
    async with Asking(names.address) as resolver:
        assert await resolver.query("short") == NOT_FOUND
    assert names.asked == ["short"]


@pytest.mark.parametrize("host", ["localhost", "a.localhost"])
@in_loop
async def test_localhost_is_this_host_and_nobody_is_asked(names, host):
    """RFC 6761 section 6.3."""
    async with Asking(names.address) as resolver:
        assert set(await resolver.query(host)) <= {"127.0.0.1", "::1"}
    assert not names.asked


@pytest.mark.parametrize("first", ["silent", "closed"])
@in_loop
async def test_the_second_server_answers_for_a_dead_first(names, first):
    names.zone["a.test"] = ONE
    names.zone |= {f"b{n}.test": ONE for n in range(TRIES)}
    with socket.socket(type=socket.SOCK_DGRAM) as dead:
        dead.bind(("127.66.66.66", 53 if first == "silent" else 0))
        async with Asking("127.66.66.66", names.address, timeout=3.0) as resolver:
            assert await resolver.query("a.test") == [ONE]
            took = []
            for n in range(TRIES):          # it is known to be dead
                begun = time.monotonic()
                assert await resolver.query(f"b{n}.test") == [ONE]
                took.append(time.monotonic() - begun)
            assert min(took) < 0.5


@in_loop
async def test_the_last_of_many_servers_is_asked_within_the_time(names):
    names.zone["a.test"] = ONE
    with contextlib.ExitStack() as stack:
        dead = [f"127.66.67.{i}" for i in range(1, 6)]
        for address in dead:
            sock = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            sock.bind((address, 53))
        async with Asking(*dead, names.address, timeout=2.0) as resolver:
            assert await resolver.query("a.test") == [ONE]


@in_loop
async def test_no_server_at_all_is_a_timeout_at_its_time(names):
    names.zone["a.test"] = None
    async with Asking(names.address, timeout=0.5) as resolver:
        begun = time.monotonic()
        assert await resolver.query("a.test") == TIMEOUT
        assert 0.45 < time.monotonic() - begun < PATIENCE


@in_loop
async def test_an_answer_lasts_as_long_as_the_shortest_of_its_chain(names):
    names.zone["a.test"] = Reply((ONE,), aliases=("b.test",), alias_ttl=1)
    async with Asking(names.address) as resolver:
        assert await resolver.ask("a.test") == [ONE]
        assert await resolver.ask("a.test") == [ONE]
        assert names.asked == ["a.test"]
        await resolver.wait_expired("a.test")


@pytest.mark.parametrize(("minimum", "questions"), [(60, 1), (None, 2)])
@in_loop
async def test_a_denial_is_kept_as_long_as_its_soa_says(names, minimum, questions):
    """RFC 2308 section 5: by c-ares, which sees the record; without one it is not kept
    beyond our own few seconds."""
    names.zone["a.test"] = Reply(code=NXDOMAIN, minimum=minimum)
    async with Asking(names.address) as resolver:
        assert await resolver.ask("a.test") == NOT_FOUND
        assert await resolver.ask("a.test") == NOT_FOUND
        assert len(names.asked) == 1
        resolver.clear()
        assert await resolver.ask("a.test") == NOT_FOUND
    assert len(names.asked) == questions


@in_loop
async def test_those_who_wait_share_one_query(names):
    names.zone["a.test"] = ONE
    async with Asking(names.address) as resolver:
        answers = await asyncio.gather(*(resolver.query("a.test") for _ in range(20)))
        assert answers == [[ONE]] * 20
        assert (names.asked, resolver.queries) == (["a.test"], 1)


@in_loop
async def test_a_hot_name_is_asked_for_again_before_its_end(names):
    """And of the name server: c-ares' own cache gave back the answer about to end."""
    names.zone["a.test"] = names.zone["cold.test"] = Reply((ONE,), ttl=4)
    async with Asking(names.address, prefetch=3.0) as resolver:
        await resolver.ask("a.test")
        await resolver.ask("cold.test")
        names.zone["a.test"] = Reply(("192.0.2.2",), ttl=4)
        seen = []
        await resolver.wait(
            lambda: seen.append(told(resolver.cached(b"a.test") or "gone"))
            or seen[-1] != [ONE], "the next answer")
        assert seen[-1] == ["192.0.2.2"]
        assert names.asked.count("a.test") == 2
        assert resolver.stats()["prefetches"] == 1
        await resolver.wait_expired("cold.test")
    assert names.asked.count("cold.test") == 1


@pytest.mark.parametrize("failure", [SERVFAIL, None])
@in_loop
async def test_an_answer_outlives_its_time_while_no_server_answers(names, failure):
    """RFC 8767: without its waiting for longer than the client response timer."""
    names.zone["a.test"] = Reply((ONE,), ttl=1)
    async with Asking(names.address, timeout=4.0, recheck=1.0) as resolver:
        await resolver.ask("a.test")
        names.zone["a.test"] = failure
        await resolver.wait_expired("a.test")
        begun = time.monotonic()
        assert await resolver.ask("a.test") == [ONE]
        assert time.monotonic() - begun < 4, "the resolver's time"
        assert resolver.stats()["stale"] == 1
        # From now on no request waits
        assert told(resolver.cached(b"a.test")) == [ONE]
        assert resolver.stats()["stale"] == 2
        # And once a server answers again, its answer counts
        names.zone["a.test"] = Reply(("192.0.2.2",), ttl=60)
        await resolver.wait(
            lambda: told(resolver.cached(b"a.test")) == ["192.0.2.2"], "the new one")


@in_loop
async def test_a_denial_replaces_what_was_there(names):
    """RFC 8767 section 4: it is an answer."""
    names.zone["a.test"] = Reply((ONE,), ttl=1)
    async with Asking(names.address) as resolver:
        await resolver.ask("a.test")
        names.zone["a.test"] = NXDOMAIN
        await resolver.wait_expired("a.test")
        assert await resolver.ask("a.test") == NOT_FOUND
        assert resolver.stats()["stale"] == 0


@pytest.mark.parametrize("stale", [0.0, 0.5])
@in_loop
async def test_a_stale_answer_has_an_end(names, stale):
    names.zone["a.test"] = Reply((ONE,), ttl=1)
    async with Asking(names.address, stale=stale) as resolver:
        await resolver.ask("a.test")
        names.zone["a.test"] = SERVFAIL
        await resolver.wait_expired("a.test")
        await resolver.wait(lambda: not resolver.has_outlived(b"a.test"), "its end")
        assert await resolver.ask("a.test") == ERROR


@in_loop
async def test_a_failed_refresh_leaves_what_is_still_good(names):
    names.zone["a.test"] = ONE
    async with Asking(names.address) as resolver:
        await resolver.ask("a.test")
        names.zone["a.test"] = SERVFAIL
        resolver.refresh(b"a.test")
        await resolver.wait(lambda: resolver.failures[ERROR], "the failure")
        assert await resolver.ask("a.test") == [ONE]
        assert resolver.stats()["stale"] == 0


@in_loop
async def test_an_override_is_never_asked_for(names):
    names.zone["a.test"] = ONE
    overrides = [("a.test", "192.0.2.7"), ("b.test", ONE), ("a.test", "2001:db8::7")]
    async with Asking(names.address, overrides=overrides, entries=1) as resolver:
        for _ in range(2):
            assert told(resolver.cached(b"a.test")) == ["192.0.2.7", "2001:db8::7"]
            assert told(resolver.cached(b"b.test")) == [ONE]
            resolver.put(b"c.test", NOT_FOUND, 60)
            resolver.put(b"a.test", NOT_FOUND, 60)
            resolver.clear()
    assert not names.asked


@in_loop
async def test_the_least_recently_used_name_goes_first():
    async with Asking(entries=3) as resolver:
        for host in (b"a", b"b", b"c"):
            resolver.put(host, NOT_FOUND, 60)
        resolver.cached(b"a")
        resolver.put(b"b", NOT_FOUND, 60)
        resolver.put(b"d", NOT_FOUND, 60)
        assert resolver.cached(b"c") is None
        assert [resolver.cached(host) for host in (b"a", b"b", b"d")] == [NOT_FOUND] * 3
        assert (len(resolver), resolver.stats()["evicted"]) == (3, 1)


@in_loop
async def test_no_name_is_kept_when_the_bound_is_0(names):
    names.zone["a.test"] = ONE
    async with Asking(names.address, entries=0) as resolver:
        assert await resolver.query("a.test") == [ONE]
        assert resolver.cached(b"a.test") is None
        assert len(resolver) == 0


@in_loop
async def test_a_channel_goes_when_its_own_cache_may_be_full(names, monkeypatch):
    """R31: c-ares keeps all names and answers for as long as it lasts."""
    monkeypatch.setattr(module, "MOST_ASKED", 20)
    async with Asking(names.address, entries=20) as resolver:
        names.zone.update({f"{i}.test": ONE for i in range(100)})
        answers = await asyncio.gather(
            *(resolver.query(f"{i}.test") for i in range(100)))
        assert answers == [[ONE]] * 100
        resolver.clear()
        assert await resolver.query("0.test") == [ONE]
    assert names.asked.count("0.test") == 2


@in_loop
async def test_closing_ends_what_is_under_way(names):
    names.zone["a.test"] = None
    resolver = Asking(names.address)
    heard: list[object] = []
    resolver.resolve(b"a.test", heard.append)
    await resolver.wait(lambda: names.asked, "the question")
    await resolver.close()
    assert not heard


@in_loop
async def test_a_name_server_may_have_a_port_of_its_own():
    """For `doctor ssrf`, which has no port 53; pycares reads it from 5.0 on."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: Unprivileged({"a.test": (("192.0.2.7",),)}), ("127.0.0.1", 0))
    try:
        async with Asking(f"127.0.0.1:{server.port}") as resolver:
            assert await resolver.ask("a.test") == ["192.0.2.7"]
    finally:
        transport.close()
    assert server.asked["a.test", A]


@in_loop
async def test_a_question_for_which_no_thread_begins_is_an_error(names, monkeypatch):
    """A bound of processes (pids.max, ulimit -u) was a 500 with a traceback, and as
    pycares had noted the thread, nothing ever freed its channels afterwards."""
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    fresh = type(pycares._shutdown_manager)()
    monkeypatch.setattr(pycares, "_shutdown_manager", fresh)
    names.zone["a.test"] = names.zone["b.test"] = ONE
    async with Asking(names.address) as resolver:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            assert await resolver.query("a.test") == ERROR
        assert await resolver.query("b.test") == [ONE]
        assert fresh._thread.is_alive()
