"""Workers that die while others live, and start anew: who serves their callers."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.handovers import RENEW, pids
from tests.support.proxy import Proxy
from tests.support.wait import wait_until
from tests.support.worker_patches import PATCH

pytestmark = pytest.mark.any_loop

# For new workers, by the files in a folder: `die` ends them as they begin, `hold` has
# them wait while it exists
STARTS = """
import os, sys, time
folder = {folder!r}
if "cutthrough.worker.main" in sys.orig_argv:
    if os.path.exists(folder + "/die"):
        os._exit(9)
    while os.path.exists(folder + "/hold"):
        time.sleep(0.01)                     # the end of a file has no event
"""
# `die` ends them when they are to accept connections, `hold` has them wait then
BEGINS = PATCH + """
import os
folder = {folder!r}

def begin(worker, before):
    open(folder + "/begins", "w").close()
    if os.path.exists(folder + "/die"):
        os._exit(9)
    while os.path.exists(folder + "/hold"):
        time.sleep(0.01)                     # the end of a file has no event
    before(worker)

if "cutthrough.worker.main" in sys.orig_argv and (
        os.path.exists(folder + "/die") or os.path.exists(folder + "/hold")):
    patch("begin", begin)
"""


@pytest.fixture
def folder(directory) -> Path:
    return directory("site")


@pytest.fixture
def start(loop_name, directory, opened, folder):
    """A proxy whose workers heed the files in `folder`."""
    def make(code: str, text: str = "workers = 2\n") -> Proxy:
        (folder / "sitecustomize.py").write_text(code.format(folder=str(folder)))
        return opened.enter_context(Proxy(
            directory("proxy"), loop=loop_name, config=text,
            env={"PYTHONPATH": str(folder)}))
    return make


def test_workers_serve_on_while_their_replacements_die(start, folder, make_origin):
    """Their sockets were taken from them: after a reload whose new workers could not
    begin, every connection was refused."""
    proxy, url = start(BEGINS), make_origin().url()
    old = pids(proxy)
    (folder / "die").touch()                 # as a lack of memory does
    proxy.write_config("workers = 2\n" + RENEW.format(1234))
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: proxy.stderr().count("in 0.1 s") == 2, proxy.stderr)
    for _ in range(20):
        with proxy.client() as client:
            assert client.get(url).status == 200
    assert old <= pids(proxy)


def test_the_last_slot_keeps_its_callers(start, folder, make_origin, dial):
    """Each slot left its callers to the other's worker, which had not started yet:
    connections were refused."""
    proxy, url = start(STARTS), make_origin().url()
    one, two = sorted(pids(proxy))
    (folder / "die").touch()
    os.kill(two, signal.SIGKILL)
    wait_until(lambda: "in 0.1 s" in proxy.stderr(), proxy.stderr)
    (folder / "hold").touch()
    (folder / "die").unlink()
    wait_until(lambda: len(pids(proxy)) == 2, proxy.stderr)      # the replacement
    before, deaths = pids(proxy), proxy.stderr().count(" died: ")
    os.kill(one, signal.SIGKILL)
    (young,) = wait_until(lambda: pids(proxy) - before, proxy.stderr)
    os.kill(young, signal.SIGKILL)
    wait_until(lambda: proxy.stderr().count(" died: ") == deaths + 2, proxy.stderr)
    callers = [dial(proxy) for _ in range(20)]
    (folder / "hold").unlink()
    assert {caller.get(url).status for caller in callers} == {200}


def test_a_worker_that_dies_as_it_is_replaced_is_replaced_once(start, folder):
    """Another replacement was started beside the one of the reload, and drained it."""
    proxy = start(BEGINS, "workers = 1\n")
    (old,) = pids(proxy)
    (folder / "hold").touch()
    proxy.write_config("workers = 1\n" + RENEW.format(1234))
    proxy.signal(signal.SIGHUP)
    wait_until((folder / "begins").exists, proxy.stderr)         # committed, not ready
    (new,) = pids(proxy) - {old}
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: f"(pid {old}) died" in proxy.stderr(), proxy.stderr)
    assert pids(proxy) == {new}
    (folder / "hold").unlink()
    wait_until(lambda: "generation 2: " in proxy.stderr(), proxy.stderr)
    assert pids(proxy) == {new}
    assert (f"(pid {old}) died: signal SIGKILL; its replacement is starting already\n"
            in proxy.stderr())
