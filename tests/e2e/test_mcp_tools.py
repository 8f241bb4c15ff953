"""Each tool and each resource of `cutthrough mcp`, tried by the SDK's client beside a
proxy that captures, records and has breakpoints."""

import asyncio

import pytest

from tests.support.admin import TOKEN, administered
from tests.support.breakpoints import send
from tests.support.captures import wait_rows
from tests.support.client import PASSWORD, USER
from tests.support.flows import HELLO
from tests.support.mcp_tools import ask, served
from tests.support.origin import answer
from tests.support.verbs import run_verb

pytestmark = pytest.mark.any_loop

POLICY = """
default = "deny"
[[rules]]
name = "recorded"
action = "allow"
addresses = ["127.0.0.0/8"]
paths = ["/recorded"]
recording = "record"
[[rules]]
name = "held"
action = "allow"
addresses = ["127.0.0.0/8"]
paths = ["/held"]
breakpoint = "request"
capture = "full"
[[rules]]
name = "seen"
action = "allow"
addresses = ["127.0.0.0/8"]
paths = ["/", "/a/**"]
capture = "full"
"""


class Called:
    """A client that keeps the names of the tools that it has called."""

    def __init__(self, client) -> None:
        self.client, self.names = client, set()

    async def __call__(self, name, **given):
        self.names.add(name)
        return await ask(self.client, name, **given)


@pytest.fixture
def start(loop_name, directory, opened, tmp_path, make_origin):
    """A proxy, its database, an origin, and the words for `cutthrough mcp`."""
    def run():
        database = tmp_path / "flows.db"
        (tmp_path / "policy.toml").write_text(POLICY)
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "password").write_text(PASSWORD)
        (tmp_path / "sessions").mkdir()
        run_verb("ca", "init", "--dir", str(tmp_path / "ca"))
        config = (f'capture_file = "{database}"\npolicy = "{tmp_path}/policy.toml"\n'
                  f'recording_directory = "{tmp_path}/sessions"\n'
                  f'ca_certificate = "{tmp_path}/ca/ca.pem"\n')
        (tmp_path / "proxy.toml").write_text(
            f'user = "{USER}"\npassword = "{PASSWORD}"\n{config}')
        proxy, operator = administered(
            opened, directory("proxy"), loop_name, config)
        return proxy, database, make_origin(answer(HELLO)), (
            "--admin", f"127.0.0.1:{operator.where}", "--token-file",
            tmp_path / "token", "--user", USER, "--password-file",
            tmp_path / "password", "-c", tmp_path / "proxy.toml", "--log",
            proxy.log_path, "--allow-writes")
    return run


async def test_each_tool_and_each_resource_answers(start, dial):
    proxy, database, origin, words = start()
    with dial(proxy) as client:
        for _ in range(2):
            client.ask("GET", origin.url("/a/b"), "Cookie: id=s3cret")
        client.ask("GET", origin.url("/recorded"))
        client.ask("GET", origin.url("/refused"))
    wait_rows(database, 2)
    async with served(*words) as client:
        call = Called(client)
        await read_flows(call)
        await look_at_what_is_open(call, dial(proxy), origin)
        await hold_a_message(call, dial(proxy), origin)
        await stop_and_start(call, proxy, database, origin, dial)
        await send_and_change(call, origin)
        assert (await call("explain", method="GET", target=origin.url("/refused"))
                )["outcome"] == "path_denied"
        assert "a rule refuses the path" in (await call("suggest"))["policy"]
        for one in (await client.list_resources()).resources:
            (content,) = (await client.read_resource(str(one.uri))).contents
            assert content.text and "s3cret" not in content.text, one.uri
        listed = {one.name for one in (await client.list_tools()).tools}
        assert call.names == listed and len(listed) >= 21


