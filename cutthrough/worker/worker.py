"""One worker: everything that serves connections on one event loop.

The same object runs in a process of its own under the supervisor, and embedded in
another program's loop. It is made, started, and ended by `drain` (open work may finish)
or `stop` (now). After either nothing of it is left, which `leaks` shows.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from cutthrough.activity.calls import Calls
from cutthrough.activity.watcher import Watcher
from cutthrough.config.config import Config
from cutthrough.config.values import show_address
from cutthrough.exchange.work import Gate
from cutthrough.generation.generation import Generation
from cutthrough.generation.hook import Tally
from cutthrough.generation.resolver import make_resolver
from cutthrough.generation.tracker import make_tracker
from cutthrough.log.accesslog import AccessLog
from cutthrough.net import buffers, pipes, sends
from cutthrough.net.acceptor import Acceptor
from cutthrough.net.interfaces import Interfaces, own_hosts
from cutthrough.net.listener import BACKLOG, begin, bound_address
from cutthrough.net.poller import Poller
from cutthrough.net.tls.ticket_keys import TicketKeys
from cutthrough.policy.known import Known
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.snapshot import HostAddresses
from cutthrough.process.checks_page import ChecksPage
from cutthrough.process.descriptors import last_descriptor
from cutthrough.process.work_pool import make_pool
from cutthrough.session.accept import ConnectionSink, SocketFacts, close_all, close_idle
from cutthrough.session.judge.under_way import recheck
from cutthrough.session.model.charge import renew_limits
from cutthrough.session.model.client import Journal
from cutthrough.session.model.context import Context
from cutthrough.session.model.counters import Page
from cutthrough.session.model.entrance import Admission, Entrance
from cutthrough.session.model.flight_recorder import FlightRecorder
from cutthrough.session.model.idle_pool import IdlePool
from cutthrough.session.model.origin_streams import Carriers
from cutthrough.session.model.shed import count_listed
from cutthrough.session.ways.dials import make_room_for_question
from cutthrough.session.ways.local import LocalOrigin, set_local_origins
from cutthrough.tape.observer import Capture
from cutthrough.tape.ring import Ring
from cutthrough.verify.hash_pool import HelperPool, ThreadPool
from cutthrough.verify.verifier import Verifier
from cutthrough.worker.gauges import Gauges
from cutthrough.worker.journals import Tracer
from cutthrough.worker.parent_checks import ParentChecks
from cutthrough.worker.parent_rows import ParentRows
from cutthrough.worker.parent_standby import ParentStandby
from cutthrough.worker.parts import Parts
from cutthrough.worker.recordings import Recordings
from cutthrough.worker.tally import RuleTally
from cutthrough.worker.tls_interception import TlsInterception
from cutthrough.worker.tls_listeners import TlsListeners
from cutthrough.worker.tls_parents import TlsParents
from cutthrough.worker.transaction import Transaction

log = logging.getLogger("cutthrough")

# While draining: seconds between two looks whether connections are left
LOOK_AGAIN = 0.02

# … and seconds that a connection may be idle before it is closed: a request that was on
# its way when the drain began is still answered, as the connection's last
LAST_REQUEST = 1.0

# Seconds between two checks of tunnels for expired users
RECHECK = 0.5


class TunnelGiver(Protocol):
    """Gives this worker's tunnels to another one; see handover."""

    def supersede(self) -> None: ...


