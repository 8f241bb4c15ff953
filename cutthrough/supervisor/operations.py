"""Operators' access to the supervisor, through the admin listener if there is one.

The listener's address is bound before any worker starts, because the workers must know
it: it is refused as a destination (R39). A program listens on it at once, except in an
upgrade: then the previous program answers until the new one serves.
"""

import asyncio
import mmap
import os
import time
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from cutthrough.bundle.manifest import NO_LABEL
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.settings import Setting, render
from cutthrough.config.values import show_address, show_count
from cutthrough.generation.ca_certificate import CaCertificate
from cutthrough.generation.effective import group_by_address, show_effective
from cutthrough.generation.generation import Generation
from cutthrough.generation.interception import authority_expiry, client_certificates
from cutthrough.generation.tls_files import expiries
from cutthrough.log.stderr import say, use_form
from cutthrough.outcome import TABLE
from cutthrough.process.cpus import count_workers
from cutthrough.process.descriptors import most_connections
from cutthrough.storage.settings import Recordings, recordings_of
from cutthrough.supervisor.banner import announce_more
from cutthrough.supervisor.capture_writer import CaptureWriter
from cutthrough.supervisor.children import Child, Slot
from cutthrough.supervisor.fleet_register import Condition, FleetRegister
from cutthrough.supervisor.flow_queries import FlowQueries
from cutthrough.supervisor.inherited_pages import InheritedPages
from cutthrough.supervisor.inquiry import Inquiry
from cutthrough.supervisor.limits_page import LimitsPage
from cutthrough.supervisor.listeners import Listeners

if TYPE_CHECKING:
    from cutthrough.admin.metrics import Reading
    from cutthrough.admin.server import AdminServer
    from cutthrough.supervisor.reload import Reloads

# Endings that are not failures
NOT_FAILURES = frozenset(row.label for row in TABLE if not row.fault)


class Program(Protocol):
    """The part of the supervisor that Operations uses."""

    slots: list[Slot]
    children: dict[int, Child]
    counters: int
    limits: LimitsPage
    listeners: Listeners
    generation: Generation
    inquiry: Inquiry
    flow_queries: FlowQueries
    pages: InheritedPages
    capture: CaptureWriter

    @property
    def state(self) -> Enum: ...
    @property
    def reloads(self) -> "Reloads": ...
    def drain(self) -> None: ...


