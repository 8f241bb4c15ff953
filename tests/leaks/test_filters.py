"""What filters have held of an exchange goes with its end, without a garbage collector:
bodies of megabytes would wait for it, beyond each of their bounds (R69)."""

import asyncio
import gc
import textwrap

import pytest

import cutthrough
from cutthrough.filters.run import Run
from tests.support.client import PASSWORD, USER, Client
from tests.support.embedded import loop_name as loop_name
from tests.support.embedded import run, settled
from tests.support.origin import Origin
from tests.support.websockets import parrot, upgrade

pytestmark = pytest.mark.any_loop

SIEVE = """
    import asyncio

    class Answers:
        async def on_request_head(self, flow):
            flow.respond(200, b"here")

    class Reads:
        async def on_response_body(self, flow, body):
            await asyncio.sleep(0)

    class Pieces:
        async def on_response_body(self, flow, pieces):
            async for piece in pieces:
                yield piece

    class Fails:
        async def on_response_body(self, flow, body):
            raise ValueError

    class Messages:
        async def on_websocket_message(self, flow, message):
            pass
"""
POLICY = """
[filters.sieve]
code = "sieve_of_leaks:{name}"
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
filters = ["sieve"]
"""


def get(client: Client, origin: Origin) -> None:
    client.get(origin.url())


def talk(client: Client, origin: Origin) -> None:
    upgrade(client, origin)


def travel(port: int, journey, origin: Origin) -> None:
    with Client(port) as client:
        journey(client, origin)


@pytest.mark.parametrize(("name", "journey"), [
    ("Answers", get), ("Reads", get), ("Pieces", get), ("Fails", get),
    ("Messages", talk)])
def test_nothing_is_left_for_the_collector(
        loop_name, tmp_path, monkeypatch, name, journey):
    (tmp_path / "sieve_of_leaks.py").write_text(textwrap.dedent(SIEVE))
    (tmp_path / "policy.toml").write_text(POLICY.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)

    async def main() -> None:
        async with cutthrough.serve(
                user=USER, password=PASSWORD, access_log="off",
                policy=tmp_path / "policy.toml") as proxy:
            with Origin(*[parrot] * (journey is talk)) as origin:
                await asyncio.to_thread(travel, proxy.port, journey, origin)
                gc.collect()                 # what is loaded once
                for _ in range(3):
                    await asyncio.to_thread(travel, proxy.port, journey, origin)
            await settled(proxy)
            assert not [each for each in gc.get_objects() if isinstance(each, Run)]

    gc.disable()
    try:
        run(loop_name, main)
    finally:
        gc.enable()