class TunnelTaker(Protocol):
    """Takes tunnels of another worker over; see handover."""

    @property
    def is_open(self) -> bool: ...
    def on_readable(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Pages:
    """A worker's views of the memory that processes share; by default its own.

    `counters`: PAGE_BYTES bytes, writable; None: no other process reads them. `ledger`:
    of limits; `known`: of verified credentials. `ring`: for captured requests; None:
    nothing is captured.
    """

    counters: memoryview | None = None
    ledger: Ledger = field(default_factory=Ledger)
    known: Known = field(default_factory=Known)
    ticket_keys: TicketKeys | None = None
    checks: ChecksPage = field(default_factory=ChecksPage)
    ring: Ring | None = None


class Worker:
    """Serves `listeners` by `generation`. `numbers`: of each socket, its number in
    `config.all_listeners`; (): they are in that order.

    `pages`: None: it shares none. `helpers`: it may start processes, for hashes and
    content. `must_log`: it does not start without its access log; else the log is
    opened as soon as it can be.
    """

    def __init__(
        self,
        generation: Generation,
        pages: Pages | None = None,
        *,
        slot: int,
        listeners: Sequence[socket.socket],
        numbers: Sequence[int] = (),
        helpers: bool = False,
        must_log: bool = True,
    ) -> None:
        self.generation = generation
        self._pages = pages = pages or Pages()
        self.slot = slot
        self._listeners = listeners
        self._numbers = numbers or range(len(listeners))
        self._own = generation.config.all_listeners
        # Addresses that are no destinations (R20); a path is none anyway
        self._bound = [sock.getsockname()[:2] for sock in listeners
                       if sock.family != socket.AF_UNIX]
        self.capture = Capture(pages.ring, slot) if pages.ring is not None else None
        self._helpers = helpers
        self._must_log = must_log
        self._acceptors: list[Acceptor] = []
        self.log: AccessLog | None = None
        self._is_open = False               # it has parts to be closed
        self._running = False               # it accepts, or drains
        self._gauges: Gauges | None = None
        self._interfaces: Interfaces | None = None
        self._timer: asyncio.TimerHandle | None = None      # of the next recheck
        # `at_end` is called before the connections end. The others belong to handover:
        # tunnels given to another worker, tunnels in transit there, giver, takers
        self.at_end: list[Callable[[], None]] = []
        self.given_away = self.in_transit = 0
        self.giver: TunnelGiver | None = None
        self.takers: list[TunnelTaker] = []

    @property
    def config(self) -> Config:
        return self.generation.config

    async def start(self) -> None:
        """Begins to accept. Raises as `open`."""
        self.open()
        self.begin()

    def open(self) -> None:
        """Makes everything, and accepts nothing yet. Raises OSError if the access log
        cannot be opened, and ValueError if the generation cannot be compiled."""
        with contextlib.ExitStack() as undo:
            self._open(undo)
            undo.pop_all()

    def _open(self, undo: contextlib.ExitStack) -> None:
        """`undo` closes what has been made, if the rest cannot be."""
        config, pages = self.config, self._pages
        loop = asyncio.get_running_loop()
        self.poller = Poller()
        undo.callback(self.poller.detach)
        self.page = Page(pages.counters)
        if config.access_log != "off":
            self.log = AccessLog(
                loop, config.access_log, config.access_log_format, self.slot,
                self._must_log)
            undo.callback(self.log.close)
        self.resolver = make_resolver(loop, config, self.generation.policy.code)
        tracker = make_tracker(config, self.generation.policy.code)
        self.watcher = None if tracker is None else Watcher(
            Calls(tracker, loop), self.slot, loop)
        if self.watcher is not None:
            undo.callback(self.watcher.close)
        make_hashers = HelperPool if self._helpers else ThreadPool
        self.verifier = Verifier(
            loop,
            make_hashers(loop, config.auth_threads),
            config.auth_queue,
            pages.known,
            observe=self.page.observe_auth,
        )
        undo.callback(self.verifier.close)
        self.idle_pool = IdlePool(
            config.upstream_idle,
            config.upstream_idle_per_origin,
            config.upstream_idle_timeout,
            last_fd=last_descriptor(),
        )
        self.context = self._make_context()
        self.resolver.on_shortage = partial(make_room_for_question, self.context)
        self._carriers = self.context.carriers = Carriers(self.idle_pool)
        self.gate = Gate(make_pool(self._helpers))
        undo.callback(self.gate.close)
        self.recordings = Recordings(
            self.context, os.getppid() if self._helpers else 0, pages.ring, self.gate,
            self.slot)
        self._hosts = HostAddresses(own_hosts())
        self.tally = Tally(self.gate.memory)
        self.parts = self._make_parts()
        undo.callback(self.parts.close)
        self.parts.prepare(self.generation).commit()
        self.poller.attach(loop, self._on_fault)
        self._is_open = True

    def _make_context(self) -> Context:
        config = self.config
        journal = self.log or Journal()
        if config.flight_recorder:
            journal = Tracer(journal, self.slot)
        context = Context(
            poller=self.poller,
            idle_pool=self.idle_pool,
            journal=journal,
            page=self.page,
            resolver=self.resolver,
            origin="" if config.origins else config.origin.removeprefix("http://"),
            via="" if config.via == "off" else config.via,
        )
        context.worker = self.slot
        context.verifier = self.verifier
        context.recorder = FlightRecorder(config.flight_recorder)
        context.pacs = [None] * len(self._own)
        return context

    def _make_parts(self) -> Parts:
        pages = self._pages
        keys = pages.ticket_keys or (TicketKeys() if self.generation.tls else None)
        checks = ParentChecks(self.context, pages.checks)
        return Parts(
            listeners=self._own, bound=self._bound, context=self.context,
            hosts=self._hosts, known=pages.known, ledger=pages.ledger,
            idle_pool=self.idle_pool, carriers=self._carriers, verifier=self.verifier,
            tls=TlsListeners(self._own, keys),
            interception=TlsInterception(), tls_parents=TlsParents(),
            rows=ParentRows(self.page, self.context.parents, checks.results),
            by_rule=RuleTally(self.page, self.slot),
            checks=checks, standby=ParentStandby(self.context, self.poller),
            recordings=self.recordings, capture=self.capture,
            watcher=self.watcher, tally=self.tally, gate=self.gate)

    def begin(self) -> None:
        """Begins to accept, after `open`."""
        for sock, n in zip(self._listeners, self._numbers, strict=True):
            begin(sock, self.config.all_listeners[n].backlog or BACKLOG)
        for sock, n in zip(self._listeners, self._numbers, strict=True):
            sink = self._make_sink(sock, n)
            self._acceptors.append(Acceptor(self.poller, sock, sink))
        self._interfaces = Interfaces(
            asyncio.get_running_loop(), self._hosts.set, own_hosts)
        self._gauges = Gauges(self.page, self.parts, self.resolver, self.log)
        self._running = True
        self._recheck()

    def _make_sink(self, sock: socket.socket, number: int) -> ConnectionSink:
        listener = self.config.all_listeners[number]
        shown = show_address(bound_address(sock))
        entrance = Entrance(
            listener.protocols, udp=listener.udp, admission=Admission(
                listener.auth == "required", listener.auth_none_from, listener.user),
            transparent=listener.transparent, senders=listener.proxy_protocol_from,
            believed=listener.forwarded_from, host_strict=listener.host_strict)
        sink = ConnectionSink(
            self.context, self.page.add_listener(shown), entrance=entrance,
            facts=SocketFacts(shown if listener.is_path else "",
                              listener.proxy_protocol, listener.tcp_fingerprint),
            pac=number + 1, plain_too="tls" in listener.protocols)
        if (tls := self.parts.tls.numbers[number]) >= 0:
            sink.set_tls(tls)
        self.parts.sinks.append((number, sink))
        return sink

    def prepare(self, generation: Generation) -> Transaction:
        """Makes everything that a reload needs, and changes nothing.

        Raises ValueError if the generation cannot be compiled here. The caller commits
        or discards the result.
        """
        return self.parts.prepare(generation)

    def commit(self, transaction: Transaction) -> None:
        """Applies the options that a running worker can change; requests keep the
        generation that they began with, but for their limits."""
        if self._running:
            transaction.commit()
            self.generation = transaction.generation
            self._recheck()                 # finds the limits that rules name now
            renew_limits(self.context)
        else:
            transaction.discard()

    def swap(self, generation: Generation) -> None:
        """Both at once. Raises ValueError, or RuntimeError if the worker does not run;
        then nothing has changed (R73)."""
        if not self._running:
            raise RuntimeError("nothing serves any more that could change")
        self.commit(self.prepare(generation))

    def set_local_origins(self, origins: Mapping[str, LocalOrigin] | None) -> None:
        """Has requests to these destinations (`host:port`) answered by these functions.

        Each is called with a socket that it owns (session.ways.local). None: none are.
        Raises ValueError if it is no destination.
        """
        set_local_origins(self.context, origins)

    def _recheck(self) -> None:
        """Cuts tunnels that the policy no longer allows: now, and every RECHECK seconds
        if a user has an expiry date."""
        if not self._running:
            return
        recheck(self.context)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if any(user.expires for user in self.generation.policy.users.values()):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(RECHECK, self._recheck)

    def _on_fault(self, fault: BaseException) -> None:
        faults = self.poller.faults
        if faults & (faults - 1) == 0:  # the 1st, 2nd, 4th, 8th …: never a flood
            log.error(
                "a connection was ended by an internal error (%d so far)",
                faults,
                exc_info=fault,
            )

    def reopen_log(self) -> None:
        """Opens the access log again, after it was renamed."""
        if self.log is not None:
            self.log.reopen()

    async def drain(self, timeout: float) -> int:
        """Stops accepting, lets open work finish for `timeout` seconds, and ends.

        Returns the number of busy connections that were cut.
        """
        if not self._running:
            return 0
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self._stop_accepting()
        busy = self.context.busy + self.in_transit + self.given_away
        self.context.start_draining()
        self.parts.standby.close()
        close_idle(self.context, LAST_REQUEST)
        while self._running and loop.time() < deadline and (
                self.context.live or self.in_transit):
            await asyncio.sleep(LOOK_AGAIN)
            close_idle(self.context, LAST_REQUEST)
        cut = self._end("drained")
        self.page.add("drain_finished", max(0, busy - cut - self.given_away))
        await asyncio.gather(self.recordings.settle(), self.resolver.close())
        if self.watcher is not None:
            await self.watcher.calls.settle()
        return cut

    def stop(self) -> int:
        """Ends everything now. Idempotent. Returns the number of connections cut."""
        return self._end("stopped")

    def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.stop()
        self._acceptors.clear()

    def _end(self, outcome: str) -> int:
        if not self._is_open:
            return 0
        self._is_open = self._running = False
        for call in self.at_end[:]:
            call()
        if self._timer is not None:
            self._timer.cancel()
        self._stop_accepting()
        self.parts.close()
        cut = close_all(self.context, outcome)
        if self.watcher is not None:
            self.watcher.close()
        self.recordings.end()
        if self.context.rate_queue is not None:
            self.context.rate_queue.end()
        self.gate.close()
        if self.log is not None:
            self.log.close()
        if self._gauges is not None:
            self._gauges.stop()
        if self._interfaces is not None:
            self._interfaces.close()
        self.verifier.close()
        self.idle_pool.clear()
        self._carriers.clear()
        pipes.close_free()
        self.parts.release()
        self.poller.detach()
        sends.turn_off()
        return cut

    def leaks(self) -> dict[str, int]:
        """Returns the resources in use; all are zero when every connection has ended.

        Blocks and pipes are counted for the process, the rest for this worker.
        """
        blocks = buffers.stats()
        return {
            "sessions": self.context.live,
            "streams": self.poller.registered
            - self.context.live
            - len(self._acceptors)
            - self.idle_pool.idle
            - self._carriers.held
            - self.parts.standby.held,
            **{f"{size}_blocks": blocks[f"{size}_blocks"] for size in buffers.SIZES},
            "places": count_listed(self.context),
            "pipes": pipes.stats()["in_use"],
            "timers": self.poller.timers - self.idle_pool.idle - self.parts.standby.held
            - self._carriers.held,
            "limits": self.parts.ledger.held(),
            "heads": self.log.remembered if self.log is not None else 0,
        }
