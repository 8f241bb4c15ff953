"""The scenarios: one table, in the eight groups of docs/benchmarking.md."""

from __future__ import annotations

import resource
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import cores

GROUPS = {
    1: "plain requests, keep-alive",
    2: "plain requests, a new connection each",
    3: "tunnels",
    4: "at rest, start and end",
    5: "latency at a fixed rate; a page",
    6: "what a feature costs",
    7: "stepped load and soak",
    8: "hostile neighbours",
}


@dataclass(frozen=True)
class Scenario:
    """One row. `tool` is wrk, siege, load, or one of measure's own: idle, lifecycle,
    steps, soak, hostile, crowd, workers, tail, ceiling; `mode` is that of bench/load or
    bench/hostile.

    `yardstick` is the relay that does the same work: the splicing one for many bytes.
    `weight` is how many times --seconds a run takes. `place` is one of cores.PLACES.
    """

    group: int
    about: str
    tool: str
    conns: int = 100
    mode: str = ""
    path: str = "/index.html"
    endpoint: str = "web"
    yardstick: str = "relay"
    rate: float = 0
    weight: float = 1
    nofile: int = 0
    place: str = ""

    @property
    def tunnel(self) -> bool:
        """Does it need a proxy that knows CONNECT?"""
        return self.tool in ("idle", "tail") or self.mode in TUNNEL_MODES

    @property
    def socks(self) -> bool:
        """Does it need a proxy that is called by SOCKS5?"""
        return self.mode == "socks-setup"

    @property
    def keeps(self) -> bool:
        """Does it need a proxy that keeps a client's connection?"""
        if self.tool in OWN_TOOLS:
            return True
        kept = (self.tool, self.mode) == ("wrk", "")
        return kept or self.mode in ("plain", "rate", "page")

    @property
    def closes(self) -> bool:
        """Does it need a proxy that closes a connection after a plain request?"""
        # Of a page through another one the client closes (load's --hang-up)
        return self.tool == "siege" or self.mode in ("new", "plain-new")

    @property
    def missing(self) -> str:
        """Return the reason if it cannot run here, or nothing."""
        needed = {"wrk": ["wrk"], "siege": ["siege"]}.get(self.tool, ["cc", "make"])
        for tool in needed:
            if shutil.which(tool) is None:
                return f"{tool} not installed"
        if self.endpoint == "tls" and not _has_tls_headers():
            return "OpenSSL's headers (libssl-dev) not installed"
        if self.place == "apart" and len(cores.USABLE) < 2:
            return "needs two cores"
        if self.tool == "workers" and (reason := cores.cannot_hold_back()):
            return reason
        if self.nofile > most_files():
            return f"needs {self.nofile} descriptors, {most_files()} may be had"
        return ""


OWN_TOOLS = {
    "lifecycle", "steps", "soak", "hostile", "crowd", "workers", "tail", "ceiling",
}  # fmt: skip
TUNNEL_MODES = {
    "connect-setup", "socks-setup", "ping", "bulk", "up", "both", "tls-setup",
    "tls-ping", "rate-tunnel",
}  # fmt: skip


