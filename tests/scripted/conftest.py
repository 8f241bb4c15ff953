"""Sessions by script: cases that need no kernel (tests.support.scripted).

The fixtures have the names of tests/e2e, so that a case reads alike here and there.
Each case is played twice: with all that is sent in one piece, and byte by byte. The
outcomes in these logs count with those of tests/e2e (tests.support.outcomes).
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.client import Client
from tests.support.outcomes import write_scripted
from tests.support.proxy import seen_labels
from tests.support.scripted import Network, Stage, options_of
from tests.support.scripted_peers import Origin, Script, okay

#: As of tests/e2e
COMMON = ("--upstream-idle-timeout", "500ms")

StartStage = Callable[..., Stage]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workerinput"):      # a part of the cases
        return
    here = Path(__file__).parent
    files = {item.path for item in session.items}
    if not set(here.glob("test_*.py")) - files and seen_labels:
        write_scripted(seen_labels)


@pytest.fixture(params=["whole", "bytewise"])
def bytewise(request: pytest.FixtureRequest) -> bool:
    return request.param == "bytewise"


@pytest.fixture(scope="package")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with contextlib.closing(Stage(folder, **options_of(COMMON))) as stage:
        yield stage


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    """Those of the test alone, which end behind the network."""
    started: list[Stage] = []
    yield started
    for stage in started:
        stage.close()


@pytest.fixture
def network(bytewise: bool, stages: list[Stage]) -> Iterator[Network]:
    with Network(bytewise) as made:
        yield made


@pytest.fixture
def proxy(shared_stage: Stage, network: Network) -> Stage:
    return shared_stage.enter(network)


@pytest.fixture
def start_proxy(
    network: Network, stages: list[Stage], tmp_path_factory: pytest.TempPathFactory
) -> StartStage:
    """A worker with these flags, a configuration and a policy file, as texts."""

    def start(*flags: str, config: str = "", policy: str = "") -> Stage:
        stages.append(Stage(tmp_path_factory.mktemp("stage"), policy,
                            **options_of((*COMMON, *flags), config)))
        return stages[-1].enter(network)

    return start


@pytest.fixture
def keep_proxy(start_proxy: StartStage) -> StartStage:
    return start_proxy


@pytest.fixture
def keep_policy(start_proxy: StartStage) -> StartStage:
    return lambda policy, config="": start_proxy(policy=policy, config=config)


@pytest.fixture
def start_policy(keep_policy: StartStage) -> StartStage:
    return keep_policy


@pytest.fixture
def make_origin(network: Network) -> Callable[..., Origin]:
    def make(script: Script | None = okay, host: str = "127.0.0.1",
             window: int = -1, queue: int = -1) -> Origin:
        return network.origin(script, host, window, queue)

    return make


@pytest.fixture
def dial(request: pytest.FixtureRequest) -> Callable[..., Client]:
    """A new connection to the shared worker, or to the one that is named."""

    def connect(stage: Stage | None = None, **more: int) -> Client:
        return (stage or request.getfixturevalue("proxy")).client(**more)

    return connect
