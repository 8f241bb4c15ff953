"""`cutthrough doctor ssrf`: are forbidden addresses refused in every disguise?

It runs a proxy with the operator's configuration on a free loopback port, and requests
every disguise of a forbidden address by CONNECT (port 443) and by GET (port 80). Its
own name server answers for names, and changes its answers: the first is an unused
public address, the next a forbidden one. Addresses that the rules open on purpose are
counted and not requested, because the proxy would connect to them.

If the proxy fails to refuse an address, the proxy dials it, as it dials the first
address of a name that changes its answers. Therefore this process moves into a network
with loopback alone, without a route to either. The host's own addresses are added.

Exit status 0: all refused, for the right reason; 1: something was not.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.doctor.rebinding_dns import NameServer
from cutthrough.doctor.ssrf_cases import Disguise, disguises
from cutthrough.doctor.trial import as_caller, read_reply
from cutthrough.embed import Embedded
from cutthrough.net import loopback_only
from cutthrough.net.dns.answer import MIN_TTL
from cutthrough.net.interfaces import own_hosts
from cutthrough.policy.answer import Caller
from cutthrough.policy.source import Policy
from cutthrough.tools.dry_run import OK, DryRun, Request
from cutthrough.tools.explain_target import read_target

AT_A_TIME = 16
# Seconds; longer than every deadline of the proxy for a refusal or a lost SYN
PATIENCE = 20.0
CONNECT_TIMEOUT = 1.0                   # seconds, to the unused address
COLUMNS = ("tried", "403", "400", "opened", "passed")


class Reply(NamedTuple):
    status: int
    reason: str                         # a label of outcome.pyx; "": none

    def __str__(self) -> str:
        return f"{self.status} {self.reason}".rstrip()


class Result(NamedTuple):
    disguise: Disguise
    method: str
    column: str                         # one of COLUMNS
    reply: Reply | None = None


def run(config: Config, policy: Policy, user: str, host_network: bool = False) -> int:
    """Prints the table; returns the exit status. Raises ConfigError, PolicyError.

    Without `host_network` this process leaves the network of the host.
    """
    floor = config.floor
    if not floor and config.address_floor == "off":
        print("the floor is off (address_floor = off): nothing is refused; "
              "--address-floor on tests with the floor")
        return 1
    if not floor:
        print("the floor is off: loopback listeners only, and no policy. Tested with "
              "address_floor = on")
    if not host_network and not loopback_only.is_alone():
        try:
            loopback_only.enter(own_hosts())
        except OSError as error:
            raise ConfigError("", "--host-network", "is not given, and this user gets "
                              f"no network with loopback alone ({error}): an address "
                              "that passes would be dialled from this host") from None
    routed = routed_answers()
    results, rebound = asyncio.run(examine(config, policy, user, routed))
    print("\n".join(show(results)))
    result = (f"not tested: {', '.join(routed)} would be dialled, and has a route"
            if routed else rebound or "only checked addresses were dialled")
    print(f"rebinding, first answer: {result}")
    return int(bool(rebound) or any(row.column == "passed" for row in results))


def routed_answers() -> list[str]:
    """The first addresses of rebinding names that this network has a route to. The name
    server must not answer with them."""
    addresses = []
    for text in {text for disguise in disguises() for text in disguise.first}:
        family = socket.AF_INET6 if ":" in text else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as (
                probe):
            probe.connect((text, 9))        # UDP: looks up the route, sends nothing
            addresses.append(text)
    return sorted(addresses)


async def examine(config: Config, policy: Policy, user: str,
                  routed: list[str]) -> tuple[list[Result], str]:
    """All results, and the success of rebinding during a dial; "" if there was none.

    If the first answers are `routed`, those names have the forbidden address at once.
    """
    tried = [*disguises(), *_own()]
    if routed:
        tried = [disguise._replace(zone=disguise.zone[-1:]) for disguise in tried]
    zone = {str(_host_of(disguise)): disguise.zone
            for disguise in tried if disguise.zone}
    async with _name_server(zone) as names, _canary() as canary:
        config, policy, caller = _prepare(config, policy, user, names)
        async with Embedded(config, policy, discards=True) as proxy:
            doctor = _Doctor(DryRun(config, policy), caller, proxy.port)
            rebound = await doctor.rebind(
                [disguise for disguise in tried
                 if disguise.kind == "rebinding" and not routed], canary)
            # The answers have a TTL of zero, and are cached for the minimum
            await asyncio.sleep(MIN_TTL + 0.1)
            results = await asyncio.gather(*(
                doctor.try_one(disguise, method)
                for disguise in tried for method in ("CONNECT", "GET")))
            return list(results), rebound


def _own() -> Iterator[Disguise]:
    """The addresses of this host, which are in no registry."""
    for text in dict.fromkeys(own_hosts()):
        yield Disguise("own address", f"[{text}]" if ":" in text else text, text)


def _prepare(config: Config, policy: Policy, user: str,
             names: NameServer) -> tuple[Config, Policy, Caller]:
    """The configuration, changed to a loopback port."""
    # Without limits, because hundreds of requests come at once, and no limit is tested
    config, policy, caller = as_caller(config, policy, user)
    return msgspec.structs.replace(
        config, address_floor="on", resolvers=(f"127.0.0.1:{names.port}",),
        connect_timeout=CONNECT_TIMEOUT), policy, caller


class _Doctor:
    """A client of the proxy on `port`."""

    def __init__(self, judge: DryRun, caller: Caller, port: int) -> None:
        self.judge, self.caller, self.port = judge, caller, port
        self.places = asyncio.Semaphore(AT_A_TIME)

    async def rebind(self, tried: list[Disguise], canary: "_Canary") -> str:
        """Requests names whose answer changes while the first address is dialled."""
        replies = await asyncio.gather(*(
            self.ask(method, disguise.host, canary.port)
            for disguise in tried for method in ("CONNECT", "GET")))
        passed = [str(reply) for reply in replies if reply.status < 300]
        if canary.callers:
            passed.append(f"{canary.callers} connections to a loopback address")
        return ", ".join(passed)

    async def try_one(self, disguise: Disguise, method: str) -> Result:
        port = 443 if method == "CONNECT" else 80
        expected = self.expect(disguise, method, port)
        if OK in expected:
            return Result(disguise, method, "opened")
        reply = await self.ask(method, disguise.host, port)
        if reply.status == 400:
            return Result(disguise, method, "400", reply)
        if reply.status == 403 and reply.reason in expected:
            return Result(disguise, method, "403", reply)
        return Result(disguise, method, "passed", reply)

    def expect(self, disguise: Disguise, method: str, port: int) -> set[str]:
        """The correct outcomes by the rules; "ok" if the rules allow the address."""
        host = _host_of(disguise)
        if not disguise.address or host is None:
            return set()                    # only a 400 is correct
        request = Request(self.caller, method, host, port)
        by_name = self.judge.judge_name(request)
        if by_name.outcome != OK:
            return {by_name.outcome}
        addresses = disguise.zone[-1] if disguise.zone else (disguise.address,)
        if disguise.kind == "localhost":
            addresses = ("127.0.0.1", "::1")
        outcomes = {self.judge.judge_address(request, address).outcome
                    for address in addresses}
        if self.judge.snapshot.hook is not None and OK not in outcomes:
            outcomes.add("destination_denied")
        return outcomes

    async def ask(self, method: str, host: str, port: int) -> Reply:
        target = f"{host}:{port}" if method == "CONNECT" else f"http://{host}:{port}/"
        head = (f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n"
                "Connection: close\r\n\r\n")
        async with self.places:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(head.encode())
                return Reply(*await asyncio.wait_for(read_reply(reader), PATIENCE))
            except (TimeoutError, OSError, asyncio.IncompleteReadError):
                return Reply(0, "no answer")
            finally:
                writer.close()


def _host_of(disguise: Disguise) -> str | None:
    """The host in the canonical form of the proxy."""
    read = read_target("CONNECT", f"{disguise.host}:443")
    return None if isinstance(read, str) else read[0]


class _Canary:
    """Listens on an address that the proxy must not reach."""

    def __init__(self) -> None:
        self.callers = 0
        self.port = 0

    def sing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers += 1
        writer.close()


@contextlib.asynccontextmanager
async def _canary() -> AsyncIterator[_Canary]:
    canary = _Canary()
    async with await asyncio.start_server(canary.sing, "127.0.0.1", 0) as server:
        canary.port = server.sockets[0].getsockname()[1]
        yield canary


@contextlib.asynccontextmanager
async def _name_server(
    zone: dict[str, tuple[tuple[str, ...], ...]]
) -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(zone), ("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()


def show(results: list[Result]) -> list[str]:
    """A table by kind, the reasons, and a line for each disguise that passed."""
    table: dict[str, Counter[str]] = {}
    for result in results:
        for kind in (result.disguise.kind, "total"):
            row = table.setdefault(kind, Counter())
            row.update((result.column,) if result.column == "opened" else
                       (result.column, "tried"))
    table["total"] = table.pop("total")
    lines = [f"{'':<14}" + "".join(f"{name:>8}" for name in COLUMNS)]
    lines += [f"{kind:<14}" + "".join(f"{row[name]:>8}" for name in COLUMNS)
              for kind, row in table.items()]
    reasons = Counter(
        str(result.reply) for result in results if result.reply is not None)
    lines += [f"{count:>8}  {text}" for text, count in reasons.most_common()]
    lines += [f"PASSED  {result.method} {result.disguise.host} "
              f"({result.disguise.address}): {result.reply}"
              for result in results if result.column == "passed"]
    return lines