class Operations:
    """Implements admin.Operations for `program`. `is_successor`: it replaces a program
    that still serves."""

    def __init__(self, program: Program, is_successor: bool) -> None:
        self._program = program
        self._is_successor, self._is_succeeded = is_successor, False
        self._admin: AdminServer | None = None
        self._address = "off"                # the configured address
        self._pending: AdminServer | None = None
        self._committed_at, self._started_at = 0.0, time.time()
        self._expiries_of: tuple[int, tuple[dict[str, int], dict[str, int]]] = (
            0, ({}, {}))                     # generation, and by file
        self._reloads = {"ok": 0, "refused": 0, "late": 0}     # by result
        self._is_last_in_force = True        # the last requested reload is in force
        self._served = False
        self._register = FleetRegister(self._condition)
        self._tasks: set[asyncio.Task[None]] = set()

    # The listener

    def open(self, config: Config) -> tuple[tuple[str, int], ...]:
        """Binds the configured address; `commit` puts it in force, `withdraw` undoes
        it. Returns the addresses refused as destinations, `own` of the generation.
        Raises OSError and ConfigError."""
        admin = self._admin
        if config.admin != self._address:
            self._pending = admin = self._make(config)
        return admin.own if admin is not None else ()

    def commit(self, config: Config) -> None:
        """Puts the configuration that was `open`ed last in force."""
        if config.admin != self._address:
            if self._admin is not None:
                self._run(self._close_when_answered(self._admin))
            self._admin, self._pending = self._pending, None
            self._address = config.admin
            if self._admin is not None and not self._is_successor:
                self._run(self._admin.start())
            if self._served:
                self._announce()
        if self._admin is not None:
            self._admin.configure(config.admin_token, config.admin_tokens,
                                  config.admin_names)
        self._program.limits.commit(self._program.generation)
        self._program.pages.tickets.use(self._program.generation.ticket_keys)
        self._program.pages.credentials.share(config)
        self._register.commit(config)
        use_form(config.error_log_format)
        if not self._committed_at:
            self._committed_at = time.time()

    def withdraw(self) -> None:
        """Undoes the last `open`: its configuration is refused."""
        if self._pending is not None:
            self._pending.release()          # now: the next one may have the same path
            self._pending = None

    def _make(self, config: Config) -> "AdminServer | None":
        if config.admin == "off":
            return None
        try:
            from cutthrough.admin.server import AdminServer
        except ImportError as error:
            raise ConfigError("", "admin", f"{error.name} is not installed") from None
        admin = AdminServer(self, self._program.inquiry, config.admin)
        admin.bind(shared=self._is_successor)
        return admin

    def on_serving(self) -> None:
        """Begins to answer operators, because this program serves now."""
        if self._is_successor and self._admin is not None:
            self._admin.listen()             # before the other program stops listening
            self._run(self._admin.start())
        self._is_successor, self._served = False, True
        self._announce()
        self._register.begin()
        announce_more()

    def _announce(self) -> None:
        if self._admin is not None:
            say(f"admin listener on {self._admin.shown}")

    def on_successor(self) -> None:
        """Closes the listener: the new program serves and answers operators. It can
        list this program's connections; this one knows none that it handed over."""
        self._is_succeeded = True            # for who has connected before
        if self._admin is not None:
            self._admin.stop_accepting()
        self._end(self._admin)
        self._admin = None
        self._run(self._register.leave())

    async def _close_when_answered(self, admin: "AdminServer") -> None:
        """Closes the old listener when reloads requested through it are answered."""
        await self._program.reloads.wait_for_results()
        await admin.close()

    def _end(self, admin: "AdminServer | None") -> None:
        if admin is not None:
            self._run(admin.close())

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Closes the listener, and prints the account."""
        self.withdraw()
        self.on_successor()
        self._run(self._program.pages.credentials.leave())
        await self._program.limits.leave()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._served:
            say(self.account())

    def account(self) -> str:
        """Returns one line about everything that the program served."""
        pages = self._read_pages()
        total = {name: sum(page.get(name, 0) for page in pages)
                 for page in pages for name in page}
        ends = {name.removeprefix("outcome:"): count for name, count in total.items()
                if name.startswith("outcome:") and count}
        failures = ", ".join(
            f"{label} {count}" for label, count in sorted(
                ends.items(), key=lambda item: -item[1])
            if label not in NOT_FAILURES) or "none"
        lost = total.get("log_dropped", 0)
        return (f"served {show_count(total['requests'], 'request')} and "
                f"{show_count(total['tunnels'], 'tunnel')}, "
                f"{total['bytes_up']} bytes up and {total['bytes_down']} down, "
                f"at most {show_count(total['peak'], 'connection')} at a time; "
                f"failures: {failures}"
                + (f"; {show_count(lost, 'line')} of the access log lost" if lost
                   else ""))

    # Events that the supervisor reports

    def on_reload(self, result: str, in_force: bool) -> None:
        """Counts a reload by its result; "": a late one is in force now."""
        if result:
            self._reloads[result] += 1
        self._is_last_in_force = in_force
        if in_force:
            self._committed_at = time.time()

    # What the listener calls

    def is_serving(self) -> bool:
        return self._program.state.name == "SERVING"

    def is_ready(self) -> bool:
        """Is there a worker that accepts connections, here or in the new program? If
        all die again and again, there is none."""
        return self._is_succeeded or (self.is_serving() and any(
            child.ready and not child.retired
            for child in self._program.children.values()))

    async def reload(self) -> tuple[str, str]:
        reload = self._program.reloads.request()
        await reload.over.wait()
        return reload.result, reload.line

    def drain(self) -> None:
        if self.is_serving():                # a second drain would stop at once
            self._program.drain()

    def read_counters(self) -> "Reading":
        from cutthrough.admin.metrics import Configuration, Expiries, Reading

        pages, slots = self._read_pages(), self._program.slots
        return Reading(
            pages,
            living={child.pid: pages[child.page]
                    for child in self._program.children.values() if child.ready},
            workers={slot.index: slot.current.pid if slot.current is not None else 0
                     for slot in slots},
            deaths={slot.index: slot.deaths for slot in slots},
            configuration=Configuration(self._in_force(), self._committed_at,
                                        self._reloads, self._is_last_in_force),
            fleet=self._program.limits.fleet_state(), registry=self._register.state(),
            bundle=self._program.reloads.bundles.state(),
            expiries=Expiries(*self._expiries()),
            captures=self._program.capture.counts(),
            traces=(self._program.capture.traced()
                    if self._program.generation.config.trace_url else (0, 0)))

    def _condition(self) -> Condition:
        return Condition(
            self._program.state.name.lower(), self._started_at,
            self._admin.shown if self._admin is not None else "", self._in_force(),
            self._program.generation, self.read_counters())

    def _expiries(self) -> tuple[dict[str, int], dict[str, int]]:
        """When each certificate expires, and each authority of ours; read again if the
        generation has changed."""
        generation = self._program.generation
        if self._expiries_of[0] != generation.number:
            offered = generation.ca_certificate
            self._expiries_of = generation.number, (
                expiries(generation.config, generation.tls, generation.parent_files)
                | {certificate.name: certificate.not_after
                   for certificate in client_certificates(generation.interception)},
                ({} if offered is None else {offered.path: offered.not_after})
                | authority_expiry(generation.config, generation.interception))
        return self._expiries_of[1]

    @property
    def flows(self) -> FlowQueries:
        return self._program.flow_queries

    def ca_certificate(self) -> CaCertificate | None:
        return self._program.generation.ca_certificate

    def recording_directory(self) -> str:
        return self._program.generation.config.recording_directory

    def recording_url(self) -> str:
        return self._program.generation.config.recording_url

    def recording_session(self) -> str:
        return self._program.generation.config.recording_session

    def recordings(self) -> Recordings:
        generation = self._program.generation
        return recordings_of(generation.config, generation.policy)

    def _in_force(self) -> int:
        """The oldest generation in force in any worker."""
        return min((child.generation for child in self._program.children.values()
                    if child.ready), default=self._program.generation.number)

    def _read_pages(self) -> list[Mapping[str, int]]:
        from cutthrough.session.model.counters import PAGE_BYTES, read_page

        fd = self._program.counters
        size = os.fstat(fd).st_size
        if not size:
            return []
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory, \
                memoryview(memory) as view:
            pages: list[Mapping[str, int]] = []
            for start in range(0, size, PAGE_BYTES):
                with view[start:start + PAGE_BYTES] as page:
                    pages.append(read_page(page))
            return pages

    def describe(self) -> dict[str, Any]:
        """Returns the facts for the live page. Times are in seconds of the epoch;
        `max_connections` is of all workers together."""
        generation = self._program.generation
        config = generation.config
        most = (config.max_connections or most_connections()) * count_workers(config)
        # A program that drains has none any more
        listeners = zip(config.all_listeners, self._program.listeners.bound(),
                        strict=False)
        return {
            "pid": os.getpid(), "started": self._started_at,
            "state": self._program.state.name.lower(),
            "generation": self._in_force(), "since": self._committed_at,
            "max_connections": min(most, config.max_connections_total or most),
            "captures": bool(config.capture_database),
            "recordings": bool(config.recording_directory or config.recording_url),
            "listeners": [
                {"address": show_address(address), "auth": listener.auth,
                 "http": "http" in listener.protocols,
                 "protocols": listener.protocols, "tls": bool(listener.certificates)}
                for listener, address in listeners]}

    def show_config(self) -> str:
        source = f"generation {self._program.generation.number}"
        config = self._program.generation.config
        settings = {name: Setting(getattr(config, name), source, name)
                    for name in config.__struct_fields__}
        groups = group_by_address(self._program.listeners.all())
        label = self._program.generation.bundle
        first = f"# bundle {label}\n" if label != NO_LABEL else ""
        return first + render(settings) + show_effective(config, groups)
