"""The tools of `cutthrough mcp`, and a client that calls them."""

import contextlib
import json
import sys

from mcp import Client, StdioServerParameters, stdio_client

from cutthrough.tools.mcp_server import UNTRUSTED
from tests.support.proxy import ROOT, clean_environment

READING = {"list_flows", "search_flows", "hosts", "slowest_flows", "show_flow",
           "read_body"}
WRITING = {"tag_flow", "delete_flow", "replay_flow"}


@contextlib.asynccontextmanager
async def served(*words):
    """A client of `cutthrough mcp` with these arguments."""
    server = stdio_client(StdioServerParameters(
        command=sys.executable, args=["-m", "cutthrough", "mcp", *map(str, words)],
        env=clean_environment(), cwd=ROOT))
    async with Client(server) as client:
        yield client


async def ask(client, name, **given):
    """The object of a result, behind the block that marks it as untrusted."""
    result = await client.call_tool(name, given)
    assert not result.is_error, result.content
    mark, found = result.content
    assert mark.text == UNTRUSTED
    return json.loads(found.text)


async def refusal(client, name, **given):
    result = await client.call_tool(name, given)
    assert result.is_error
    return result.content[0].text
