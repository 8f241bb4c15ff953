"""Capture, paused and begun again by an operator while the proxy serves."""

import json
import os
import signal
import threading

import pytest

from tests.support.admin import AUTHORIZED
from tests.support.breakpoints import send
from tests.support.captures import wait_rows, writer
from tests.support.flows import HELLO
from tests.support.flows import database as database
from tests.support.flows import start as start
from tests.support.origin import answer
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def switch(operator, paused: bool, **fields: str) -> tuple[int, str]:
    connection = operator.connection()
    connection.request("POST", "/flows/capture", json.dumps({"paused": paused}),
                       fields or AUTHORIZED)
    reply = connection.getresponse()
    status, text = reply.status, reply.read().decode()
    connection.close()
    return status, text


def turn(operator, paused: bool) -> None:
    status, text = switch(operator, paused)
    assert (status, json.loads(text)) == (200, {"paused": paused, "unanswered": []})


def names(rows) -> list[str]:
    return [row["url"].rpartition("/")[2] for row in rows]


def test_what_begins_while_it_is_paused_is_not_captured(
        start, database, make_origin, dial):
    """A request that began before is captured to its end, and one that began meanwhile
    is not, whenever it ends."""
    proxy, operator = start()
    may_answer = threading.Event()

    def wait(conn):
        conn.read_request()
        may_answer.wait(60)
        conn.send(HELLO)

    quick, slow = make_origin(answer(HELLO)), make_origin(wait)
    before, meanwhile = dial(proxy), dial(proxy)
    send(before, "GET", slow.url("/a/before"))
    slow.wait_requests(1)
    turn(operator, True)
    send(meanwhile, "GET", slow.url("/a/meanwhile"))
    slow.wait_requests(2)
    assert dial(proxy).get(quick.url("/a/quick")).status == 200
    turn(operator, False)
    may_answer.set()
    assert before.read_response().status == meanwhile.read_response().status == 200
    proxy.wait_log(3)
    assert dial(proxy).get(quick.url("/a/after")).status == 200
    assert names(wait_rows(database, 2)) == ["before", "after"]
    wait_until(lambda: "capture: begun again by" in proxy.stderr(), "the error log")


def test_a_new_worker_is_told(start, database, make_origin, dial):
    proxy, operator = start("workers = 1\n")
    origin = make_origin(answer(HELLO))
    turn(operator, True)
    (pid,) = [one.pid for one in proxy.workers() if one.pid != writer(proxy).pid]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: operator.metrics()['worker_deaths_total{worker="0"}'] == 1,
               "its death")
    wait_until(lambda: operator.metrics()['worker_up{worker="0"}'], "the next one")
    operator.connections()                   # it answers after what it was told before
    assert dial(proxy).get(origin.url("/a/paused")).status == 200
    turn(operator, False)
    assert dial(proxy).get(origin.url("/a/again")).status == 200
    assert names(wait_rows(database, 1)) == ["again"]


def test_it_takes_the_right_to_change_flows(start):
    _, operator = start()
    assert switch(operator, True, Authorization="Bearer guess")[0] == 401
    status, text = operator.ask("GET", "/flows/capture", **AUTHORIZED)
    assert (status, json.loads(text)) == (200, {"configured": True, "paused": False})
