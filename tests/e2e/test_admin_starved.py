"""The admin listener of a supervisor that has no descriptor left (R32)."""

import contextlib

import pytest

from tests.support.admin import SAMPLE, administered
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


class Supervisor:
    """The part of a proxy that `exhaust` looks at."""

    def __init__(self, process) -> None:
        self.worker = process


@pytest.fixture
def short(opened, directory, loop_name, exhaust):
    """An operator of a proxy, and a connection from before its supervisor had no
    descriptor left."""
    proxy, operator = administered(opened, directory("starved"), loop_name)
    before = opened.enter_context(contextlib.closing(operator.connection()))
    before.request("GET", "/metrics")
    assert before.getresponse().read()
    exhaust(Supervisor(proxy.process))
    return proxy, operator, before


def test_metrics_are_answered_on_a_connection_from_before(short):
    """It was a 500: every file of /proc takes a descriptor."""
    _, _, before = short
    before.request("GET", "/metrics")
    answer = before.getresponse()
    assert answer.status == 200
    assert "cutthrough_process_open_fds" in answer.read().decode()


def test_callers_are_answered_and_make_room_for_the_next(short):
    """No caller was accepted: asyncio let them wait, libuv closed them at once."""
    proxy, operator, _ = short
    for _ in range(12):
        samples = {name for name, _, _ in SAMPLE.findall(operator.get("/metrics"))}
        assert {"cutthrough_process_open_fds", "cutthrough_worker_up"} <= samples
    assert operator.answers()
    assert proxy.process.poll() is None


def test_callers_that_ask_for_nothing_do_not_keep_others_out(short, opened):
    _, operator, _ = short
    for _ in range(10):
        mute = opened.enter_context(contextlib.closing(operator.connection()))
        mute.connect()
    wait_until(operator.answers, "an answer beside them")
