"""A worker's process, without the data plane."""

import asyncio
from unittest import mock

from cutthrough.process.channel import Ready
from cutthrough.worker import process
from cutthrough.worker.process import WorkerProcess


def start(channel):
    worker = mock.Mock(drain=mock.AsyncMock())
    generation = mock.Mock()
    generation.config.drain_timeout = 30.0
    with mock.patch.object(process, "make_worker", return_value=worker):
        return WorkerProcess(channel, mock.Mock(listeners=()), generation, mock.Mock())


def sent(channel):
    return [type(call.args[0]) for call in channel.send.call_args_list]


def test_a_worker_with_a_signal_to_end_does_not_begin():
    """It reported that it serves, and ended: the worker that it was to replace had been
    retired by then, and its tunnels found nobody to take them over."""
    async def run():
        channel = mock.Mock()
        new = start(channel)
        new.on_signal()
        new.commit(2)
        await asyncio.wait_for(new.over.wait(), 60)
        assert sent(channel) == [] and not new.worker.begin.called
        await new.draining
    asyncio.run(run())


def test_a_worker_begins_when_it_is_told_to():
    async def run():
        channel = mock.Mock()
        new = start(channel)
        new.commit(2)
        assert sent(channel) == [Ready] and new.worker.begin.called
    asyncio.run(run())
