"""Exchanges as they come out of the ring."""

from typing import Any

from cutthrough.tape.ring_exchange import RingExchange
from tests.doors.capture import make_ring_exchange


def ended(head: str = "HTTP/1.1 200 OK\r\n\r\n", down: tuple[bytes, ...] = (b"hello",),
          **more: Any) -> RingExchange:
    given: dict[str, Any] = {
        "is_intercepted": False, "host": "a", "port": 80, "reason": "ok",
        "up_head": "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "down_head": head, "up": b"",
        "pieces": [], "down": list(down), "times": [1000 * (at + 1) for at in range(
            len(down))], "up_bytes": 0, "down_bytes": sum(map(len, down)),
        "up_chunked": False, "down_chunked": False, "was_cut": False, "begun_us": 7,
        "head_at_us": 1000, "wait_us": 50, "user": "", "asked": None, "head_asked": 0,
        "is_unanswered": False}
    made: RingExchange = make_ring_exchange(given | more)
    return made
