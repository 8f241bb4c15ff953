"""Writes into the worker's page, once a second, the figures that no session counts.

These are totals of the resolver, verifier, log and buffer memory, and the loop's lag.
Reading them once a second costs the hot path nothing. At the same time unneeded memory
is returned to the system.
"""

import asyncio
import time
from collections.abc import Mapping

from cutthrough.activity.watcher import Watcher
from cutthrough.log.accesslog import AccessLog
from cutthrough.net import buffers
from cutthrough.net.dns.resolver import Resolver
from cutthrough.session.model.counters import Page
from cutthrough.worker.parts import Parts

EVERY_S = 1.0
# A connection that libssl has, in a handshake, takes 42 KB: as much as so many others
OF_LIBSSL = 16


def _handshakes(tls: Mapping[str, int]) -> dict[str, int]:
    """These belong to the process, too."""
    return {f"tls:{kind}": tls.get(kind, 0) for kind in ("full", "resumed")}


def _tracked(watcher: Watcher | None) -> dict[str, int]:
    """Returns the gauges of the operator's activity tracker."""
    if watcher is None:
        return {}
    calls = watcher.calls
    return {"activity:calls": calls.calls, "activity:failed": calls.faults,
            "activity:overran": calls.overruns, "activity:dropped": calls.dropped,
            "activity_us": int(calls.spent * 1e6)}


class Gauges:
    """Writes every second until `stop`, which writes a last time."""

    def __init__(self, page: Page, parts: Parts, resolver: Resolver,
                 log: AccessLog | None) -> None:
        self._page = page
        self._parts = parts
        self._resolver = resolver
        self._log = log
        # Blocks belong to the process: earlier counts are not this worker's
        self._written = self._read_blocks() | _handshakes(parts.tls.stats())
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
        in_libssl = self._parts.tls.stats().get("in_libssl", 0)
        buffers.ebb(self._page.live + OF_LIBSSL * in_libssl)
        self._schedule()

    def write(self) -> None:
        parts = self._parts
        parts.rows.write()
        parts.by_rule.write()
        dns = self._resolver.stats()
        self._page.set("dns_entries", dns["entries"])
        self._page.set("dns_open", dns["open"])
        hooks = parts.tally.stats()
        self._page.set("hook_open", hooks["open"])
        filters, breakpoints = parts.tally.filters, parts.tally.breakpoints
        self._page.set("breakpoint_holds", len(breakpoints.held))
        self._page.set("recording_waiting", parts.recordings.waiting)
        self._page.set(
            "upstream_idle", parts.idle_pool.idle + parts.idle_pool.streams)
        self._page.set("auth_queue", parts.verifier.waiting)
        self._page.set("auth_held", parts.verifier.held)
        tls = parts.tls.stats()
        self._page.set("tls_open", tls.get("open", 0))
        self._page.set("tls_under_way", tls.get("under_way", 0))
        totals = {
            **_handshakes(tls),
            **_tracked(parts.watcher),
            **{f"leaf:{how}": n for how, n in parts.interception.stats().items()},
            **{f"recording:{how}": n for how, n in parts.recordings.counts().items()},
            "auth_hashes": parts.verifier.hashes,
            "auth_evicted": parts.verifier.evicted,
            "dns_answered": dns["answered"],
            "dns_not_found": dns["dns_not_found"],
            "dns_failed": (dns["dns_error"] + dns["dns_timeout"]
                           + dns["dns_unvalidated"]),
            "dns_hit": dns["hits"],
            "dns_stale": dns["stale"],
            "dns_prefetched": dns["prefetches"],
            "dns_dropped": dns["dropped"],
            "dns_refused": dns["refused"],
            "hook_asked": hooks["asked"],
            "hook_failed": hooks["failed"],
            "hook_dropped": hooks["dropped"],
            "hook_refused": hooks["refused"],
            "filter_calls": filters.calls,
            "filter_failed": filters.faults,
            "filter_overran": filters.overruns,
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
