"""A process that hangs is noticed, and one that is slow is not."""

import asyncio
import signal
import subprocess
import sys

import psutil
import pytest

from cutthrough.process import hang_watch
from cutthrough.process.hang_watch import MOST_STILL, HangWatch, cpu_of, moved_by
from tests.support.wait import wait_until


@pytest.fixture
def echoing():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          bufsize=0) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("moves", ["loop", "disk"])
def test_a_process_hangs_whose_loop_and_disk_do_not_move(monkeypatch, echoing, moves):
    monkeypatch.setattr(hang_watch, "LOOK_S", 0.001)
    looks, most = [], 3 * MOST_STILL

    async def run():
        hung = asyncio.Event()
        watch = HangWatch(lambda: (beats(), moved_by(echoing.pid)), hung.set)
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
    monkeypatch.setattr(hang_watch, "LOOK_S", 0.001)

    async def run():
        looked = asyncio.Event()
        watch = HangWatch(looked.set, pytest.fail)
        await looked.wait()
        watch.end()
        handles = asyncio.get_running_loop()._scheduled
        assert all(handle.cancelled() for handle in handles)

    asyncio.run(run())


def test_what_computes_uses_cpu_time_and_what_is_stopped_does_not():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        begun = cpu_of(process.pid)
        wait_until(lambda: cpu_of(process.pid) != begun, "a tick")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == "stopped", "a stop")
        assert cpu_of(process.pid) == cpu_of(process.pid)
        process.kill()
    assert cpu_of(process.pid) != cpu_of(process.pid)        # it has gone
