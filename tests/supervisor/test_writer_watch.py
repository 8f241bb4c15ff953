"""A writer that hangs is noticed, and one that is slow is not."""

import asyncio
import subprocess

import pytest

from cutthrough.supervisor import writer_watch
from cutthrough.supervisor.writer_watch import MOST_STILL, WriterWatch


@pytest.fixture
def echoing():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          bufsize=0) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("moves", ["loop", "disk"])
def test_a_process_hangs_whose_loop_and_disk_do_not_move(monkeypatch, echoing, moves):
    monkeypatch.setattr(writer_watch, "LOOK_S", 0.001)
    looks, most = [], 3 * MOST_STILL

    async def run():
        hung = asyncio.Event()
        watch = WriterWatch(echoing.pid, beats, hung.set)
        await hung.wait()
        watch.end()

    def beats():
        looks.append(1)
        if moves == "disk" and len(looks) < most:
            echoing.stdin.write(b"x")
            assert echoing.stdout.read(1) == b"x"
        return min(len(looks), most) if moves == "loop" else 0

    asyncio.run(run())
    assert most + MOST_STILL - 1 <= len(looks) <= most + MOST_STILL + 1


def test_the_end_of_a_process_ends_its_watch(monkeypatch, echoing):
    monkeypatch.setattr(writer_watch, "LOOK_S", 0.001)

    async def run():
        looked = asyncio.Event()
        watch = WriterWatch(echoing.pid, lambda: looked.set() or 0, pytest.fail)
        await looked.wait()
        watch.end()
        handles = asyncio.get_running_loop()._scheduled
        assert all(handle.cancelled() for handle in handles)

    asyncio.run(run())
