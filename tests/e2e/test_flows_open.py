"""`cutthrough flows open`, and `follow --open`: flows that have not ended."""

import json

import pytest
from websockets.frames import Opcode

from tests.support.flow_verbs import flows as flows
from tests.support.flow_verbs import following
from tests.support.flows import database as database
from tests.support.flows import start as start
from tests.support.open_flows import upgrade_at, wait_open
from tests.support.wait import wait_until
from tests.support.websockets import frame, parrot

pytestmark = pytest.mark.any_loop


@pytest.fixture
def talking(start, make_origin, dial, flows):
    """An operator of a proxy, a client with an open WebSocket, and its identifier."""
    proxy, operator = start()
    client = dial(proxy)
    upgrade_at(client, make_origin(parrot), "/a/chat")
    return operator, client, wait_open(operator)[0]["request"]


def test_open_flows_are_listed(talking, flows):
    operator, _, name = talking
    status, out, errors = flows(operator, "open")
    assert (status, errors) == (0, "")
    line = out.splitlines()[1].split()
    assert (line[0], line[3], line[4]) == (name, "GET", "101")
    assert line[-1].endswith("/a/chat")
    (one,) = map(json.loads, flows(operator, "open", "--json")[1].splitlines())
    assert one["open"] is True and one["request"] == name
    assert len(flows(operator, "open", "~u nothing")[1].splitlines()) == 1


def test_one_is_shown_as_far_as_it_has_come(talking, flows):
    operator, _, name = talking
    status, out, _ = flows(operator, "open", "--id", name)
    assert status == 0 and "Upgrade: websocket" in out
    assert "text (7 bytes) welcome" in out
    status, out, _ = flows(operator, "open", "--id", name, "--json")
    assert json.loads(out)["messages"][0]["text"] == "welcome"
    status, _, errors = flows(operator, "open", "--id", "0-99999")
    assert status == 1 and "no captured exchange 0-99999 is open" in errors
    assert flows(operator, "open", "--follow")[0] == 2


def test_its_messages_are_printed_until_it_ends(talking, tmp_path):
    operator, client, name = talking
    with following(operator, tmp_path, "--follow", "--id", name, action="open"
                   ) as (lines, process):
        wait_until(lambda: lines, lambda: process.poll())
        client.send(frame(Opcode.TEXT, b"zebra"))
        wait_until(lambda: len(lines) == 3, lambda: str(lines))
        client.send(frame(Opcode.TEXT, b"last"))
        client.close()
        assert process.wait(20) == 0
    assert [(line[0], line[-1]) for line in lines[:3]] == [
        ("<", "welcome"), (">", "zebra"), ("<", "zebra")]
    assert (">", "last") in [(line[0], line[-1]) for line in lines]


def test_follow_prints_a_flow_when_it_has_begun_and_when_it_has_ended(
        talking, tmp_path):
    operator, client, name = talking
    with following(operator, tmp_path, "--open") as (lines, process):
        wait_until(lambda: len(lines) == 2, lambda: process.poll())
        assert lines[1][0] == name and lines[1][4] == "101"
        client.close()
        wait_until(lambda: len(lines) == 3, lambda: str(lines))
        assert lines[2][0] == "1" and lines[2][4] == "101"


def test_a_database_has_no_open_ones(talking, flows, database):
    assert flows(database, "follow", "--open")[0] == 2
