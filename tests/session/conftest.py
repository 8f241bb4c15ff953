"""Workers in the test's own process, on both event loops."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cutthrough.policy.source import Policy
from tests.support.origin import Origin, echo
from tests.support.workers import LIMITED, Pair


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request, tmp_path):
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def start(main: Callable[[Pair, Origin], Awaitable[None]], script=echo,
              policy: Policy | None = LIMITED, newer: Policy | None = None,
              **options: object) -> None:
        async def whole() -> None:
            with Origin(script) as origin:
                async with Pair(tmp_path, policy, newer, **options) as workers:
                    await main(workers, origin)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(whole())

    return start
