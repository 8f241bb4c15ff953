"""New captured requests are notified to clients of `cutthrough mcp`, of both
generations of the protocol: by the admin listener, and from a database."""

import asyncio
import contextlib
import json
import sys

import psutil
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError

from cutthrough.storage.stores import open_store
from cutthrough.tools.mcp_events import MOST_STREAMS, NEWEST
from cutthrough.tools.mcp_results import UNTRUSTED
from tests.capture.flows import row
from tests.support.admin import TOKEN, administered
from tests.support.captures import wait_rows
from tests.support.flows import HELLO, POLICY
from tests.support.origin import answer
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop
# Of a machine with much else to do
PATIENCE_S = 60


@contextlib.asynccontextmanager
async def served(*words, mode="auto", heard=None):
    """`heard`: takes the notifications that are of no stream."""
    async def note(message):
        if heard is not None:
            await heard.put(message)

    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "cutthrough", "mcp", *map(str, words)],
        env=clean_environment(), cwd=ROOT)
    async with Client(stdio_client(parameters), mode=mode, message_handler=note
                      ) as client:
        yield client


async def read_newest(client):
    (content,) = (await client.read_resource(NEWEST, cache_mode="bypass")).contents
    mark, _, text = content.text.partition("\n")
    assert mark == UNTRUSTED
    return [flow["url"] for flow in json.loads(text)["flows"]]


async def see(client, changes, url):
    """Until the resource has it, reads it after each notification."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert await anext(changes) == ResourceUpdated(uri=NEWEST)
            if url in await read_newest(client):
                return


@pytest.fixture
def start(loop_name, directory, opened, tmp_path, make_origin, dial):
    """A proxy that captures, an origin, and the words for `cutthrough mcp`."""
    def run():
        (tmp_path / "policy.toml").write_text(POLICY)
        (tmp_path / "token").write_text(TOKEN)
        proxy, operator = administered(
            opened, directory("proxy"), loop_name,
            f'capture_file = "{tmp_path}/flows.db"\n'
            f'policy = "{tmp_path}/policy.toml"\n')
        return proxy, make_origin(answer(HELLO)), (
            "--admin", f"127.0.0.1:{operator.where}", "--token-file",
            tmp_path / "token")
    return run


async def test_a_stream_tells_of_new_flows_of_the_listener(start, dial, tmp_path):
    """Before, a model had to ask again and again. R59: the log has one entry of the
    stream, and not one of each look."""
    proxy, origin, words = start()
    with dial(proxy) as client:
        client.ask("GET", origin.url("/a/first"))
        wait_rows(tmp_path / "flows.db", 1)
        async with served(*words) as model:
            assert model.server_capabilities.resources.subscribe
            async with model.listen(resource_subscriptions=[NEWEST]) as changes:
                await see(model, changes, origin.url("/a/first"))
                client.ask("GET", origin.url("/a/second"))
                await see(model, changes, origin.url("/a/second"))
            reads = json.loads(
                (await model.call_tool("reads", {})).content[1].text)["reads"]
    verbs = [entry["verb"] for entry in reads]
    assert verbs.count("watch") == 1


async def test_many_flows_are_one_notification_a_second(start, dial):
    proxy, origin, words = start()
    with dial(proxy) as client:
        async with served(*words) as model:
            async with model.listen(resource_subscriptions=[NEWEST]) as changes:
                async with asyncio.timeout(PATIENCE_S):
                    await anext(changes)     # it is followed from here on
                begun = asyncio.get_running_loop().time()
                for n in range(200):
                    client.ask("GET", origin.url(f"/a/{n}"))
                await see(model, changes, origin.url("/a/199"))
                took = asyncio.get_running_loop().time() - begun
                told = 0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2.5):     # what is told late, after all
                        while True:
                            await anext(changes)
                            told += 1
    # At the begin and then once a second: each of them has read the resource
    assert told <= 3, (told, took)


async def test_earlier_clients_subscribe_to_the_resource(start, dial):
    proxy, origin, words = start()
    heard = asyncio.Queue()
    with dial(proxy) as client:
        async with served(*words, mode="legacy", heard=heard) as model:
            assert model.server_capabilities.resources.subscribe
            with pytest.raises(MCPError, match="never changes"):
                await model.session.subscribe_resource("cutthrough://endings")
            await model.session.subscribe_resource(NEWEST)
            client.ask("GET", origin.url("/a/seen"))
            async with asyncio.timeout(PATIENCE_S):
                while origin.url("/a/seen") not in await read_newest(model):
                    note = await heard.get()
                    assert note.method == "notifications/resources/updated"
                    assert str(note.params.uri) == NEWEST
            await model.session.unsubscribe_resource(NEWEST)
            await model.session.unsubscribe_resource("cutthrough://endings")


async def test_a_database_is_followed_by_a_process_that_ends_with_the_stream(tmp_path):
    path = tmp_path / "flows.db"

    def fill(*rows):
        store = open_store(str(path), 0, 0, 0)
        store.write(rows)
        store.close()

    async with served("--db", path) as model:
        server = next(child for child in psutil.Process().children()
                      if "mcp" in child.cmdline())
        assert not server.children()
        async with model.listen(resource_subscriptions=[NEWEST]) as changes:
            fill(row(1, url="http://a.test/1"))      # there was no file before
            await see(model, changes, "http://a.test/1")
            fill(row(2, url="http://a.test/2"))
            await see(model, changes, "http://a.test/2")
            assert len(server.children()) == 2
        await asyncio.to_thread(
            wait_until, lambda: len(server.children()) == 1, "the end of one")
        # And again, by another thread
        async with model.listen(resource_subscriptions=[NEWEST]) as changes:
            async with asyncio.timeout(PATIENCE_S):
                await anext(changes)


async def test_streams_are_bounded_and_others_start_nothing(tmp_path):
    async with served("--db", tmp_path / "flows.db") as model:
        server = next(child for child in psutil.Process().children()
                      if "mcp" in child.cmdline())
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MOST_STREAMS):
                await stack.enter_async_context(model.listen(tools_list_changed=True))
            with pytest.raises(MCPError, match="limit"):
                async with model.listen(tools_list_changed=True):
                    pass
            assert not server.children()
