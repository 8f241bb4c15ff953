"""A worker's time to capture an exchange's heads: `bench micro tap`.

The taps write into a ring as in a worker; the writer's process is not part of it. See
bench/micro/capture.py for that.
"""

from __future__ import annotations

import functools
import mmap
from pathlib import Path
from types import ModuleType

from bench.micro import Micro, load_compiled
from bench.micro.capture import REQUEST, RESPONSE
from cutthrough.policy.acl import Acl
from cutthrough.policy.rules import read_policy
from cutthrough.policy.snapshot import Bounds, Judges, Snapshot
from cutthrough.tape.ring import RING_BYTES, Ring

POLICY = """
[[rules]]
name = "browsers"
action = "allow"
capture = "head"
"""


@functools.cache
def _loops() -> ModuleType:
    return load_compiled(Path(__file__).with_suffix(".pyx"))


def tap_heads(n: int) -> float:
    from cutthrough.tape.observer import Capture

    ring = Ring(mmap.mmap(-1, RING_BYTES))
    acl = Acl(read_policy(POLICY, "policy.toml", lambda file: b""))
    snapshot = Snapshot({}, Bounds(False, None), judges=Judges(acl))
    return float(_loops().tap_heads(
        Capture(ring, 0), ring, snapshot, REQUEST, RESPONSE % 0, n))


BENCHES = [Micro("tap", "the heads of an exchange captured into the ring", tap_heads,
                 len(REQUEST) + len(RESPONSE))]
