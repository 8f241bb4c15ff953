"""Selections of scenarios and proxies: the default, the features, the whole field."""

from __future__ import annotations

from bench.blocks import Part
from bench.peers import PEERS
from bench.proxies import PROXIES as TABLE
from bench.proxies import UNUSED

#: The default of `run`: the acceptance figures of the data plane.
SCENARIOS = (
    "plain-keepalive", "plain-16k", "plain-new", "connect-setup", "ping-c1",
    "ping-c100", "bulk", "idle",
)  # fmt: skip
PROXIES = ("direct", "relay", "relay-splice", "cutthrough")
YARDSTICKS = ("direct", "relay", "relay-splice")
#: Variants of cutthrough with one thing changed each.
FEATURES = tuple(
    name
    for name in TABLE
    if name.startswith("cutthrough-") and not name.startswith("cutthrough-full")
    and not TABLE[name].socks
)
#: The requirements for the data plane (asked.py), with all required features on.
FULL = "cutthrough-full"
OURS = ("cutthrough", "cutthrough-log", FULL)
NEAR = ("direct", "lean", *OURS, "relay", "haproxy-http", "nginx")
TUNNELS = ("direct", "lean", *OURS, "relay", "haproxy-tcp")
BULK = (*TUNNELS, "haproxy-splice", "relay-splice")
SOCKS = ("relay-socks", "cutthrough-socks", "microsocks", "dante")
#: A page and its resources, as LittleProxy's own document has them beside it.
BROWSED = ("littleproxy", "squid", "apache", "nginx", "haproxy-http")
#: The columns of the table of the field: through every peer.
COLUMNS = (
    "plain-keepalive", "plain-16k", "plain-new", "connect-setup", "ping-c100", "bulk",
    "idle-1000",
)  # fmt: skip
#: One request at a time: on fixed cores, for its cost, and as the scheduler places it.
ALONE = ("ping-c1", "ping-c1-apart", "ping-c1-free")
#: Scenarios for cutthrough and its yardsticks only.
CLOSE = ("direct", "relay", "cutthrough")
REST = (
    "plain-keepalive-wrk", "plain-keepalive-c1", "plain-keepalive-c1000", "tls-ping",
    "tls-setup", "rate-5000", "rate-tunnel-500", "plain-keepalive-c10", "plain-1k",
    "plain-new-wrk", "plain-new-siege",
)  # fmt: skip
#: Two descriptors a connection: more than nofile often allows one process.
MOST = ("plain-keepalive-c10000", "plain-keepalive-c15000")
HOSTILE = (
    "hostile-slow-head", "hostile-slow-read", "hostile-slow-origin", "hostile-churn",
)  # fmt: skip


#: The harness against itself: eight pairs, because a single rate varies by 4 %.
ITSELF = Part(
    ("plain-keepalive",), ("direct-again",), repetitions=8, seconds=1, again=("direct",)
)


#: The limits of the load generator.
CEILINGS = ("ceiling", "ceiling-setup", "ceiling-setup-all")
CEILING = Part(CEILINGS, ("direct",), seconds=0.7)


def asked(pairs: int = 5) -> list[Part]:
    """Return the scenarios of the requirements, in the order of the table."""
    return [
        Part(("plain-keepalive",), NEAR, repetitions=pairs),
        ITSELF,
        CEILING,
        Part(("plain-16k", "plain-new"), NEAR, repetitions=pairs),
        Part(("connect-setup", "ping-c100"), TUNNELS, repetitions=pairs),
        Part(ALONE, ("lean", *CLOSE, *OURS[1:]), repetitions=5, seconds=0.5),
        Part(("bulk",), BULK, repetitions=pairs),
        # Too many descriptors for one process, so two workers share the tunnels.
        Part(("idle-10000",), (f"{FULL}-2",)),
        Part(("idle-9800",), (FULL,), seconds=1),
        Part(("crowd",), (f"{FULL}-crowd", "nginx")),
        Part(("workers",), (FULL, f"{FULL}-2")),
        Part(("tail",), ("relay", FULL, "direct")),
    ]


def guard() -> list[Part]:
    """Return the scenarios of `make bench-guard` and bench/results/baseline.json."""
    # Of 1000 tunnels, most fit into pages that were free before: the figure is chance.
    others = ("plain-new", "connect-setup", "ping-c100", "idle")
    return [Part(("plain-keepalive",), (*CLOSE, UNUSED)), Part(others, CLOSE),
            Part(("bulk",), PROXIES)]


def features(seconds: float = 0) -> list[Part]:
    """Return for each feature of cutthrough the scenario that shows its cost best."""
    moving = ("cutthrough-copy", "cutthrough-asyncio")
    relays = ("relay", "relay-splice")
    plain = ("plain-keepalive", "connect-setup")
    return [
        Part(plain, FEATURES, seconds=seconds, again=("relay", "cutthrough")),
        Part(("bulk",), moving, seconds=seconds, again=(*relays, "cutthrough")),
    ]


def field() -> list[Part]:
    """Return everything, the most important first, because time may run out.

    Scenarios that differ between peers run through every peer; the others only through
    the proxies that they are informative about.
    """
    elsewhere = (*NEAR, *BULK, *SOCKS)
    others = tuple(name for name in PEERS if name not in elsewhere)
    peers = [
        Part((name,), (*others, "haproxy-tcp"), seconds=1, again=("relay",))
        for name in COLUMNS
        if name not in ("bulk", "idle-1000")
    ]
    return [
        *asked(pairs=3),
        *peers,
        Part(("bulk",), others, seconds=1, again=("relay-splice",)),
        Part(
            ("idle-1000",), ("relay", "cutthrough", FULL, "haproxy-tcp", *others),
            seconds=1, repetitions=1,
        ),
        Part(("socks-setup",), SOCKS),
        Part(("rate-500",), (*CLOSE, "squid", "haproxy-http"), seconds=1),
        Part(("page",), (*CLOSE, *BROWSED), seconds=1),
        Part(("lifecycle",), ("relay", "cutthrough", "squid", "haproxy-http")),
        Part(HOSTILE, ("relay", "cutthrough", "squid"), seconds=1),
        Part(("steps", "soak"), ("relay", "cutthrough"), seconds=2, repetitions=1),
        *features(1),
        Part(("plain-128k", "plain-1m"), (*CLOSE, "relay-splice"), seconds=1),
        Part(("bulk-up", "bulk-both"), (*YARDSTICKS, "cutthrough"), seconds=1),
        Part(("plain-keepalive-c9800",), CLOSE[1:], seconds=1),
        Part(MOST, ("direct", "cutthrough-2"), seconds=1),
        Part(REST, CLOSE, seconds=1),
    ]
