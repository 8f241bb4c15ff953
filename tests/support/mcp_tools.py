"""The tools of `cutthrough mcp`, and a client that calls them."""

import contextlib
import json
import sys

from mcp import Client, StdioServerParameters, stdio_client

from cutthrough.tools.mcp_results import UNTRUSTED
from cutthrough.tools.mcp_server import (
    CHANGE_FLOWS,
    CHANGE_LISTENER,
    READ_FLOWS,
    READ_LISTENER,
)
from tests.support.proxy import ROOT, clean_environment

READING, WRITING = set(READ_FLOWS), set(CHANGE_FLOWS)
LISTENING, OPERATING = set(READ_LISTENER), set(CHANGE_LISTENER)
# What each takes, if it takes anything
ARGUMENTS = {
    "search_flows": {"words": "a"},
    **{name: {"id": 1} for name in (
        "show_flow", "read_messages", "copy_flow", "delete_flow", "replay_flow")},
    "read_body": {"id": 1, "side": "request"}, "diff_flows": {"id": 1, "other": 2},
    "tag_flow": {"id": 1, "tag": "a"}, "send_request": {"url": "http://127.0.0.1/"},
    "trace_connection": {"id": "0-1"}, "cut_connection": {"id": "0-1"},
    "show_held": {"id": "1-1"}, "decide_held": {"id": "1-1", "action": "pass"},
    "recordings": {"session": "default"}, "arm_breakpoints": {"seconds": 60}}


@contextlib.asynccontextmanager
async def served(*words, environ=None):
    """A client of `cutthrough mcp` with these arguments, and variables."""
    server = stdio_client(StdioServerParameters(
        command=sys.executable, args=["-m", "cutthrough", "mcp", *map(str, words)],
        env=clean_environment(**(environ or {})), cwd=ROOT))
    async with Client(server) as client:
        yield client


async def ask(client, name, **arguments):
    """The object of a result, behind the block that marks it as untrusted."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    mark, text = result.content
    assert mark.text == UNTRUSTED
    return json.loads(text.text)


async def refusal(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert result.is_error
    return result.content[0].text
