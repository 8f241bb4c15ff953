"""Workers in one loop; one of them hands its tunnels over to the others."""

import asyncio
import socket
from collections.abc import Callable

import msgspec

from cutthrough.config.config import Config
from cutthrough.config.settings import from_options
from cutthrough.generation.generation import Generation
from cutthrough.net.listener import listen
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.shared_table import create
from cutthrough.policy.source import Limits, Policy
from cutthrough.worker.handover import Giver, Taker
from cutthrough.worker.worker import Pages, Worker
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.lines import read_line
from tests.support.origin import Origin
from tests.support.wait import PATIENCE

LIMITED = Policy(limits={"default": Limits(
    connections=100, tunnels=100, bytes_per_day=1 << 40, bytes_per_second=1 << 30,
    tunnel_bytes_per_second=1 << 29)})


class Pair:
    """A worker with tunnels, one that receives them, a third that starts later, and the
    page that they share."""

    def __init__(self, tmp_path, policy: Policy | None, newer: Policy | None,
                 **options: object) -> None:
        self.log = tmp_path / "access.log"
        self.config: Config = from_options(
            None, user=USER, password=PASSWORD,
            access_log=str(self.log), access_log_format="json",
            max_connections_total=100, max_connections_per_client=100,
            **{"listen": "127.0.0.1:0", **options})
        self.listeners = listen(("127.0.0.1", 0))
        self.page = create(3)
        first = Generation(1, self.config, policy or Policy())
        second = msgspec.structs.replace(first, policy=newer or first.policy)
        self.old = Worker(first, Pages(ledger=Ledger(self.page, 0)), slot=0,
                          listeners=self.listeners)
        self.new = Worker(second, Pages(ledger=Ledger(self.page, 1)), slot=0,
                          listeners=[])
        self.third = Worker(second, Pages(ledger=Ledger(self.page, 2)), slot=0,
                            listeners=[])
        self.workers = (self.old, self.new, self.third)
        self.told: list[tuple[int, int]] = []
        # Holders that get no more tunnels, and the number in transit at that moment
        self.released: list[tuple[int, int]] = []
        self.pauses: list[int] = []
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.listeners[0].getsockname()[1]

    async def __aenter__(self) -> "Pair":
        for worker in self.workers:
            await worker.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for client in self.clients:
            client.close()
        for worker in self.workers:
            worker.stop()
        for listener in self.listeners:
            listener.close()
        for worker in self.workers:
            await worker.resolver.close()
            left = {kind: n for kind, n in worker.leaks().items() if n}
            assert not left, left

    async def open(self, origin: Origin, n: int = 1, field: str = "") -> list[Client]:
        def dial() -> list[Client]:
            return [self.dial(origin, field) for _ in range(n)]

        clients = await asyncio.to_thread(dial)
        self.clients += clients
        return clients

    def dial(self, origin: Origin, field: str) -> Client:
        client = Client(self.port)
        client.send(build_request("CONNECT", origin.authority, *filter(None, [field]),
                                  host=origin.authority))
        assert client.read_response("CONNECT").status == 200
        return client

    def give(self, sock: socket.socket, holder: int = 1) -> Giver:
        return Giver(self.old, sock, holder, lambda *told: self.told.append(told),
                     lambda: self.released.append((holder, self.old.in_transit)))

    def take(self, sock: socket.socket, worker: Worker | None = None) -> Taker:
        return Taker(worker or self.new, sock, self.pauses.extend)

    async def move(self, holder: int = 1) -> None:
        ours, theirs = pair()
        self.give(ours, holder)
        self.take(theirs)
        await until(lambda: self.told and not self.old.in_transit)

    def sum(self) -> tuple[int, int, int]:
        read = self.old.parts.ledger.read()
        assert read["underflows"] == 0
        return read["connections"], read["of_clients"], read["of_users"]

    def lines(self) -> list[dict]:
        return [read_line(line) for line in self.log.read_text().splitlines()]


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def until(probe: Callable[[], object]) -> None:
    """Waits as tests.support.wait does, while the loop runs."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while not probe():
        assert loop.time() < deadline, "it does not come"
        await asyncio.sleep(0.002)


async def talk(client: Client, text: bytes = b"there and back") -> None:
    def both() -> None:
        client.send(text)
        assert client.read_exact(len(text)) == text

    await asyncio.to_thread(both)
