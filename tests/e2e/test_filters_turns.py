"""Bodies of many connections go through a filter at the same time."""

import asyncio
import contextlib
import re

import pytest

from tests.support.client import build_request
from tests.support.filters import FILTERS

pytestmark = pytest.mark.any_loop

POLICY = """
    [filters.Turns]
    code = "sieve:Turns"
    budget = "5s"
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    filters = ["Turns"]
"""


def test_many_bodies_share_a_turn_of_the_loop(start_policy, make_origin):
    """R64: bytes that go to Python are bounded for each turn, of all connections."""
    proxy, origin = start_policy(POLICY, modules={"sieve": FILTERS}), make_origin()
    request = build_request("POST", origin.url(), "Content-Length: 1000000")

    async def upload():
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with contextlib.closing(writer):
            writer.write(request + bytes(1_000_000))
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        return int(re.search(rb"X-Most: (\d+)", head)[1])

    async def upload_all():
        return await asyncio.gather(*(upload() for _ in range(64)))

    most = max(asyncio.run(upload_all()))
    # 8 MiB without a bound. The poller may have two turns in one of the loop, with new
    # events and work left over in each: 4 times 256 KiB, and what came with 64 heads
    assert most <= 5 << 19, most
