"""If a tunnel was reset while its bytes are on their way, it stays in its worker."""

import asyncio
import hashlib
import os

import pytest

from cutthrough.session.describe import clients
from cutthrough.session.handover import pack, tunnels
from tests.support.origin import Origin
from tests.support.sockets import unsent
from tests.support.wait import wait_until
from tests.support.workers import Pair, until


def test_what_is_being_delivered_stays_and_arrives(run):
    """Its origin has reset it: it ends here, when its client has taken everything."""
    data = os.urandom(2_000_000)            # which the kernel has for it then

    def pour_and_reset(conn) -> None:
        conn.send(data)
        acked = conn.sock.getsockname()[1]
        wait_until(lambda: not unsent(acked), "all of it at the worker")
        conn.reset()

    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        await until(lambda: workers.old.page.read()["state:DELIVER"])
        assert tunnels(workers.old.context) == []
        assert pack(clients(workers.old.context)[0], 1, 0, 1) is None
        got = await asyncio.to_thread(client.read_exact, len(data))
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(client.read_rest)
        assert workers.old.context.live == 0

    run(main, pour_and_reset)
