"""Reasons of filters: any text is a refusal, with its status and a line of the log."""

import pytest

from tests.support.policies import LOCAL

COMPLAINS = """
    from urllib.parse import unquote

    class Complains:
        async def on_request_head(self, flow):
            if flow.request.path.startswith("/q"):
                flow.refuse(unquote(flow.request.path[2:], "utf-8", "surrogatepass"))

        async def on_response_head(self, flow):
            if flow.request.path.startswith("/a"):
                flow.refuse(unquote(flow.request.path[2:], "utf-8", "surrogatepass"))
"""

# In the path, in the reply, and in the log
REASONS = [
    ("no%20such%20thing", "no such thing", "no such thing"),
    ("x" * 90, "x" * 90, "x" * 61),
    ("%C3%A9%0D%0AX:%20y", "é??X: y", "???X: y"),
    ("%ED%A0%80", "?", "?"),
    ("x" * 5000, "x" * 997, "x" * 61),
]


@pytest.fixture
def complaining(start_policy):
    return start_policy(
        LOCAL.replace("[[rules]]", '[filters.c]\ncode = "complains:Complains"\n'
                      '[[rules]]\nfilters = ["c"]', 1),
        modules={"complains": COMPLAINS})


@pytest.mark.parametrize("side", ["q", "a"])
def test_a_reason_may_be_any_text(complaining, make_origin, dial, side):
    """One of more than 61 characters was an internal error: 500, and a traceback in the
    log for what an origin's header field had made long."""
    origin = make_origin()
    for path, sent, _ in REASONS:
        reply = dial(complaining).get(origin.url(f"/{side}{path}"))
        assert reply.status == 403 and reply.get("X") is None
        assert reply.body.decode().startswith(f"403 filter_refused: c: {sent}\n")
    records = complaining.wait_log(len(REASONS))
    assert {record["reason"] for record in records} == {"filter_refused"}
    assert [record["hook"] for record in records] == [
        f"c: {logged}" for *_, logged in REASONS]
    assert "internal error" not in complaining.stderr()