def most_files() -> int:
    """Raise the limit of open files to its maximum; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (65536, hard):
        try:
            limits = (max(soft, wanted), max(hard, wanted))
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            break
        except (ValueError, OSError):
            continue
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _has_tls_headers() -> bool:
    return any(Path("/usr/include", d, "ssl.h").exists() for d in ("openssl",))


def _plain(
    about: str, conns: int, path: str = "/index.html", **more: Any
) -> Scenario:
    return Scenario(1, about, "load", conns, "plain", path, **more)


def _load(group: int, about: str, mode: str, conns: int, **more: Any) -> Scenario:
    return Scenario(group, about, "load", conns, mode, **more)


_BULK = {"path": "/1m", "yardstick": "relay-splice"}
_UP = {"path": "/up", "endpoint": "sink", "yardstick": "relay-splice"}
_BOTH = {**_UP, "path": "/both"}

SCENARIOS = {
    "plain-keepalive": _plain("index.html, keep-alive, 100 connections", 100),
    "plain-keepalive-c1": _plain("index.html, keep-alive, 1 connection", 1),
    "plain-keepalive-c10": _plain("index.html, keep-alive, 10 connections", 10),
    # wrk opens them all before it begins.
    "plain-keepalive-wrk": Scenario(1, "the same as the first, by wrk", "wrk"),
    "plain-keepalive-c1000": Scenario(
        1, "index.html, keep-alive, 1000 connections, by wrk", "wrk", 1000
    ),
    # The most that 20 000 descriptors allow a proxy that reserves some for itself.
    "plain-keepalive-c9800": Scenario(
        1, "index.html, keep-alive, 9800 connections, by wrk", "wrk", 9800,
        nofile=19950, weight=2,
    ),
    "plain-keepalive-c10000": Scenario(
        1, "the same, 10 000 connections, two workers", "wrk", 10000,
        nofile=12000, weight=2,
    ),
    "plain-keepalive-c15000": Scenario(
        1, "the same, 15 000 connections, two workers", "wrk", 15000,
        nofile=17000, weight=2,
    ),
    "plain-1k": _plain("1 KiB, keep-alive, 100 connections", 100, "/1k"),
    "plain-16k": _plain("16 KiB, keep-alive, 100 connections", 100, "/16k"),
    "plain-128k": _plain(
        "128 KiB, keep-alive, 20 connections", 20, "/128k", yardstick="relay-splice"
    ),
    "plain-1m": _plain(
        "1 MiB, keep-alive, 10 connections", 10, "/1m", yardstick="relay-splice"
    ),
    "plain-new": _load(2, "a client connection for each request", "plain-new", 20),
    "plain-new-wrk": Scenario(2, "by wrk, Connection: close", "wrk", 20, "new"),
    "plain-new-siege": Scenario(2, "the same by siege -b", "siege", 20),
    "connect-setup": _load(3, "CONNECT, one request, close", "connect-setup", 20),
    "socks-setup": _load(
        3, "the same by SOCKS5 without credentials", "socks-setup", 20,
        yardstick="relay-socks",
    ),
    "ping-c1": _load(
        3, "index.html in 1 long tunnel, all on one core", "ping", 1, place="one"
    ),
    "ping-c1-apart": _load(
        3, "the same, the proxy on a core of its own", "ping", 1, place="apart"
    ),
    "ping-c1-free": _load(3, "the same, as the scheduler has it", "ping", 1),
    "ping-c100": _load(3, "index.html in 100 long tunnels", "ping", 100),
    "bulk": _load(3, "1 MiB down in 10 long tunnels", "bulk", 10, **_BULK),
    "bulk-up": _load(3, "1 MiB up in 10 long tunnels", "up", 10, **_UP),
    "bulk-both": _load(3, "1 MiB up and down at once, 10 tunnels", "both", 10, **_BOTH),
    "tls-setup": _load(
        3, "CONNECT, TLS handshake, one request, close", "tls-setup", 20, endpoint="tls"
    ),
    "tls-ping": _load(
        3, "index.html over TLS in 100 long tunnels", "tls-ping", 100, endpoint="tls"
    ),
    "idle-1000": Scenario(
        4, "memory of 1000 tunnels at rest", "idle", 1000, weight=0.5
    ),
    "idle": Scenario(
        4, "memory of 5000 tunnels at rest", "idle", 5000, nofile=11000, weight=0.5
    ),
    "idle-9800": Scenario(
        4, "memory of 9800 tunnels at rest", "idle", 9800, nofile=19950
    ),
    # Two descriptors a tunnel: more than one process may have, unless nofile is larger.
    "idle-10000": Scenario(
        4, "memory of 10 000 tunnels at rest", "idle", 10000, nofile=10300
    ),
    "crowd": Scenario(
        4, "10 000 keep-alive connections open, 100 of them active; against 100 open",
        "crowd", 10000, nofile=10300, weight=2,
    ),
    "lifecycle": Scenario(
        4, "start to first answer; SIGTERM to end with 100 idle connections",
        "lifecycle", 100, weight=0.5,
    ),
    "ceiling": Scenario(
        1, "the load generator against what answers at once, a core each", "ceiling",
        100, "plain", place="apart",
    ),
    "ceiling-setup": Scenario(
        3, "the same, CONNECT, one request, close", "ceiling", 20, "connect-setup",
        place="apart",
    ),
    "ceiling-setup-all": Scenario(
        3, "the same, a process of either for each core", "ceiling", 80,
        "connect-setup",
    ),
    "rate-500": _load(5, "500 requests a second, 50 connections", "rate", 50, rate=500),
    "rate-5000": _load(
        5, "5000 requests a second, 50 connections", "rate", 50, rate=5000
    ),
    "rate-tunnel-500": _load(
        5, "500 requests a second in 50 tunnels", "rate-tunnel", 50, rate=500
    ),
    "tail": Scenario(
        5, "a steady load of half the rate, 200 tunnels a second set up beside it",
        "tail", 50, weight=2,
    ),
    "page": _load(
        5, "a document and 40 resources, 2 browsers of 6 connections", "page", 2,
        path="/page/",
    ),
    "workers": Scenario(
        6, "a worker or two, each with a fifth of a core; and as they are", "workers",
        100,
    ),
    "steps": Scenario(
        7, "10, 25, 50, 100, 200, 10 requests a second", "steps", 20, "rate", weight=6
    ),
    "soak": Scenario(
        7, "50 connections for long: slopes of memory and descriptors", "soak", 50,
        "plain", weight=5,
    ),
    "hostile-slow-head": Scenario(
        8, "300 clients send a head byte by byte", "hostile", 300, "slow-head", weight=2
    ),
    "hostile-slow-read": Scenario(
        8, "100 clients read 1 MiB at 5 KiB/s", "hostile", 100, "slow-read",
        path="/unlogged/1m", weight=2,
    ),
    "hostile-slow-origin": Scenario(
        8, "100 requests wait for an origin of 8 KiB/s", "hostile", 100, "slow-read",
        path="/slow/1m", weight=2,
    ),
    "hostile-churn": Scenario(
        8, "300 connections a second, half a head, reset", "hostile", 30, "churn",
        weight=2,
    ),
}  # fmt: skip

#: Every hostile scenario has a steady load beside it, whose p99 may at most double.
#: With 200 requests a second the p99 was the second slowest request, and doubled by
#: itself.
STEADY_RATE, STEADY_CONNS = 1000.0, 20
#: Requests a second of the stepped load, in turn.
STEPS = (10, 25, 50, 100, 200, 10)
