"""Which workers an attempt waits for."""

import asyncio
from unittest import mock

import pytest

from cutthrough.process.channel import Prepared
from cutthrough.supervisor import attempt
from cutthrough.supervisor.attempt import MOST_LOOKS, Attempt


@pytest.mark.parametrize(("cpu", "looks"), [
    ([0, 0], 1), ([0, 1, 2, 3, 3], 4), (range(99), MOST_LOOKS)])
def test_a_worker_that_computes_is_waited_for(monkeypatch, cpu, looks):
    """On a busy host no worker had answered in time, and a generation that none of them
    could apply was in force."""
    monkeypatch.setattr(attempt, "PREPARE_S", 0.0)
    cpu_of = mock.Mock(side_effect=list(cpu))
    monkeypatch.setattr(attempt, "cpu_of", cpu_of)

    async def run():
        over = asyncio.Event()
        child = mock.Mock(retired=False, first_generation=1)
        basis = mock.Mock()
        basis.generation.number = 2
        made = Attempt(mock.Mock(children={1: child}), basis, over.set, mock.Mock())
        made.begin(needs_new=False)
        await asyncio.wait_for(over.wait(), 60)
        assert cpu_of.call_count == looks + 1 and made.is_overdue
        made.commit()
    asyncio.run(run())


def test_a_late_refusal_refuses_the_attempt(monkeypatch):
    monkeypatch.setattr(attempt, "PREPARE_S", 0.0)
    made, reasons = None, []

    def cpu_of(_pid):
        """Each time another one; the worker answers at the third look."""
        reasons.append("")
        if len(reasons) == 4:
            made.on_prepared(child, Prepared(2, "no such module"))
        return object()
    monkeypatch.setattr(attempt, "cpu_of", cpu_of)
    child = mock.Mock(retired=False, first_generation=1)
    child.name = "worker 0"

    async def run():
        nonlocal made
        refused, ready = asyncio.Event(), mock.Mock()

        def refuse(reason):
            assert reason == "worker 0 cannot apply it: no such module"
            made.refuse()
            refused.set()
        basis = mock.Mock(memory=-1)
        basis.generation.number = 2
        made = Attempt(mock.Mock(children={1: child}), basis, ready, refuse)
        made.begin(needs_new=False)
        with mock.patch.object(attempt.os, "close"):
            await asyncio.wait_for(refused.wait(), 60)
        assert not ready.called
    asyncio.run(run())
