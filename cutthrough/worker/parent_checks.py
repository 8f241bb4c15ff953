"""The checks of parents and of named origins' servers, at intervals: a connection
through a parent to its `check`, a request for a server's path.

One of the workers makes each check, and all take its result from the page that they
share. While a check fails, the parent is passed over; if it works, its circuit closes.
"""

import asyncio
import collections
import functools
import hashlib
import logging
import random
import time

from cutthrough.config.config import Config
from cutthrough.config.origins import TCP, Server, check_host
from cutthrough.config.parents import Parent as Source
from cutthrough.generation.tls_files import make_checker
from cutthrough.policy.parents import Parent, Standing, Ways
from cutthrough.process.checks_page import KEY_BYTES, ChecksPage
from cutthrough.session.model.context import Context
from cutthrough.session.ways.probe import Probe, ServerProbe
from cutthrough.worker.transaction import Transaction

# Time between two looks at the page
LOOK_S = 0.25
# An interval is longer or shorter by up to this part, so that checks of many programs
# do not come together
JITTER = 0.1
# A claim ends so long after the deadlines of its check
GRACE_MS = 5000

log = logging.getLogger("cutthrough")


class Check:
    """One parent's check, and its row."""

    def __init__(self, source: Source, parent: Parent, key: bytes, row: int) -> None:
        self.source, self.parent, self.key, self.row = source, parent, key, row
        self.seen_ms = 0                     # time of the newest result taken over
        self.probe: Probe | None = None


class ParentChecks:
    """Makes and reads the checks of the parents in force, from the first commit on."""

    def __init__(self, context: Context, page: ChecksPage) -> None:
        self._context = context
        self._page = page
        self._checks: list[Check] = []
        self._limit_ms = 0                   # of the time that a check may take
        self._timer: asyncio.TimerHandle | None = None
        self._tls = -1                       # number of the context of `check_tls`
        # Results of this worker's own checks by (parent, "ok" or "failed")
        self.results: collections.Counter[tuple[str, str]] = collections.Counter()

    def prepare(self, config: Config, ways: Ways | None, transaction: Transaction
                ) -> None:
        """Raises ValueError if the context of `check_tls` cannot be made."""
        sources = {source.name: source for source in config.all_parents}
        limit_ms = GRACE_MS + int(
            1000 * (config.connect_timeout + config.parent_timeout))
        tls_number = self._tls
        checks, unchecked = list[Check](), list[Standing]()
        for parent in ways.parents if ways is not None else ():
            source = sources[parent.name]
            if source.check:
                row = self._page.find(identity(source, sources), now())
                if row < 0:
                    log.warning("%s %s is not checked: there are too many",
                                kind_of(source), source.name)
                    continue
                if source.check_tls and tls_number < 0:
                    tls_number = put_checker(transaction)
                checks.append(Check(source, parent, identity(source, sources), row))
            elif parent.standing is not None:
                unchecked.append(parent.standing)
        transaction.on_commit(self._assign, checks, unchecked, limit_ms, tls_number)

    def _assign(self, checks: list[Check], unchecked: list[Standing], limit_ms: int,
                tls_number: int) -> None:
        self._end()
        self._checks, self._limit_ms, self._tls = checks, limit_ms, tls_number
        for standing in unchecked:
            standing.forget_check()
        if self._checks:
            self._look()

    def _look(self) -> None:
        for check in self._checks:
            row = self._page.read(check.row)
            if row.at_ms > check.seen_ms:
                check.seen_ms = row.at_ms
                assert check.parent.standing is not None
                check.parent.standing.note_check(bool(row.works), row.took_us, now())
            if check.probe is None and self._page.claim(
                    check.row, now(), now() + self._limit_ms):
                probe = self._begin(check)
                check.probe = None if probe.is_over else probe
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self._look)

    def _begin(self, check: Check) -> Probe:
        source, done = check.source, functools.partial(self._on_done, check)
        if isinstance(source, Server):
            return ServerProbe(self._context, check.parent, question_for(source),
                               source.statuses, done)
        return Probe(self._context, check.parent, source.check, done, self._tls,
                     source.check_name)

    def _on_done(self, check: Check, outcome: str, took_us: int) -> None:
        before = self._page.read(check.row)
        worked = bool(before.works) if before.at_ms else True
        # Our own shortage of descriptors says nothing about it
        passed = worked if outcome == "overloaded" else outcome == "ok"
        # Results in a row that speak against its state
        streak = before.streak + 1 if passed != worked else 0
        works = passed if streak >= needed_for(check.source, worked) else worked
        if works != worked:
            streak = 0
            log.warning("%s %s: its check %s", kind_of(check.source),
                        check.source.name,
                        "works again" if works else f"failed: {outcome}")
        self.results[check.source.name, "ok" if outcome == "ok" else "failed"] += 1
        wait = check.source.check_interval * random.uniform(1 - JITTER, 1 + JITTER)
        self._page.report(check.row, check.key, now(), now() + int(wait * 1000),
                          took_us, works, streak)
        check.probe = None

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for check in self._checks:
            if check.probe is not None:
                check.probe.close_now()
                self._page.release(check.row, check.key, now())
        self._checks = []

    def close(self) -> None:
        self._end()
        self._page.close()
        if self._tls >= 0:
            from cutthrough.net.tls import transport as tls

            tls.remove(self._tls)
            self._tls = -1


def kind_of(source: Source) -> str:
    return "origin" if isinstance(source, Server) else "parent"


def needed_for(source: Source, worked: bool) -> int:
    """Results in a row that change its state; each one of a parent's does."""
    if not isinstance(source, Server):
        return 1
    return source.check_failures if worked else source.check_successes


def question_for(server: Server) -> bytes:
    """The request of its check; b"": a connection is enough."""
    if server.check == TCP:
        return b""
    return (f"GET {server.check} HTTP/1.1\r\nHost: {check_host(server)}\r\n"
            "User-Agent: cutthrough\r\nConnection: close\r\n\r\n").encode()


def put_checker(transaction: Transaction) -> int:
    """The number of the context of `check_tls`."""
    from cutthrough.net.tls import (
        transport as tls,  # here: most configurations need no libssl
    )

    number = tls.put(make_checker())
    transaction.on_discard(tls.remove, number)
    return number


def now() -> int:
    """Milliseconds of the clock that all processes of the host share."""
    return int(time.monotonic() * 1000)


def identity(source: Source, sources: dict[str, Source]) -> bytes:
    """Distinguishes checks: the address and the protocol."""
    digest = hashlib.sha256(f"{source.check} {source.check_name}".encode())
    if isinstance(source, Server):
        digest.update(repr((source.check_status, source.check_failures,
                            source.check_successes)).encode())
    hop: Source | None = source
    while hop is not None:
        digest.update(repr(hop.identity).encode())
        hop = sources.get(hop.via)
    return digest.digest()[:KEY_BYTES]
