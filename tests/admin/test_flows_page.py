"""The stream of captured flows, without a listener."""

import asyncio
from types import SimpleNamespace

import pytest

from cutthrough.admin import flows_page
from cutthrough.admin.flows_page import FlowsPage
from cutthrough.capture.query import Answer, QueryError


def test_a_stream_ends_when_its_database_is_away_and_keeps_its_place(monkeypatch):
    """The reason went to watchers as an event, and then all flows came once more; a
    file that was moved away for a moment is waited for."""
    monkeypatch.setattr(flows_page, "LOOK_S", 0.0)
    # The test answers in place of all four
    page = FlowsPage(None, None, None, None)  # type: ignore[arg-type]
    answers = iter([(Answer(last=5), b""), (Answer(status=404), b"nothing\n"),
                    (Answer(last=6, found=1), b"[1]"), (Answer(status=503), b"away\n")])
    after, events = [], []

    async def read(query):
        after.append(query)
        return next(answers)

    async def write(event):
        events.append(event)

    monkeypatch.setattr(page, "read", read)
    monkeypatch.setattr(page, "query", lambda request, verb, after: after)
    watcher = SimpleNamespace(
        query={}, transport=SimpleNamespace(is_closing=lambda: False))
    with pytest.raises(QueryError, match="away"):
        asyncio.run(page._follow(watcher, SimpleNamespace(write=write), 5))
    assert (after, events) == ([5, 5, 5, 6], [b"data: [1]\n\n"])
