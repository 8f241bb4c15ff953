"""Filters and recording in one rule: calls of gRPC in step, and WebSockets."""

import pytest

from tests.support.grpc_service import Talk, error_of, grpc
from tests.support.grpc_service import channel as channel
from tests.support.grpc_service import replay as replay
from tests.support.grpc_service import server as server
from tests.support.inside import config as inside
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

MODULE = """
class Mark:
    async def on_request_head(self, flow):
        flow.request.headers["x-key"] = "sk-secret-0123456789"

    async def on_response_head(self, flow):
        flow.response.headers["x-filtered"] = "yes"
"""


@pytest.fixture
def proxy(start):
    return start("record", 'tls = "intercept"\nfilters = ["mark"]\n'
                 '[filters.mark]\ncode = "marks:Mark"\n', inside(),
                 modules={"marks": MODULE})


def marked(call):
    return dict(call.initial_metadata()).get("x-filtered")


def say_and_hear(channel):
    call = Talk(channel)
    heard = call.ask(b"one") + call.ask(b"two")
    mark = marked(call.call)
    return heard, mark, call.end()


def test_a_call_is_replayed_in_step_through_the_filters_of_its_response(
        channel, replay, proxy):
    said = say_and_hear(channel)
    assert said[:2] == ([b"ONE", b"eno", b"TWO", b"owt"], "yes")
    replay(1)
    for _ in range(2):
        assert say_and_hear(channel) == said
    assert {line["reason"] for line in proxy.wait_log(2)} == {"replayed"}


def test_calls_of_other_kinds_and_misses(channel, replay, proxy):
    def both():
        echo, call = channel.unary_unary("/t.T/Echo").with_call(b"hello", timeout=20)
        return echo, marked(call), list(
            channel.unary_stream("/t.T/Count")(b"50", timeout=20))
    live = both()
    assert live[1] == "yes"
    replay(2)
    assert both() == live
    late = Talk(channel, "/t.T/Other")
    code, _ = error_of(late.hear)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert [line["reason"] for line in proxy.wait_log(3)] == [
        "replayed", "replayed", "recording_missed"]
