"""Names that a name server has validated, against scripted servers on loopback."""

import asyncio
import contextlib
import random
import struct
import time

import pytest

from cutthrough.net.address import Addresses
from cutthrough.net.dns import validated as module
from cutthrough.net.dns.answer import ERROR, NOT_FOUND, TIMEOUT, UNVALIDATED
from cutthrough.net.dns.resolver import Keeping, Resolver, Servers
from cutthrough.net.dns.validated import (
    build_question,
    read_hosts,
    read_message,
)
from tests.support.dns import (
    AAAA,
    NXDOMAIN,
    SERVFAIL,
    A,
    NameServer,
    Reply,
    build_record,
    encode_name,
    many_addresses,
)

BOTH = ("192.0.2.1", "2001:db8::1")


@pytest.fixture
def servers():
    """Two name servers; the first is asked first."""
    with contextlib.ExitStack() as opened:
        try:
            yield [opened.enter_context(NameServer({})) for _ in range(2)]
        except PermissionError:  # not root, and no capability in the namespace
            pytest.skip("port 53 of a loopback address may not be bound")


def signed(*addresses: str, **more) -> Reply:
    return Reply(addresses, validated=True, **more)


async def ask(resolver: Resolver, host: str) -> list[str] | str:
    answer = asyncio.get_running_loop().create_future()
    resolver.resolve(host.encode(), answer.set_result)
    found = await answer
    return found.texts() if isinstance(found, Addresses) else found


async def expire(resolver: Resolver, host: str) -> None:
    deadline = time.monotonic() + 10
    while resolver.cached(host.encode()) is not None:
        assert time.monotonic() < deadline, f"{host} does not expire"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def resolving(*servers: NameServer, timeout: float = 20.0, **more):
    resolver = Resolver(asyncio.get_running_loop(),
                        Servers([server.address for server in servers], timeout,
                                dnssec=True), **more)
    try:
        yield resolver
    finally:
        await resolver.close()


@pytest.mark.parametrize(("reply", "found"), [
    (signed(*BOTH), ["2001:db8::1", "192.0.2.1"]),
    (signed("192.0.2.1"), ["192.0.2.1"]),
    (signed(*BOTH, aliases=("b.test",)), ["2001:db8::1", "192.0.2.1"]),
    (Reply(BOTH), UNVALIDATED),
    (Reply(("192.0.2.1",)), UNVALIDATED),
    (NXDOMAIN, NOT_FOUND),
    (Reply(), NOT_FOUND),
    (signed(code=NXDOMAIN), NOT_FOUND),
    (SERVFAIL, ERROR)])
async def test_addresses_count_if_the_server_has_validated_them(
        servers, reply, found) -> None:
    """Of two families each by its own answer. A server gets AD and DO, or says none."""
    servers[0].zone["a.test"] = reply
    async with resolving(servers[0]) as resolver:
        assert await ask(resolver, "a.test") == found
        if isinstance(found, str):
            assert resolver.stats()[found] == 1


async def test_a_family_that_is_not_validated_is_left_out(servers) -> None:
    server = servers[0]
    plain = server._answer

    def answer(query: bytes, most: int) -> bytes | None:
        server.zone["a.test"] = Reply(BOTH, validated=query[-15:-13] == b"\0\x01")
        return plain(query, most)
    server._answer = answer
    async with resolving(server) as resolver:
        assert await ask(resolver, "a.test") == ["192.0.2.1"]


@pytest.mark.parametrize("first", [Reply(BOTH), SERVFAIL, None])
async def test_another_server_may_have_validated_it(servers, first) -> None:
    """A silent one has its share of the time."""
    servers[0].zone["a.test"] = first
    servers[1].zone["a.test"] = signed("192.0.2.7")
    async with resolving(*servers, timeout=3.0) as resolver:
        assert await ask(resolver, "a.test") == ["192.0.2.7"]
    assert "a.test" in servers[0].asked


async def test_a_long_answer_comes_over_tcp(servers) -> None:
    addresses = many_addresses(200)
    servers[0].zone["a.test"] = signed(*addresses)
    async with resolving(servers[0]) as resolver:
        assert await ask(resolver, "a.test") == list(addresses[:16])
    assert servers[0].asked_over_tcp == ["a.test"]


@pytest.mark.parametrize("reply", [
    None, Reply(garbage=b"x"), Reply(garbage=struct.pack(
        "!HHHHH", 0x81a0, 1, 0, 0, 0) + encode_name("b.test") + b"\0\1\0\1")])
async def test_what_is_no_answer_is_waited_out(servers, reply) -> None:
    """Silence, garbage, and the answer to another question."""
    servers[0].zone["a.test"] = reply
    async with resolving(servers[0], timeout=0.5) as resolver:
        assert await ask(resolver, "a.test") == TIMEOUT


@pytest.mark.parametrize("others", [0, 1])
async def test_a_closed_port_is_a_failure_and_no_silence(servers, others) -> None:
    """It was `dns_timeout`, at once. If another server is silent, that is the word."""
    servers[1].zone["a.test"] = None
    gone, silent = servers
    gone.__exit__()
    async with resolving(gone, *[silent][:others], timeout=0.5) as resolver:
        assert await ask(resolver, "a.test") == (TIMEOUT if others else ERROR)


