"""After every test: no descriptor is left in this process, and only this machine was
dialled. No test runs for ever.

All tests, and the proxies that they start, live in a network with `lo` alone. A test
that names other addresses as something to dial is marked `dials_out`: there they have
no route. Without such a network it is skipped.
"""

import collections
import contextlib
import gc
import os
import re
import resource
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import folders, network
from tests.support.again import note_failures
from tests.support.proxy import fd_kinds
from tests.support.sanitized import SANITIZED, keep_to_python
from tests.support.wait import wait_until

#: Seconds for one test, set-up and tear-down included; raised in the main thread.
LONGEST_TEST = 240

# Sockets, pipes, epoll sets, event fds. Plain files are pytest's own, and its plugins'.
OURS = ("socket", "pipe", "anon_inode")

# Each run has the same examples, so that a commit passes or fails, not a day.
# `make fuzz` has new ones, with hypothesis' own profile.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

#: Why the tests have no network of their own; "" where they have.
shared_network = ""

#: What scripts/bootstrap.sh installs for `make test`. With CI=true nothing of it may be
#: missing, because a test that is always skipped fails unseen.
INSTALLED = re.compile(
    r"(chromium|curl|fish|haproxy|mandoc|nginx|postgresql|pytest-xdist|redis-server|siege|"
    r"softhsm2.*|wrk|zsh) is not installed", re.IGNORECASE)

_failed: dict[str, None] = {}       # in their order, each once


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", metavar="FILE", type=Path,
                     help="write which tests failed, for tests.support.again")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
        item: pytest.Item, call: pytest.CallInfo[None]
        ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    reason = str(report.longrepr)
    if report.skipped and os.environ.get("CI") == "true" and INSTALLED.search(reason):
        report.outcome, report.longrepr = "failed", f"with CI=true: {reason}"
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    file = session.config.getoption("failures")
    if file and exitstatus == pytest.ExitCode.TESTS_FAILED:
        note_failures(file, list(_failed))


def pytest_configure() -> None:
    global shared_network
    if SANITIZED:
        keep_to_python()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:   # a shell's background job:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # children inherit it
    shared_network = network.enter_alone()
    if shared_network:
        network.refuse_elsewhere()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before the collection: modules make certificates when they are imported."""
    base = session.config._tmp_path_factory.getbasetemp()   # no hook is given it
    stack = contextlib.ExitStack()
    stack.enter_context(folders.temporary_files_below(base))
    session.config.add_cleanup(stack.close)


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage: each full collection would walk them all."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    return f"network: {shared_network or 'lo alone'}"


def open_fds() -> collections.Counter[str]:
    kinds = fd_kinds(os.getpid())
    return collections.Counter({kind: kinds[kind] for kind in OURS})


def too_long(signum: int, frame: object) -> None:
    raise TimeoutError(f"the test took longer than {LONGEST_TEST} s")


@pytest.fixture(scope="session", autouse=True)
def once_for_the_process() -> None:
    """Opens the pipe and raises the limit of descriptors once.

    libuv opens a pipe for signals with its first loop, and keeps it. A thousand tunnels
    have two thousand ends in this process alone.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.new_event_loop().close()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    previous = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST_TEST)
    before = open_fds()
    memory = resource.getrlimit(resource.RLIMIT_AS)
    yield
    # A verb that imports bounds its process; Chromium inherits that, and cannot start
    resource.setrlimit(resource.RLIMIT_AS, memory)
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not open_fds() - before, "a clean table of descriptors", 2)
    if open_fds() - before:
        gc.collect()  # a descriptor that only a cycle still holds is no leak
        with contextlib.suppress(AssertionError):   # nor a late one on a busy machine
            wait_until(lambda: not open_fds() - before, "a clean table", 10)
    left = open_fds() - before
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    assert not left, f"left open by the test: {dict(left)}"


@pytest.fixture(autouse=True)
def nothing_is_sent_off(request: pytest.FixtureRequest) -> Iterator[None]:
    """Also by a subprocess: the count is the network's."""
    dials_out = request.node.get_closest_marker("dials_out")
    if dials_out and shared_network:
        pytest.skip(f"no network with lo alone: {shared_network}")
    before = network.strays()
    yield
    if not dials_out and not shared_network:
        sent = network.strays() - before
        assert not sent, f"{sent} packets for addresses that are not loopback"
