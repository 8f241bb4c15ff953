"""`cutthrough mcp` beside a running proxy: the admin token's rights, and no more."""

import asyncio
import json
import shlex
import stat
import sys

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from tests.support.admin import TOKEN, administered
from tests.support.captures import wait_rows
from tests.support.client import PASSWORD, USER
from tests.support.flows import HELLO, POLICY
from tests.support.mcp_tools import (
    ARGUMENTS,
    LISTENING,
    OPERATING,
    READING,
    WRITING,
    ask,
    refusal,
    served,
)
from tests.support.origin import answer
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


@pytest.fixture
def database(tmp_path):
    return tmp_path / "flows.db"


@pytest.fixture
def start(loop_name, directory, opened, database, tmp_path, make_origin, dial):
    """A proxy with one captured request, and the words for `cutthrough mcp`."""
    def run(token=TOKEN):
        (tmp_path / "policy.toml").write_text(POLICY)
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "password").write_text(PASSWORD)
        proxy, operator = administered(
            opened, directory("proxy"), loop_name,
            f'capture_file = "{database}"\npolicy = "{tmp_path}/policy.toml"\n', token)
        origin = make_origin(answer(HELLO))
        with dial(proxy) as client:
            client.ask("GET", origin.url("/a/b"), "Cookie: id=s3cret")
        wait_rows(database)
        return proxy, ("--admin", f"127.0.0.1:{operator.where}")
    return run


async def test_flows_and_connections_are_those_of_the_listener(start, tmp_path, dial):
    proxy, words = start()
    tunnel = dial(proxy)
    async with served(*words, "--token-file", tmp_path / "token") as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == READING | LISTENING
        (flow,) = (await ask(client, "list_flows"))["flows"]
        shown = await ask(client, "show_flow", id=flow["id"])
        assert shown["response_body"] == "<b>x<" and shown["user"] == USER
        assert "Cookie: [redacted]" in shown["request_head"]
        tunnel.send(b"G")
        answer = await ask(client, "connections")
        assert len(answer["connections"]) == 1
        assert "not one of" in await refusal(client, "connections", state="odd")


@pytest.mark.parametrize("token", ["guess", None])
async def test_without_the_token_nothing_is_read(start, tmp_path, token):
    # R59
    _, words = start()
    if token:
        (tmp_path / "guess").write_text(token)
        words += ("--token-file", tmp_path / "guess")
    async with served(*words, "--allow-writes") as client:
        open_to_all = {"metrics", "connections", "trace_connection", "trust_stores"}
        for name in (READING | WRITING | LISTENING | OPERATING) - open_to_all:
            assert "401" in await refusal(client, name, **ARGUMENTS.get(name, {})), name


async def test_a_read_only_listener_stays_so(start, tmp_path):
    _, words = start(token="")
    async with served(*words, "--token-file", tmp_path / "token") as client:
        assert "403" in await refusal(client, "list_flows")


async def test_a_replay_is_a_request_of_the_proxys_user(start, tmp_path, database):
    proxy, words = start()
    writing = ("--token-file", tmp_path / "token", "--allow-writes")
    who = ("--user", USER, "--password-file", tmp_path / "password")
    async with served(*words, *writing, *who) as client:
        answer = await ask(client, "replay_flow", id=1)
        assert (answer["status"], answer["body"]) == (200, "<b>x<")
        assert answer["left_out"] == ["Cookie"]
        answer = await ask(client, "replay_flow", id=1, method="PUT", body="x",
                          fields={"Cookie": "a=b", "Accept": ""})
        assert answer["status"] == 200 and answer["left_out"] == []
        refused = await ask(client, "replay_flow", id=1, url="http://192.0.2.1/")
        assert refused["status"] == 403
    second, third = wait_rows(database, 3)[1:3]
    assert second["user"] == USER and third["method"] == "PUT"
    async with served(*words, *writing) as client:
        assert (await ask(client, "replay_flow", id=1))["status"] == 407
    async with served("--db", database, "--allow-writes", *who, "--proxy",
                      f"127.0.0.1:{proxy.port}") as client:
        assert (await ask(client, "replay_flow", id=1))["status"] == 200


async def test_flows_are_changed_and_connections_cut(start, tmp_path, dial):
    proxy, words = start()
    kept = dial(proxy)
    kept.send(b"GET")
    async with served(*words, "--token-file", tmp_path / "token", "--allow-writes"
                      ) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == READING | WRITING | LISTENING | OPERATING
        await ask(client, "tag_flow", id=1, tag="seen")
        assert (await ask(client, "show_flow", id=1))["tag"] == "seen"
        (row,) = (await ask(client, "connections"))["connections"]
        assert await ask(client, "cut_connection", id=row["id"]) == {"cut": 1}
        assert await ask(client, "delete_flow", id=1) == {"deleted": 1}
        assert (await ask(client, "list_flows"))["flows"] == []


async def test_a_result_that_cannot_be_had_is_explained(start, tmp_path):
    async with served("--admin", "127.0.0.1:1") as client:
        assert "refused" in await refusal(client, "list_flows")
    _, words = start()
    async with served(*words, "--token-file", tmp_path / "token") as client:
        assert json.dumps("~x")[1:-1] in await refusal(
            client, "list_flows", filter="~x a")


async def test_several_clients_have_it_by_a_socket(start, tmp_path):
    """As docs/mcp.md says: a process for each of them, with the rights of the file."""
    _, words = start()
    command = shlex.join([sys.executable, "-m", "cutthrough", "mcp", *words,
                          "--token-file", str(tmp_path / "token")])
    (tmp_path / "run").write_text(f"#!/bin/sh\ncd {ROOT}\nexec {command}\n")
    (tmp_path / "run").chmod(0o700)
    path = tmp_path / "mcp.sock"
    door = await asyncio.create_subprocess_exec(
        "socat", f"UNIX-LISTEN:{path},umask=077,fork", f"EXEC:{tmp_path}/run",
        env=clean_environment())
    try:
        await asyncio.to_thread(wait_until, path.exists, "the socket")
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
        bridge = StdioServerParameters(command="socat",
                                       args=["-", f"UNIX-CONNECT:{path}"])
        async with Client(stdio_client(bridge)) as first, Client(
                stdio_client(bridge)) as second:
            for client in (first, second):
                (flow,) = (await ask(client, "list_flows"))["flows"]
                assert flow["method"] == "GET"
    finally:
        door.terminate()
        await door.wait()