async def test_each_query_has_a_port_of_its_own(servers) -> None:
    async with resolving(servers[0]) as resolver:
        for n in range(8):
            servers[0].zone[f"{n}.test"] = signed("192.0.2.1")
            await ask(resolver, f"{n}.test")
    assert len(servers[0].ports) > 8


async def test_an_expired_answer_does_not_stand_in_for_one_without_the_bit(
        servers) -> None:
    """It does while no server answers (RFC 8767)."""
    servers[0].zone["a.test"] = signed("192.0.2.1", ttl=0)
    keeping = Keeping(stale=3600.0, recheck=0.0)
    async with resolving(servers[0], keeping=keeping) as resolver:
        assert await ask(resolver, "a.test") == ["192.0.2.1"]
        await expire(resolver, "a.test")
        servers[0].zone["a.test"] = SERVFAIL
        assert await ask(resolver, "a.test") == ["192.0.2.1"]
        servers[0].zone["a.test"] = Reply(("192.0.2.6",))
        await expire(resolver, "a.test")
        assert await ask(resolver, "a.test") == UNVALIDATED


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "LOCALHOST."])
async def test_localhost_is_this_host_and_nobody_is_asked(servers, host) -> None:
    async with resolving(servers[0]) as resolver:
        assert await ask(resolver, host) == ["127.0.0.1", "::1"]
    assert not servers[0].asked


async def test_the_hosts_file_comes_first(servers, tmp_path, monkeypatch) -> None:
    path = tmp_path / "hosts"
    path.write_text("# no\n192.0.2.9 A.test b.test # b\n2001:db8::9 a.test\n"
                    "bad c.test\n")
    monkeypatch.setattr(module, "HOSTS", str(path))
    servers[0].zone["c.test"] = signed("192.0.2.1")
    async with resolving(servers[0]) as resolver:
        assert await ask(resolver, "a.test") == ["192.0.2.9", "2001:db8::9"]
        assert await ask(resolver, "b.test") == ["192.0.2.9"]
        assert await ask(resolver, "c.test") == ["192.0.2.1"]
    assert servers[0].asked == ["c.test"]


@pytest.mark.parametrize(
    "host", ["a..test", "a" * 64 + ".test", ".test", "\u00e4.test"])
async def test_what_is_no_name_is_not_asked_for(servers, host) -> None:
    async with resolving(servers[0]) as resolver:
        assert await ask(resolver, host) == NOT_FOUND
    assert not servers[0].asked


def build_answer(question: bytes, *records: bytes, flags: int = 0x81a0) -> bytes:
    head = struct.pack("!HHHHHH", 7, flags, 1, len(records), 0, 0)
    return b"".join((head, question, *records))


def test_any_part_of_an_answer_is_read_or_refused() -> None:
    question = build_question("a.test", A)
    whole = build_answer(
        question, build_record("a.test", 5, 9, encode_name("b.test")),
        b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 5, 4) + bytes(4),
        build_record("b.test", A, 5, bytes((192, 0, 2, 1))))
    message = read_message(whole, 7, question)
    assert message is not None and message.nodes and message.is_validated
    assert read_message(whole, 8, question) is None
    assert read_message(whole, 7, build_question("a.test", AAAA)) is None
    assert not any(read_message(whole[:n], 7, question) for n in range(len(whole)))
    rng = random.Random(53)
    for _ in range(5000):
        changed = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(12, len(changed))] = rng.randrange(256)
        read_message(bytes(changed), 7, question)


@pytest.mark.parametrize("record", [
    b"\xc0\x18" + struct.pack("!HHIH", A, 1, 5, 4) + bytes(4),     # names itself
    build_record("a.test", A, 5, bytes(3)), build_record("a.test", A, 5, bytes(5)),
    b"\x80a" + struct.pack("!HHIH", A, 1, 5, 4) + bytes(4)])
def test_a_record_that_breaks_the_rules_spoils_the_answer(record) -> None:
    question = build_question("a.test", A)
    assert read_message(build_answer(question, record), 7, question) is None


def test_aliases_lead_to_the_addresses_of_their_end_alone() -> None:
    """Another name's addresses are none, and a circle ends."""
    question = build_question("a.test", A)
    other = build_record("x.test", A, 5, bytes((192, 0, 2, 1)))
    message = read_message(build_answer(question, other), 7, question)
    assert message is not None and not message.nodes
    circle = [build_record(a, 5, 5, encode_name(b)) for a, b in (
        ("a.test", "b.test"), ("b.test", "a.test"))]
    message = read_message(build_answer(question, *circle, other), 7, question)
    assert message is not None and not message.nodes


def test_lines_of_hosts_that_are_none_are_left_out() -> None:
    assert read_hosts("\n \n::1 a\n1.2.3 b\n192.0.2.1\n192.0.2.2 a\n") == {
        "a": ["::1", "192.0.2.2"]}
