"""Tests of relay, forward and tunnel again, over another transport than the kernel's.

A session does not depend on the transport of its bytes; these tests hold that. They are
the same functions with other fixtures: both sides of the proxy speak the records of
tests/doors/framed.pyx, and so do the client and the origin.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import (  # noqa: F401 - fixtures
    COMMON,
    dial,
    directory,
    make_origin,
    opened,
    proxy,
    warm_up,
)
from tests.support.framing import FramedSocket
from tests.support.proxy import Proxy
from tests.support.stream import Stream

HERE = Path(__file__).parent
#: Fixtures of tests/e2e that run a program of the test's own, which speaks no records
OTHERS = {"start_proxy", "start_policy", "limited", "nginx", "call", "loop_name"}

LATE = "test_late_bytes_do_not_cost_what_came_before_the_end"
#: See test_tunnel
OF_THE_KERNEL = {f"{LATE}[in one turn]", f"{LATE}[unread]",
                 "test_a_slow_reader_gets_everything_after_both_fins",
                 "test_last_bytes_and_the_end_behind_them_are_one_segment"}


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    left = [one for one in items if HERE in one.path.parents and (
        OTHERS.intersection(one.fixturenames) or one.name in OF_THE_KERNEL)]
    config.hook.pytest_deselected(items=left)
    items[:] = [one for one in items if one not in left]


@pytest.fixture(scope="session")
def framed():
    from tests.doors import framed

    return framed


@pytest.fixture(scope="module", autouse=True)
def wrapped(framed) -> Iterator[None]:
    plain = Stream.wrap
    Stream.wrap = staticmethod(FramedSocket)
    yield
    Stream.wrap = staticmethod(plain)


@pytest.fixture(scope="module")
def shared_proxy(wrapped, directory) -> Iterator[Proxy]:  # noqa: F811
    command = ("-m", "tests.support.framed_proxy", "serve")
    with Proxy(directory("proxy"), *COMMON, command=command) as running:
        warm_up(running)
        yield running
