"""Workers keep to their CPUs: after a death, a reload and an upgrade too."""

import contextlib
import os
import subprocess
import sys

import psutil
import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import from_options, load
from cutthrough.config.values import parse_cpus, show_cpus
from cutthrough.process import cpus
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.successors import end, end_all, successor_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

OURS = sorted(os.sched_getaffinity(0))
TWO = pytest.mark.skipif(len(OURS) < 2, reason="takes two CPUs")
EACH = [[cpu] for cpu in OURS[:2]]


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text: opened.enter_context(
        Proxy(directory("proxy"), loop=loop_name, config=text))


def pinned(processes) -> list[list[int]]:
    """The CPUs of each process, with every thread of it agreeing."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            threads = {tuple(sorted(os.sched_getaffinity(thread.id)))
                       for thread in process.threads()}
            assert len(threads) == 1, "threads of one worker on different CPUs"
            found.append(list(threads.pop()))
    return sorted(found)


# The text

@pytest.mark.parametrize(("text", "cpus"), [
    ("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("3, 1", (3, 1)), ("8,0-1", (8, 0, 1))])
def test_a_list_of_cpus_keeps_its_order(text, cpus):
    assert parse_cpus(text) == cpus == parse_cpus(show_cpus(cpus))


@pytest.mark.parametrize("text", [
    "", ",", "0,", "1-0", "-1", "0-", "a", "0-1-2", "0,0", "0-3,2", "10000", "+1"])
def test_what_is_no_list_of_cpus_is_refused(text):
    with pytest.raises(ConfigError) as caught:
        load([f"--pin={text}"])
    assert caught.value.key == "--pin"


# Which one

def test_workers_without_a_number_are_as_many_as_the_cpus_they_are_pinned_to():
    assert cpus.count_workers(from_options(pin=str(OURS[0]))) == 1
    assert cpus.count_workers(from_options(pin="auto")) == len(OURS)
    assert cpus.count_workers(from_options(pin=str(OURS[0]), workers=3)) == 3


def test_slots_take_the_cpus_in_turn():
    config = from_options(pin="auto", workers=2 * len(OURS))
    taken = [cpus.cpu_of(config, slot) for slot in range(2 * len(OURS))]
    assert sorted(taken[:len(OURS)]) == OURS and taken[len(OURS):] == taken[:len(OURS)]
    assert cpus.cpu_of(from_options(pin="off"), 0) is None


def test_threads_of_one_core_come_last(monkeypatch):
    cores = {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2"}
    monkeypatch.setattr(cpus, "siblings", cores.__getitem__)
    assert cpus.cores_first((0, 1, 2, 4, 5)) == (0, 1, 2, 4, 5)
    cores = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
    monkeypatch.setattr(cpus, "siblings", cores.__getitem__)
    assert cpus.cores_first((0, 1, 2, 3)) == (0, 2, 1, 3)


def run(verb: str, *flags: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "cutthrough", verb, *flags], cwd=ROOT,
        capture_output=True, text=True, timeout=30, env=clean_environment())
    return done.returncode, done.stderr


@pytest.mark.parametrize("verb", ["check", "serve"])
def test_a_cpu_that_is_not_there_is_refused(verb):
    status, said = run(verb, "--pin", "9999", "--listen", "127.0.0.1:0")
    assert (status, said) == (
        2, "cutthrough: command line: --pin: this host has no CPU 9999\n")


@TWO
@pytest.mark.parametrize("verb", ["check", "serve"])
def test_a_cpu_that_is_not_ours_is_refused(verb):
    """A cpuset, or taskset."""
    status, said = run(verb, "--pin", str(OURS[1]), "--listen", "127.0.0.1:0",
                       prefix=("taskset", "-c", str(OURS[0])))
    assert (status, said) == (
        2, f"cutthrough: command line: --pin: CPU {OURS[1]} is not available to this "
        f"process, which may use {OURS[0]}\n")


def test_a_cpu_that_went_away_stops_no_worker(caplog):
    cpus.pin(from_options(pin="9999"), 0)
    assert caplog.messages == [
        "the worker is not pinned to a CPU: pin: this host has no CPU 9999"]


# Workers on their CPUs

@TWO
def test_workers_are_pinned_and_the_supervisor_is_not(start):
    proxy = start(f'pin = "{OURS[1]},{OURS[0]}"\nworkers = "auto"\n')
    assert pinned(proxy.workers()) == EACH
    assert os.sched_getaffinity(proxy.process.pid) == set(OURS)
    assert f", pinned to CPUs {show_cpus(OURS[:2])}" in proxy.banner


def test_one_worker_on_one_cpu_is_said_so(start):
    proxy = start(f'pin = "{OURS[-1]}"\n')
    assert pinned(proxy.workers()) == [[OURS[-1]]]
    assert proxy.banner.endswith(f", pinned to CPU {OURS[-1]}")


@TWO
def test_a_respawned_worker_keeps_to_the_cpu_of_its_slot(start):
    proxy = start(f'pin = "{OURS[0]},{OURS[1]}"\nworkers = 2\n')
    before = {worker.pid for worker in proxy.workers()}
    victim = psutil.Process(min(before))
    victim.kill()
    wait_until(lambda: len({w.pid for w in proxy.workers()} - before) == 1
               and pinned(proxy.workers()) == EACH, "a successor on its CPU")


@TWO
def test_a_reload_pins_and_lets_go(start):
    proxy = start('workers = 2\n')
    assert pinned(proxy.workers()) == [OURS, OURS]
    told = proxy.reload(f'workers = 2\npin = "{OURS[1]}"\n')
    assert told == f"generation 2: pin off -> {OURS[1]}"
    wait_until(lambda: pinned(proxy.workers()) == [[OURS[1]]] * 2, "both on one")
    assert "reload refused" in proxy.reload('workers = 2\npin = "9999"\n')
    assert pinned(proxy.workers()) == [[OURS[1]]] * 2
    proxy.reload("workers = 2\n")
    wait_until(lambda: pinned(proxy.workers()) == [OURS, OURS], "free again")


@TWO
def test_a_successor_pins_its_workers_anew(start, opened):
    proxy = start(f'pin = "{OURS[0]},{OURS[1]}"\nworkers = 2\n')
    new = successor_of(proxy)
    opened.callback(end_all, new)
    assert pinned(new.children()) == EACH
    assert os.sched_getaffinity(new.pid) == set(OURS)
    assert proxy.process.wait(60) == 0
    end(new)
