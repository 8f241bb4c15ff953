"""An upgrade whose new program cannot begin: what is the old one's stays as it was."""

import os
import signal
import stat
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.successors import end_family, successor_of
from tests.support.wait import wait_until
from tests.support.worker_patches import PATCH

# While `wait` exists in a folder, the first worker that starts makes a file some turns
# of its loop after it has prepared; each further one waits, and then exits with 1
SECOND_FAILS = PATCH + """
import os
folder = {folder!r}

def report(worker, before):
    import asyncio
    before(worker)
    asyncio.get_running_loop().call_later(
        0.1, lambda: open(folder + "/prepared", "w").close())

if "cutthrough.worker.main" in sys.orig_argv and os.path.exists(folder + "/wait"):
    try:
        os.mkdir(folder + "/first")
        patch("open", report)
    except FileExistsError:
        while os.path.exists(folder + "/wait"):
            time.sleep(0.01)                 # the end of a file has no event
        os._exit(1)
"""

pytestmark = pytest.mark.any_loop


@pytest.fixture
def folder(directory) -> Path:
    return directory("site")


@pytest.fixture
def start(loop_name, directory, opened, folder):
    def make(text: str) -> Proxy:
        proxy = opened.enter_context(Proxy(
            directory("proxy"), loop=loop_name, config=text,
            env={"PYTHONPATH": str(folder)}))
        opened.callback(end_family, str(proxy._config))
        return proxy
    return make


def wait_failed(proxy: Proxy) -> None:
    wait_until(lambda: "upgrade failed, this program continues" in proxy.stderr(),
               proxy.stderr)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def queue_of(port: int) -> int:
    """How many connections the kernel queues for those who accept (ss(8), Send-Q)."""
    return int(subprocess.run(
        ["ss", "-Hltn", f"sport = :{port}"], check=True, capture_output=True,
        text=True).stdout.split()[2])


def successor(proxy: Proxy) -> psutil.Process:
    """The new program, which does not serve yet."""
    config = str(proxy.config_file)
    return next(child for child in psutil.Process(proxy.process.pid).children()
                if config in child.cmdline())


def test_no_connection_is_lost_with_the_new_program(start, folder, make_origin, dial):
    """Its workers accepted connections as soon as each was prepared, and ended with
    them when another could not start."""
    (folder / "sitecustomize.py").write_text(SECOND_FAILS.format(folder=str(folder)))
    proxy, origin = start("workers = 2\n"), make_origin(echo)
    (folder / "wait").touch()
    proxy.signal(signal.SIGUSR2)
    wait_until((folder / "prepared").exists, proxy.stderr)
    tunnels = [dial(proxy).tunnel(origin.authority) for _ in range(30)]
    for tunnel in tunnels:
        tunnel.send(b"hello")
        assert tunnel.read_exact(5) == b"hello"
    (folder / "wait").unlink()
    wait_failed(proxy)
    for tunnel in tunnels:
        tunnel.send(b"again")
        assert tunnel.read_exact(5) == b"again"
    assert successor_of(proxy).is_running(), "and the next upgrade succeeds"
    for tunnel in tunnels:
        tunnel.send(b"moved")
        assert tunnel.read_exact(5) == b"moved"


def test_a_program_that_is_killed_leaves_the_sockets_as_they_were(
        start, folder, opened):
    """It cannot give back what it has changed."""
    (folder / "hook.py").write_text(
        "import os, sys, time\n"
        "async def decide(request): pass\n"
        f"while os.path.exists({str(folder / 'wait')!r}) and (\n"
        "        'cutthrough.worker.main' in sys.orig_argv):\n"
        "    time.sleep(0.01)            # the end of a file has no event\n")
    path = folder / "socket"
    text = ('policy_hook = "hook:decide"\n'
            '[[listeners]]\naddress = "127.0.0.1:0"\nbacklog = 77\n'
            f'[[listeners]]\naddress = "unix:{path}"\nauth = "none"\nmode = "666"\n')
    proxy = start(text)
    (folder / "wait").touch()
    opened.callback((folder / "wait").unlink)        # its workers end then
    proxy.write_config(text.replace("666", "600").replace("77", "55"))
    proxy.signal(signal.SIGUSR2)
    wait_until(lambda: (queue_of(proxy.port), mode_of(path)) == (55, 0o600),
               lambda: (queue_of(proxy.port), mode_of(path), proxy.stderr()))
    successor(proxy).kill()
    wait_failed(proxy)
    assert (queue_of(proxy.port), mode_of(path)) == (77, 0o666)


def test_a_sockets_file_keeps_its_mode(start, folder):
    """It had the mode that the new program wants."""
    (folder / "hook.py").write_text(
        "import os, sys\n"
        "async def decide(request): pass\n"
        f"if os.path.exists({str(folder / 'breaks')!r}) and (\n"
        "        'cutthrough.worker.main' in sys.orig_argv):\n"
        "    raise RuntimeError('no')\n")
    path = folder / "socket"
    text = ('policy_hook = "hook:decide"\n'
            '[[listeners]]\naddress = "127.0.0.1:0"\n'
            f'[[listeners]]\naddress = "unix:{path}"\nauth = "none"\nmode = "666"\n')
    proxy = start(text)
    (folder / "breaks").touch()
    proxy.write_config(text.replace("666", "600"))
    proxy.signal(signal.SIGUSR2)
    wait_failed(proxy)
    assert mode_of(path) == 0o666
