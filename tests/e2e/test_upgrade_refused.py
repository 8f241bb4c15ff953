"""An upgrade that would serve less than the program that it replaces is refused."""

import contextlib
import os
import re
import signal

import psutil
import pytest

from tests.support.client import Client
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

FAILED = "upgrade failed, this program continues to serve: "
LESS = f"{FAILED}it would serve less than this one: "
POLICY = '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
LISTENERS = """
[[listeners]]
address = "127.0.0.1:0"
[[listeners]]
address = "unix:{path}"
"""


@pytest.fixture
def start(loop_name, directory, opened):
    """A proxy with its configuration file as its only source."""
    return lambda text="": opened.enter_context(
        Proxy(directory("proxy"), loop=loop_name, config=text))


def upgrade(proxy: Proxy) -> str:
    """Requests an upgrade that fails; returns the line about it."""
    seen = proxy.stderr().count(FAILED)
    proxy.signal(signal.SIGUSR2)
    wait_until(lambda: proxy.stderr().count(FAILED) > seen, proxy.stderr)
    return next(line for line in reversed(proxy.stderr().splitlines())
                if FAILED in line).removeprefix("cutthrough: ")


def successor_of(proxy: Proxy) -> int:
    """The new program, if it serves; 0: not yet."""
    pids = re.findall(r"pid (\d+) serves; this program drains", proxy.stderr())
    return int(pids[0]) if pids else 0


def end(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.terminate()
        wait_until(lambda: not process.is_running()
                   or process.status() == psutil.STATUS_ZOMBIE, "its end")


@pytest.mark.any_loop
def test_a_file_that_is_empty_brings_no_demonstration_credentials(start, dial):
    """R29: SIGHUP refused the file. SIGUSR2 ended the program that had users, and a new
    program let every client in on port 8888."""
    proxy = start()
    proxy._config.write_text("")
    assert upgrade(proxy).startswith(
        f"{LESS}user: no user is configured any more; the demonstration "
        "credentials are enabled only at a start")
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502
    assert proxy.process.poll() is None


@pytest.mark.any_loop
def test_a_listener_less_is_refused_and_named(start, tmp_path, dial):
    path = tmp_path / "other.sock"
    proxy = start(LISTENERS.format(path=path))
    proxy.write_config("")
    assert upgrade(proxy) == (
        f"{LESS}listen: unix:{path} is not listened on any more; if that is meant, "
        "reload first")
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502
    assert path.exists()


@pytest.mark.any_loop
def test_no_policy_where_there_was_one_is_refused(start, tmp_path, dial):
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    proxy = start(f'policy = "{policy}"\n')
    proxy.write_config("")
    assert upgrade(proxy) == (
        f"{LESS}policy: none is configured any more; if that is meant, reload first")
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502


@pytest.mark.any_loop
def test_a_policy_that_cannot_be_read_is_refused(start, tmp_path, dial):
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    proxy = start(f'policy = "{policy}"\n')
    policy.write_text("[[rules]\n")
    assert upgrade(proxy).startswith(FAILED)
    assert f"{policy}" in proxy.stderr()
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502


def test_what_is_meant_to_go_goes_by_a_reload_first(start, tmp_path, opened):
    path = tmp_path / "other.sock"
    proxy = start(LISTENERS.format(path=path))
    assert proxy.reload("").startswith("generation 2: ")
    proxy.signal(signal.SIGUSR2)
    opened.callback(end, wait_until(lambda: successor_of(proxy), proxy.stderr))
    with Client(proxy.port) as client:
        assert client.get("http://127.0.0.1:1/").status == 502


def test_an_upgrade_waits_for_the_reload_that_is_under_way(
        loop_name, directory, opened):
    """The reload has sockets that would not be handed on."""
    folder = directory("slow")
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if ('cutthrough.worker.main' in sys.orig_argv\n"
        f"        and os.path.exists({str(folder / 'fifo')!r})):\n"
        f"    open({str(folder / 'waits')!r}, 'w').close()\n"
        f"    open({str(folder / 'fifo')!r}).close()\n")       # until it has a writer
    proxy = opened.enter_context(Proxy(
        directory("proxy"), loop=loop_name, config="workers = 1\n",
        env={"PYTHONPATH": str(folder)}))
    os.mkfifo(folder / "fifo")
    proxy.write_config("dns_cache_entries = 7\n")
    proxy.signal(signal.SIGHUP)
    wait_until((folder / "waits").exists, proxy.stderr)
    proxy.signal(signal.SIGUSR2)
    (folder / "fifo").rename(folder / "gone")
    os.close(os.open(folder / "gone", os.O_RDWR))
    opened.callback(end, wait_until(lambda: successor_of(proxy), proxy.stderr))
    lines = proxy.stderr()
    assert "upgrade refused" not in lines and "postponed" not in lines
    assert lines.index("generation 2: dns_cache_entries 10000 -> 7") < lines.index(
        "serves; this program drains")


@pytest.mark.any_loop
def test_a_policy_that_is_empty_is_neither_reloaded_nor_upgraded_to(
        start_policy, make_origin, dial):
    """Every request was refused, after a disk had been full."""
    proxy = start_policy(
        '[[rules]]\naction = "allow"\naddresses = ["127.0.0.1"]\n')
    url = make_origin().url()
    proxy.policy.write_text(" \n")
    refused = f"{proxy.policy}: is empty; to refuse everything, write"
    assert refused in proxy.hup()
    assert "the new program ended before it was ready" in upgrade(proxy)
    assert proxy.stderr().count(refused) == 2
    assert dial(proxy).get(url).status == 200
