"""The access log is rotated while one program takes over from another."""

import signal

import psutil

from tests.support.origin import echo
from tests.support.successors import end, end_all, successor_of
from tests.support.successors import start as start
from tests.support.wait import wait_until


def test_a_log_that_is_rotated_is_rotated_in_the_program_that_drains(
        start, make_origin, dial, opened):
    """SIGUSR1 goes to the new one, and the old one's lines went to the renamed file."""
    proxy, origin = start("handover = false\n"), make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    old, path = proxy.worker, proxy.log_path

    def writes() -> bool:
        return str(path) in [file.path for file in old.open_files()]

    new = successor_of(proxy)
    opened.callback(end_all, new)
    path.rename(path.with_suffix(".1"))
    assert not writes()
    new.send_signal(signal.SIGUSR1)
    wait_until(writes, proxy.stderr)
    tunnel.close()
    assert proxy.wait_log(1)[0]["method"] == "CONNECT"
    assert proxy.process.wait(60) == 0
    assert "cannot answer" not in proxy.stderr()
    end(new)


def test_a_log_that_is_rotated_is_rotated_in_the_program_that_starts(
        start, make_origin, dial, opened):
    """SIGUSR1 goes to the old one until the new one serves, whose workers have the
    renamed file by then: all lines went there until the next rotation."""
    proxy = start("handover = false\n", executed=True)
    dial(proxy).tunnel(make_origin(echo).authority)      # the old one stays for it
    old, path = proxy.worker, proxy.log_path

    def writing(process: psutil.Process) -> list[psutil.Process]:
        return [worker for worker in process.children()
                if str(path) in [file.path for file in worker.open_files()]]

    proxy.signal(signal.SIGUSR2)
    new = wait_until(lambda: [child for child in proxy.workers() if child != old],
                     proxy.stderr)[0]
    opened.callback(end_all, new)
    wait_until(lambda: writing(new), proxy.stderr)
    path.rename(path.with_suffix(".1"))
    proxy.signal(signal.SIGUSR1)
    wait_until(lambda: writing(new), proxy.stderr)
    end(new)
