"""Writes into the worker's page, once a second, the figures that no session counts.

These are totals of the resolver, verifier, log and buffer memory, and the loop's lag.
Reading them once a second costs the hot path nothing. At the same time unneeded memory
is returned to the system.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from cutthrough.generation.hook import Tally
from cutthrough.net import buffers
from cutthrough.net.dns.resolver import Resolver
from cutthrough.session.model.counters import Page
from cutthrough.session.model.idle_pool import IdlePool

EVERY_S = 1.0


class Log(Protocol):
    @property
    def dropped(self) -> int: ...


class Hashes(Protocol):
    hashes: int

    @property
    def waiting(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def evicted(self) -> int: ...


class Recorded(Protocol):
    """See worker.recordings."""

    @property
    def waiting(self) -> int: ...
    def counts(self) -> Mapping[str, int]: ...


def _handshakes(tls: Mapping[str, int]) -> dict[str, int]:
    """These belong to the process, too."""
    return {f"tls:{kind}": tls.get(kind, 0) for kind in ("full", "resumed")}


def _captured(counts: Mapping[str, int]) -> dict[str, int]:
    """These belong to the ring, which earlier workers used too."""
    return {f"capture:{result}": count for result, count in counts.items()}


class Gauges:
    """Writes every second until `stop`, which writes a last time."""

    def __init__(self, page: Page, resolver: Resolver, idle_pool: IdlePool,
                 verifier: Hashes, log: Log | None, hooks: Tally,
                 tls: Callable[[], Mapping[str, int]] = dict,
                 write_parents: Callable[[], None] = lambda: None,
                 captured: Callable[[], Mapping[str, int]] = dict,
                 leaves: Callable[[], Mapping[str, int]] = dict,
                 recordings: Recorded | None = None) -> None:
        """`tls`: see TlsListeners.stats; `write_parents`: ParentRows.write;
        `captured`: Ring.counts; `leaves`: TlsInterception.stats."""
        self._page = page
        self._resolver = resolver
        self._idle_pool = idle_pool
        self._verifier = verifier
        self._log = log
        self._hooks = hooks
        self._tls = tls
        self._write_parents = write_parents
        self._captured = captured
        self._leaves = leaves
        self._recordings = recordings
        # Blocks belong to the process: earlier counts are not this worker's
        self._written = (self._read_blocks() | _handshakes(self._tls())
                         | _captured(captured()))
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def _schedule(self) -> None:
        self._due = self._loop.time() + EVERY_S
        # For readers of the page: a loop that hangs cannot write how late it is
        self._page.set("due_us", int((time.monotonic() + EVERY_S) * 1e6))
        self._timer = self._loop.call_later(EVERY_S, self._on_timer)

    def _on_timer(self) -> None:
        late = max(0.0, self._loop.time() - self._due)
        self._page.set("lag_us", int(late * 1e6))
        self.write()
        buffers.ebb(self._page.live)
        self._schedule()

    def write(self) -> None:
        self._write_parents()
        dns = self._resolver.stats()
        self._page.set("dns_entries", dns["entries"])
        self._page.set("dns_open", dns["open"])
        hooks = self._hooks.stats()
        self._page.set("hook_open", hooks["open"])
        breakpoints = self._hooks.breakpoints
        self._page.set("breakpoint_holds", len(breakpoints.held))
        if self._recordings is not None:
            self._page.set("recording_waiting", self._recordings.waiting)
        self._page.set("upstream_idle", self._idle_pool.idle)
        self._page.set("auth_queue", self._verifier.waiting)
        self._page.set("auth_held", self._verifier.held)
        tls = self._tls()
        self._page.set("tls_open", tls.get("open", 0))
        self._page.set("tls_under_way", tls.get("under_way", 0))
        totals = {
            **_handshakes(tls),
            **_captured(self._captured()),
            **{f"leaf:{how}": n for how, n in self._leaves().items()},
            **({} if self._recordings is None else {
                f"recording:{how}": n for how, n in self._recordings.counts().items()}),
            "auth_hashes": self._verifier.hashes,
            "auth_evicted": self._verifier.evicted,
            "dns_answered": dns["answered"],
            "dns_not_found": dns["dns_not_found"],
            "dns_failed": dns["dns_error"] + dns["dns_timeout"],
            "dns_hit": dns["hits"],
            "dns_stale": dns["stale"],
            "dns_prefetched": dns["prefetches"],
            "dns_dropped": dns["dropped"],
            "dns_refused": dns["refused"],
            "hook_asked": hooks["asked"],
            "hook_failed": hooks["failed"],
            "hook_dropped": hooks["dropped"],
            "hook_refused": hooks["refused"],
            "filter_calls": self._hooks.filters.calls,
            "filter_failed": self._hooks.filters.faults,
            "filter_overran": self._hooks.filters.overruns,
            **{f"breakpoint:{how}": n for how, n in breakpoints.counts.items()},
            "log_dropped": self._log.dropped if self._log is not None else 0,
            **self._read_blocks(),
        }
        # The increase only: the page also has the totals of earlier workers
        for name, total in totals.items():
            self._page.add(name, total - self._written.get(name, 0))
        self._written = totals

    def _read_blocks(self) -> dict[str, int]:
        blocks = buffers.stats()
        for share in buffers.SHARES:
            self._page.set(f"held:{share}", blocks[f"held_by_{share}"])
        return {f"no_room:{share}": blocks[f"refused_{share}"]
                for share in buffers.SHARES}

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.write()
