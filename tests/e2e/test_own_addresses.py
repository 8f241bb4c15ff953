"""An address that the host gets after the start is its own, in every worker (R27)."""

import json
import socket
import subprocess

import pytest

from tests.support.client import Client
from tests.support.network import own_network
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

ADDRESS = "11.22.33.44"         # public by its class, and here only in this network


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_an_address_that_the_host_gets_later_is_refused_by_every_worker(
        tmp_path, loop):
    """It passed the floor, to a local service and the proxy itself, until a reload."""
    with own_network(), Proxy(tmp_path, "--address-floor", "on", "--connect-ports",
                              "any", "--workers", "2", loop=loop) as proxy:
        def ask(port: int) -> int:
            with Client(proxy.port) as client:
                return client.connect(f"{ADDRESS}:{port}").status

        assert ask(9) == 502                    # no route
        subprocess.run(["ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
        with socket.create_server((ADDRESS, 0), backlog=4096) as service:
            port = service.getsockname()[1]
            wait_until(lambda: {ask(port) for _ in range(32)} == {403},
                       "the address refused by whoever is asked", 10)
        assert {ask(port) for _ in range(64)} == {403}
        wait_until(lambda: {line["worker"] for line in read(proxy)
                            if line["reason"] == "address_denied"} == {0, 1},
                   "a refusal by each worker", 10)
        subprocess.run(["ip", "addr", "del", f"{ADDRESS}/32", "dev", "lo"], check=True)
        wait_until(lambda: {ask(port) for _ in range(32)} == {502},
                   "the address free again", 10)


def read(proxy: Proxy) -> list[dict]:
    return [json.loads(line) for line in proxy.log_path.read_text().splitlines()]
