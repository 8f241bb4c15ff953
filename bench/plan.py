"""Which scenarios through which proxies: the default, the features, the whole field."""

from __future__ import annotations

from bench.peers import PEERS
from bench.proxies import PROXIES as TABLE
from bench.run import Part

#: What `run` does when nothing is named: the acceptance figures of the data plane.
SCENARIOS = (
    "plain-keepalive", "plain-16k", "plain-new", "connect-setup", "ping-c1",
    "ping-c100", "bulk", "idle",
)  # fmt: skip
PROXIES = ("direct", "relay", "relay-splice", "cutthrough")
#: What `make bench-guard` measures, and bench/results/baseline.json holds.
GUARD_SCENARIOS = (
    "plain-keepalive", "plain-new", "connect-setup", "ping-c100", "bulk", "idle-1000",
)  # fmt: skip

YARDSTICKS = ("direct", "relay", "relay-splice")
#: Variants of cutthrough with one thing changed each.
FEATURES = tuple(name for name in TABLE if name.startswith("cutthrough-"))
#: What stands beside cutthrough where the whole field would take too long.
CLOSE = ("direct", "relay", "cutthrough", "squid", "haproxy-http")


#: Of the field's run: through every peer; through those that come close; and with
#: yardsticks only.
WHOLE = (
    "plain-keepalive", "plain-new", "connect-setup", "ping-c100", "bulk", "idle-1000",
    "rate-500", "page",
)  # fmt: skip
SMALLER = (
    "plain-keepalive-c1", "plain-keepalive-c1000", "plain-16k", "lifecycle",
)  # fmt: skip
OURS = (
    "plain-keepalive-c10", "plain-keepalive-c9800", "plain-keepalive-c10000",
    "plain-1k", "plain-new-wrk", "plain-new-siege", "rate-5000", "ping-c1",
    "tls-setup", "tls-ping", "idle-9800", "idle-10000", "rate-tunnel-500",
)  # fmt: skip
LONG = (
    "steps", "soak", "hostile-slow-head", "hostile-slow-read", "hostile-slow-origin",
    "hostile-churn",
)  # fmt: skip


def features() -> list[Part]:
    """What each feature of cutthrough costs, where it would show most."""
    proxies = ("relay", "relay-splice", "cutthrough", *FEATURES)
    moving = ("cutthrough-copy", "cutthrough-asyncio")
    return [
        Part(("plain-keepalive", "connect-setup"), proxies),
        Part(("bulk",), ("relay", "relay-splice", "cutthrough", *moving)),
    ]


def field() -> list[Part]:
    """Everything: the whole field where peers differ, a few where only we change."""
    everyone = (*YARDSTICKS, "cutthrough", *PEERS)
    return [
        Part(("plain-keepalive",), ("direct", "direct-again", *everyone[1:])),
        Part(WHOLE, everyone),
        Part(SMALLER, CLOSE),
        Part(OURS, ("direct", "relay", "cutthrough")),
        Part(("plain-128k", "plain-1m"), (*CLOSE, "relay-splice")),
        Part(("bulk-up", "bulk-both"), (*YARDSTICKS, "cutthrough")),
        *features(),
        Part(LONG, ("relay", "cutthrough", "squid")),
    ]