async def read_flows(call):
    """R79: no value that a capture leaves out is in a result."""
    assert len((await call("list_flows"))["flows"]) == 2
    assert len((await call("search_flows", words="127"))["flows"]) <= 2
    (host,) = (await call("hosts"))["hosts"]
    assert host["count"] == 2
    assert len((await call("slowest_flows"))["flows"]) == 2
    assert (await call("failures"))["failures"] == []
    assert (await call("statistics"))["count"] == 2
    shown = await call("show_flow", id=1)
    assert "Cookie: [redacted]" in shown["request_head"]
    assert (await call("read_body", id=1, side="response"))["text"] == "<b>x<"
    assert (await call("read_messages", id=1))["of"] == 0
    entries = (await call("export_har"))["log"]["entries"]
    assert len(entries) == 2 and "s3cret" not in str(entries)
    assert (await call("copy_flow", id=1))["text"].startswith("# not kept: Cookie\n")
    assert (await call("diff_flows", id=1, other=2))["diff"] == ""
    assert (await call("reads"))["reads"][0]["verb"] == "diff"


async def look_at_what_is_open(call, client, origin):
    client.send(b"GET")
    connections = []
    while not connections:          # its number comes with its first byte
        connections = [row for row in (await call("connections"))["connections"]
                       if row["id"]]
    (one,) = connections
    assert (await call("trace_connection", id=one["id"]))["id"] == one["id"]
    assert (await call("open_flows"))["flows"] == []
    assert (await call("proxy_status"))["status"][0] == "ready"
    assert (await call("metrics", prefix="worker_up"))["metrics"]
    assert "system" in {
        store["kind"] for store in (await call("trust_stores"))["stores"]}
    assert {one["name"] for one in (await call("sessions"))["sessions"]} == {"default"}
    assert "recordings" in await call("recordings", session="default")
    assert (await call("replay_misses"))["missed"] == 0
    assert await call("cut_connection", id=one["id"]) == {"cut": 1}


async def hold_a_message(call, client, origin):
    await call("arm_breakpoints", seconds=60, methods=["POST"], paths=["/held"])
    send(client, "GET", origin.url("/held"))
    assert (await asyncio.to_thread(client.read_response)).status == 200
    assert (await call("held_messages"))["armed_for"] == {
        "methods": ["POST"], "paths": ["/held"]}
    armed = await call("arm_breakpoints", seconds=60, paths=["/held"])
    assert armed["armed_s"] > 50 and armed["armed_for"] == {"paths": ["/held"]}
    send(client, "GET", origin.url("/held"), "X-Old: 1")
    held = []
    async with asyncio.timeout(60):
        while not held:
            held = (await call("held_messages"))["held"]
    name = held[0]["id"]
    assert ["X-Old", "1"] in (await call("show_held", id=name))["fields"]
    await call("decide_held", id=name, action="edit", path="/held",
               fields={"X-Old": "", "X-New": "2"})
    assert (await asyncio.to_thread(client.read_response)).status == 200
    assert origin.requests[-1].get("X-New") == "2"
    assert origin.requests[-1].get("X-Old") is None
    await call("arm_breakpoints", seconds=0)


async def stop_and_start(call, proxy, database, origin, dial):
    """A request that begins between the two is not captured."""
    wait_rows(database, 4)
    assert await call("stop_capture") == {"paused": True, "unanswered": []}
    assert (await call("proxy_status"))["capture"] == {
        "configured": True, "paused": True}
    assert dial(proxy).get(origin.url("/a/paused")).status == 200
    assert await call("start_capture") == {"paused": False, "unanswered": []}
    assert dial(proxy).get(origin.url("/a/again")).status == 200
    names = [row["url"].rpartition("/")[2] for row in wait_rows(database, 5)]
    assert names == ["b", "b", "held", "held", "again"]


async def send_and_change(call, origin):
    assert (await call("send_request", url=origin.url("/a/sent"), method="PUT",
                       body="x"))["status"] == 200
    assert (await call("replay_flow", id=1))["left_out"] == ["Cookie"]
    assert (await call("tag_flow", id=1, tag="seen")) == {"marked": 1}
    assert await call("delete_flow", id=2) == {"deleted": 1}
