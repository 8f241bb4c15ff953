"""A worker whose clients and origins are in this process: a session is a script.

    client sends ─> the session reads, judges, asks for a name, dials ─> origin sends …

The worker is the real one, with its generation, policy, access log and idle pool. Only
three things of it are the test's: its sockets are rows of tests/doors/scripted.pyx, its
poller turns when a test waits for something, and time stands still, except where a test
lets it pass. So a deadline costs no time, and other work on the machine changes
nothing.

Clients and origins are in tests.support.scripted_peers. An origin's script is a
generator. It yields the read that it waits for, and gets its result. A send that is
yielded waits until the session has read all before it:

    def script(conn):
        request = yield conn.read_request
        conn.send(OK)
        assert (yield conn.read_exact, 4) == b"body"

Without a script the test itself plays the origin, by `origin.connections`.
"""

import asyncio
import contextlib
import errno
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cutthrough
from cutthrough.net.address import Addresses
from tests.doors import scripted as door
from tests.support.client import PASSWORD, USER, Client
from tests.support.lines import read_line
from tests.support.proxy import seen_labels
from tests.support.scripted_peers import Connection, Origin, Script, Wire, okay
from tests.support.stream import TIMEOUT, Stream

#: Bytes of a send that come alone if they come one by one; those behind them in PIECES
MOST_ALONE = 3000
PIECE = 9973
#: A client's port, and one that an origin listens on
FIRST_PORT = 20_000
FIRST_ORIGIN = 8000
#: More turns than any case takes: a session that goes round in a circle
MOST_TURNS = 1_000_000


class Names:
    """The resolver: every name of `table` has these addresses, others have none. If it
    `is_slow`, answers come in a later turn; a name of `silent` has no answer."""

    def __init__(self) -> None:
        self.table: dict[str, tuple[str, ...]] = {"localhost": ("127.0.0.1",)}
        self.silent: set[str] = set()
        self.is_slow = False
        self.asked: list[str] = []
        self._waiting: dict[object, Callable[[], None]] = {}

    def cached(self, host: bytes) -> Addresses | None:
        addresses = self.table.get(host.decode())
        if self.is_slow or addresses is None:
            return None
        return Addresses(addresses)

    def resolve(self, host: bytes, callback: Callable[[object], None],
                asker: bytes = b"", token: object = None, port: int = 0,
                user: bytes | None = None) -> None:
        name = host.decode()
        self.asked.append(name)
        if name not in self.silent:
            addresses = self.table.get(name)
            self._waiting[token] = partial(
                callback, Addresses(addresses) if addresses else "dns_not_found")

    def abandon(self, token: object) -> None:
        self._waiting.pop(token, None)

    def answer(self) -> bool:
        """Answers all that was asked. False: nothing was."""
        waiting, self._waiting = self._waiting, {}
        for call in waiting.values():
            call()
        return bool(waiting)


