"""Reads of captured exchanges: the order of turns."""

import asyncio
import signal

import pytest

from cutthrough.capture.query import Query, QueryError
from cutthrough.supervisor import flow_queries
from cutthrough.supervisor.flow_queries import (
    MOST_READING_EACH,
    FlowQueries,
    QueryProcess,
)
from tests.capture.flows import row
from tests.support.flows import fill


class Program:
    generation = listeners = None


@pytest.fixture
def database(tmp_path):
    fill(tmp_path / "flows.db", [row(1, url="http://a.test/" + "x" * 40 + "!")])
    return str(tmp_path / "flows.db")


def test_twelve_slow_filters_of_a_reader_do_not_delay_another_s_list(
        monkeypatch, database):
    """R91. It was 9.8 s: they had all processes, twice."""
    events, begun, both = [], [], asyncio.Event()
    start = QueryProcess.start

    async def count():
        begun.append(await start())
        if len(begun) <= MOST_READING_EACH:      # calls of the slow reader
            begun[-1].process.send_signal(signal.SIGSTOP)
        if len(begun) == MOST_READING_EACH:
            both.set()
        return begun[-1]

    async def ask(queries, who):
        query = Query(verb="list", database=database, client=who)
        try:
            async with queries.ask(query) as (head, pieces):
                async for _ in pieces:
                    pass
                events.append((who, head.status))
        except QueryError as error:
            events.append((who, str(error)))

    async def run():
        queries = FlowQueries(Program())
        try:
            slow = [asyncio.create_task(ask(queries, "eve at 127.0.0.1"))
                    for _ in range(12)]
            await asyncio.wait_for(both.wait(), 60)
            for who in ("ann at 127.0.0.1", "127.0.0.1", "127.0.0.2"):
                await ask(queries, who)
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)
            assert not queries._lines.waiting
        finally:
            queries.close()
    monkeypatch.setattr(flow_queries, "ANSWER_S_OF", {})
    monkeypatch.setattr(QueryProcess, "start", count)
    asyncio.run(run())
    assert events[:3] == [
        ("ann at 127.0.0.1", 200), ("127.0.0.1", 200), ("127.0.0.2", 200)]
    assert all(who == "eve at 127.0.0.1" for who, _ in events[3:])
