"""The supervisor's side of capture."""

import asyncio
import mmap

from cutthrough.supervisor.capture_writer import CaptureWriter
from cutthrough.tape.ring import RING_BYTES, Ring


def test_losses_in_the_ring_of_a_worker_that_has_ended_are_counted():
    """A reload gives its new workers other rings. What the writer could not write of
    the former ones', and what it lost itself, which counts in the first ring, was in no
    metric, not even when a later worker had that ring."""
    capture = CaptureWriter()
    capture.open()
    try:
        for page in (0, 1):
            rings = capture.descriptors(page)["rings"]
            with mmap.mmap(rings, RING_BYTES, offset=page * RING_BYTES) as memory:
                ring = Ring(memory)
                ring.lose(unwritten=3, failed=page)
                del ring
        assert capture.counts() == {
            "captured": 0, "dropped": 0, "partial": 0, "unwritten": 6, "failed": 1}
    finally:
        asyncio.run(capture.close())
    assert not capture.counts()