class Network:
    """What is around the workers of a test: origins, names, and time. Entered once."""

    def __init__(self, bytewise: bool = False) -> None:
        """`bytewise`: what clients and origins send comes byte by byte, and names and
        connections take a turn."""
        self.bytewise = bytewise
        self.names = Names()
        self.names.is_slow = bytewise
        self.stages: list[Stage] = []
        self.origins: dict[tuple[str, int], Origin] = {}
        #: Of a host and a port: an errno, or EINPROGRESS for ever
        self.dials: dict[tuple[str, int], int] = {}
        self.ports = iter(range(FIRST_ORIGIN, 1 << 16))
        self._conns: dict[door.Peer, Connection] = {}
        self._fresh: list[Connection] = []
        self._is_held = self._is_settling = False

    def __enter__(self) -> "Network":
        door.stop_clock()
        door.set_network(self._dial)
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            for client in [client for stage in self.stages for client in stage.clients]:
                client.sock.reset()
            for conn in self._conns.values():
                conn.sock.reset()
            self.settle()
            for stage in self.stages:
                stage.end(exc[0] is None)
        finally:
            door.set_network(None)
            door.start_clock()

    def origin(self, script: Script | None = okay, host: str = "127.0.0.1",
               window: int = -1, queue: int = -1) -> Origin:
        return Origin(self, script, host, window, queue)

    def silence(self, host: str, port: int) -> str:
        """Nothing answers there. Returns the authority."""
        self.dials[host, port] = errno.EINPROGRESS
        return f"{host}:{port}"

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """All that clients and origins do in the block is there at the next turn."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.settle()

    def _dial(self, host: str, port: int) -> "door.Peer | int":
        how = self.dials.get((host, port), 0)
        origin = self.origins.get((host, port))
        if how == errno.EINPROGRESS:
            return door.Peer(host, port, is_connected=False)
        if how or origin is None:
            return how or errno.ECONNREFUSED
        peer = door.Peer(host, port, is_connected=not self.bytewise)
        peer.window, peer.queue = origin.window, origin.queue
        conn = self._conns[peer] = Connection(Wire(self, peer), origin)
        origin.connections.append(conn)
        self._fresh.append(conn)
        return peer

    def split(self, data: bytes) -> Iterator[bytes]:
        if not self.bytewise:
            yield data
            return
        for at in range(min(len(data), MOST_ALONE)):
            yield data[at:at + 1]
        for at in range(MOST_ALONE, len(data), PIECE):
            yield data[at:at + PIECE]

    # --- turns and time

    def turn(self) -> bool:
        """Turns while a poller has something to do. False: none had."""
        for turns in range(MOST_TURNS):
            went_on = [door.turn(stage.worker.poller) for stage in self.stages
                       if not self._is_held]
            if not any(went_on):
                return turns > 0
        raise AssertionError("a session that never rests")

    def settle(self) -> bool:
        """The same, and names and origins answer, until all wait for something."""
        went_on = False
        if self._is_settling or self._is_held:      # a script's own send, or at_once
            return self.turn()
        self._is_settling = True
        try:
            while self._go_on():
                went_on = True
        finally:
            self._is_settling = False
        return went_on

    def _go_on(self) -> bool:
        return self.turn() | self._connect() | self.names.answer() | self._play()

    def _connect(self) -> bool:
        fresh, self._fresh = self._fresh, []
        for conn in fresh:
            conn.sock.peer.connect()
            conn.go_on()
        return bool(fresh)

    def _play(self) -> bool:
        changed = [self._conns[peer] for peer in door.take_changed()
                   if peer in self._conns]
        for conn in changed:
            conn.go_on()
        return bool(changed)

    def pass_next(self, most_ms: int) -> int:
        """Lets time pass up to the next deadline. Returns the milliseconds."""
        pollers = [stage.worker.poller for stage in self.stages]
        waits = [ms for poller in pollers if (ms := door.next_in_ms(poller)) >= 0]
        passed = min([most_ms, *waits])
        door.move_clock(passed)
        for poller in pollers:
            door.turn(poller, must=True)
        self.settle()
        return passed

    def pass_time(self, seconds: float) -> None:
        left_ms = round(seconds * 1000)
        self.settle()
        while left_ms > 0:
            left_ms -= self.pass_next(left_ms)


class Stage:
    """One worker and its clients, with the methods of tests.support.proxy.Proxy that
    need no process."""

    def __init__(self, folder: Path, policy: str = "", **options: object) -> None:
        """`policy`: a file's text."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / "access.log"
        self.policy = folder / "policy.toml"
        usual: dict[str, Any] = {
            "user": USER, "password": PASSWORD, "via": "test-proxy",
            "collect_sends": "off", "access_log": str(self.log_path),
            "access_log_format": "json"}
        if policy:
            self.policy.write_text(textwrap.dedent(policy))
            usual["policy"] = str(self.policy)
        self.clients: list[Client] = []
        self._mark = 0
        self._loop = asyncio.new_event_loop()
        self._proxy = cutthrough.serve(**usual | options)
        self._loop.run_until_complete(self._proxy.__aenter__())
        self.worker = self._proxy.worker
        self.port = self._proxy.port
        ((_, self._sink),) = self.worker.parts.sinks
        door.take_over(self.worker.context)

    def enter(self, network: Network) -> "Stage":
        """For one test."""
        self.network = network
        network.stages.append(self)
        door.set_resolver(self.worker.context, network.names)
        self.mark()
        return self

    def end(self, is_sound: bool) -> None:
        """What the test opened is closed. `is_sound`: else nothing is checked."""
        self.log()
        self.worker.idle_pool.clear()
        self.clients.clear()
        left = {kind: n for kind, n in self.worker.leaks().items() if n}
        assert not is_sound or not left, left
        assert not is_sound or self.worker.poller.faults == 0

    def close(self) -> None:
        self._loop.run_until_complete(self._proxy.__aexit__(None, None, None))
        self._loop.close()

    def client(self, host: str = "127.0.0.1", window: int = -1,
               queue: int = -1) -> Client:
        """A connection to the proxy. `window`, `queue`: see the door's Peer."""
        peer = door.Peer(host, FIRST_PORT + len(self.clients))
        peer.window, peer.queue = window, queue
        client = Client.__new__(Client)
        # A Wire has what a Stream calls of a socket, and is none
        Stream.__init__(client, Wire(self.network, peer))       # type: ignore[arg-type]
        self.clients.append(client)
        door.accept(self._sink, peer)
        return client

    # --- the log

    def lines(self) -> list[str]:
        self.network.settle()
        assert self.worker.log is not None
        self.worker.log.flush()
        return self.log_path.read_text().splitlines()[self._mark:]

    def log(self, **wanted: object) -> list[dict[str, Any]]:
        records = [read_line(line) for line in self.lines()]
        seen_labels.update(record["reason"] for record in records)
        return [r for r in records if all(r.get(k) == v for k, v in wanted.items())]

    def wait_log(self, n: int = 1, **wanted: object) -> list[dict[str, Any]]:
        """Lets time pass until there are n records with these values."""
        left_ms = int(TIMEOUT * 1000)
        while len(records := self.log(**wanted)) < n:
            assert left_ms > 0, f"{n} records with {wanted}: {self.lines()}"
            left_ms -= self.network.pass_next(left_ms)
        return records

    def wait_reason(self, label: str, **wanted: object) -> dict[str, Any]:
        return self.wait_log(1, reason=label, **wanted)[0]

    def mark(self) -> None:
        self._mark = 0
        self._mark = len(self.lines())


def options_of(flags: tuple[str, ...], config: str = "") -> dict[str, Any]:
    """Flags of the command line, each with a value, and a configuration file's text."""
    options: dict[str, Any] = tomllib.loads(config)
    words = iter(flags)
    for word in words:
        name, mark, value = word.removeprefix("--").partition("=")
        options[name.replace("-", "_")] = value if mark else next(words)
    return options


def splits_of(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The data in two pieces, at each place."""
    for at in range(1, len(data)):
        yield data[:at], data[at:]
