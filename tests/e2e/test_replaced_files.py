"""The program's files are replaced while it runs, and before the upgrade (R90)."""

import os
import shutil
import signal
from pathlib import Path

import pytest

import cutthrough
from tests.support.proxy import Proxy
from tests.support.successors import end_all, successor_of
from tests.support.wait import wait_until

LINE = ("cutthrough: the program's files were replaced since it started, and no "
        "process of it can be started: send USR2 to upgrade\n")
PACKAGE = Path(cutthrough.__file__).parent


@pytest.fixture
def installed(directory) -> Path:
    """A copy of the package: its files are links."""
    folder = directory("installed")
    shutil.copytree(PACKAGE, folder / "cutthrough", copy_function=os.symlink,
                    ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def start(loop_name, directory, opened, installed):
    return lambda text: opened.enter_context(Proxy(
        directory("proxy"), loop=loop_name, config=text,
        command=("-P", "-m", "cutthrough", "serve"),
        env={"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}))


def replace(installed: Path) -> None:
    """The next version has one more field in the first message to workers."""
    file = installed / "cutthrough/process/channel.py"
    text = file.read_text().replace(
        "    slot: int\n", "    slot: int\n    news: int\n", 1)
    file.unlink()
    file.write_text(text)


def pids(proxy: Proxy) -> set[int]:
    return {worker.pid for worker in proxy.workers()}


def test_a_worker_that_dies_then_is_not_followed_by_the_next_version(
        start, installed, make_origin, dial):
    """Its replacements could not read the first message, and died in a loop."""
    proxy = start("workers = 2\n")
    before = pids(proxy)
    replace(installed)
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: LINE in proxy.stderr(), proxy.stderr)
    assert pids(proxy) == {max(before)}
    assert proxy.stderr().count(" died: ") == 1
    assert "Traceback" not in proxy.stderr()
    shown = proxy.reload("workers = 3\n")
    assert shown.startswith(
        "reload refused, generation 1 stays in force: a new worker cannot be started: "
        "the program's files were replaced")
    assert proxy.stderr().count(LINE) == 1


def test_the_others_serve_the_callers_of_a_worker_that_is_not_replaced(
        start, installed, make_origin, opened):
    """Its listening socket stayed open in the supervisor, and half of all callers
    waited for it."""
    proxy = start("workers = 2\n")
    url = make_origin().url()
    target = os.readlink(installed / "cutthrough/process/channel.py")
    replace(installed)
    os.kill(min(pids(proxy)), signal.SIGKILL)
    wait_until(lambda: LINE in proxy.stderr(), proxy.stderr)
    for _ in range(40):
        with proxy.client() as client:
            assert client.get(url).status == 200
    file = installed / "cutthrough/process/channel.py"
    file.unlink()
    os.symlink(target, file)
    opened.callback(end_all, successor_of(proxy))
    wait_until(lambda: proxy.stderr().count(" listening on ") > 1, proxy.stderr)
    wait_until(lambda: len(serving(proxy, url)) == 2, proxy.stderr)


def serving(proxy: Proxy, url: str) -> set[int]:
    """The workers that serve some new connections."""
    proxy.mark()
    for _ in range(20):
        with proxy.client() as client:
            assert client.get(url).status == 200
    return {record["worker"] for record in proxy.wait_log(20)}


def test_a_reload_of_running_workers_goes_on(start, installed, dial):
    proxy = start("workers = 1\n")
    replace(installed)
    assert proxy.reload('head_timeout = "2s"\n') == (
        "generation 2: head_timeout 10s -> 2s")
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502


def test_files_that_come_back_start_workers_again(start, installed):
    proxy = start("workers = 1\n")
    before = pids(proxy)
    file = installed / "cutthrough/process/channel.py"
    target = os.readlink(file)
    replace(installed)
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: LINE in proxy.stderr(), proxy.stderr)
    file.unlink()
    file.symlink_to(target)
    wait_until(lambda: pids(proxy) - before, proxy.stderr)


def replace_noting(installed: Path, module: str, file: Path) -> None:
    """The next version of `module` notes in `file` which processes load it."""
    path = installed / "cutthrough" / module
    text = path.read_text()
    path.unlink()
    path.write_text(f"{text}\nimport os as _os\n"
                    f"with open({str(file)!r}, 'a') as _file:\n"
                    "    _file.write(f'{_os.getpid()}\\n')\n")


def test_tunnels_are_handed_over_by_the_program_that_was_loaded(
        start, installed, make_origin, dial, opened, tmp_path):
    """The old workers loaded what hands them over at the upgrade: from the next
    version's files. Its modules did not fit, and the tunnels drained."""
    notes = tmp_path / "loaded"
    proxy = start("workers = 1\n")
    before = pids(proxy)
    origin = make_origin(lambda conn: conn.send(conn.read_exact(4)))
    client = dial(proxy).tunnel(origin.authority)
    replace_noting(installed, "worker/handover.py", notes)
    opened.callback(end_all, successor_of(proxy))
    proxy.wait_exit()                        # nothing was left that it had to drain
    client.send(b"more")
    assert client.read_exact(4) == b"more"
    loaded = {int(line) for line in notes.read_text().splitlines()}
    assert loaded and not loaded & before
    assert "Traceback" not in proxy.stderr()


def test_a_reload_loads_no_module_of_the_next_version(start, installed, tmp_path):
    """Its structures in C are others than those of the modules that are loaded."""
    notes = tmp_path / "loaded"
    proxy = start("workers = 1\n")
    replace_noting(installed, "admin/server.py", notes)
    shown = proxy.reload('admin = "127.0.0.1:0"\n')
    assert shown == (
        "reload refused, generation 1 stays in force: the program's files were "
        "replaced since it started, and its module cutthrough.admin cannot be loaded: "
        "send USR2 to upgrade")
    assert not notes.exists()
    assert proxy.reload('head_timeout = "2s"\n') == (
        "generation 2: head_timeout 10s -> 2s")
