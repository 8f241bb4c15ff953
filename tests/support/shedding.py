"""Connections that hold memory of a proxy, and time that passes for it."""

import time

from cutthrough.net import buffers
from tests.support.client import Client

SMALL_BLOCK = 512 - 32           # of net.buffers
PART = b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127."


def be_partial(client: Client) -> None:
    client.send(PART)


def let_time_pass() -> None:
    """Rest is measured in milliseconds: events from here on are later."""
    end = time.monotonic() + 0.003
    while time.monotonic() < end:
        pass


def held(share: str) -> int:
    return buffers.stats()[f"held_by_{share}"]
