"""The real program, real servers and raw clients; once per event loop, unless a test is
marked `any_loop` because other code decides its result, and the other loop repeats it.
So it is with the supervisor: its loop is asyncio's own beside workers of either.

`proxy` is shared by the tests of a session, `keep_proxy` by those of a module that give
the same flags, `start_proxy` makes one of a test's own. All check at their end that the
workers hold no more descriptors than before, after everything that the test itself
`opened` has been closed.

A run of the whole directory fails at its end if an outcome of the table was in no log,
and in none of the last run of tests/scripted.
`--part 1/2` runs every second file; the parts of one run are judged together, by
`python -m tests.support.outcomes`. `--loop asyncio` runs the tests of that event loop,
`--loop uvloop` its own and the tests of neither. The files of CLIENTS run if they are
named, or with `--clients`.
"""

import contextlib
import functools
import itertools
import os
import resource
import socket
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from cutthrough.net import buffers
from cutthrough.policy.source import Limits
from tests.support import starter
from tests.support.admin import DOOR, TOKEN, Operator, operator_of
from tests.support.browser import SHELL, Browser, Tab
from tests.support.certificates import authority
from tests.support.client import Client
from tests.support.nginx import PROGRAM, Nginx
from tests.support.origin import Origin, Script, okay
from tests.support.outcomes import missing, scripted, write_part
from tests.support.programs import Programs
from tests.support.proxy import ROOT, Proxy, clean_environment, seen_labels
from tests.support.stream import Stream
from tests.support.wait import wait_until
from tests.support.with_policy import command_with

#: The pseudonym in Via; and idle upstream connections that end soon, so that "nothing
#: is left" can be seen soon. And time for a hash on a machine with other work:
#: a helper takes a quarter of a core at most that another process wants.
COMMON = ("--via", "test-proxy", "--upstream-idle-timeout", "500ms",
          "--auth-timeout", "60s")

MakeOrigin = Callable[..., Origin]
StartProxy = Callable[..., Proxy]
Dial = Callable[..., Client]

#: Other programs, most of them with interpreters of their own: `make test-slow`
CLIENTS = {f"test_{name}.py" for name in (
    "interception_clients", "pytest_plugin", "pytest_plugin_clients",
    "pytest_plugin_vendors", "pytest_plugin_websockets", "recording_clients",
    "recording_run")}

_numbers = itertools.count()
_deselected: list[pytest.Item] = []
_unreached: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="N/M", type=read_part, default=(1, 1),
                     help="run the Nth of M parts of tests/e2e")
    parser.addoption("--clients", action="store_true", help="run CLIENTS alone")
    parser.addoption("--loop", choices=("uvloop", "asyncio"),
                     help="run the tests of one event loop")


def read_part(text: str) -> tuple[int, int]:
    part, of = map(int, text.split("/"))
    if not 1 <= part <= of:
        raise ValueError(text)
    return part, of


@functools.cache
def files_of_part(config: pytest.Config) -> set[Path]:
    part, of = config.getoption("part", (1, 1))
    clients = config.getoption("clients", False)
    files = [path for path in sorted(Path(__file__).parent.glob("test_*.py"))
             if (path.name in CLIENTS) == clients]
    return set(files[part - 1::of])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_elsewhere = (
        collection_path.suffix == ".py" and collection_path.name.startswith("test_")
        and collection_path not in files_of_part(config)
        and not any(collection_path.name in name for name in config.args))
    return True if is_elsewhere else None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    left_out = [one for one in items if is_repetition(one) or is_of_other_loop(one)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [one for one in items if one not in left_out]


def pytest_deselected(items: list[pytest.Item]) -> None:
    _deselected.extend(items)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    part, of = session.config.getoption("part", (1, 1))
    again = session.config.getoption("failures")
    counts = {pytest.ExitCode.OK} | ({pytest.ExitCode.TESTS_FAILED} if again else set())
    if not is_whole(session) or exitstatus not in counts:
        return
    if of > 1:
        write_part(part, of, seen_labels)
        return
    _unreached.extend(missing([*seen_labels, *scripted()]))
    if _unreached:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unreached:
        terminalreporter.section("outcomes that no test reached", red=True, bold=True)
        terminalreporter.line(
            f"All of tests/e2e passed, and no access log had {', '.join(_unreached)}, "
            "nor had those of tests/scripted: each row of cutthrough/outcome.pyx needs "
            "a test that ends so.")


def is_whole(session: pytest.Session) -> bool:
    """Whether every test of the part was run, on one event loop at the least. CLIENTS
    are no part: other tests reach all outcomes."""
    config, here = session.config, Path(__file__).parent
    files = {item.path for item in session.items}
    return not (
        config.option.collectonly
        or config.getoption("clients")
        or files_of_part(config) - files
        or any("::" in name for name in config.args)
        or any(loop_of(item) != "asyncio" for item in _deselected
               if item.path.parent == here))


def is_repetition(item: pytest.Item) -> bool:
    return (loop_of(item) == "asyncio"
            and item.get_closest_marker("any_loop") is not None)


def is_of_other_loop(item: pytest.Item) -> bool:
    return item.config.getoption("loop", None) not in (None, loop_of(item))


def loop_of(item: pytest.Item) -> str:
    """The loop that the test is parametrised with; uvloop for a test without one."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("loop_name", "uvloop") if callspec else "uvloop"


@pytest.fixture(scope="session", params=["uvloop", "asyncio"])
def loop_name(request: pytest.FixtureRequest) -> str:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return request.param


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    with starter.running(clean_environment(), str(ROOT)):
        yield


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return lambda name: tmp_path_factory.mktemp(f"{name}-{next(_numbers)}")


@pytest.fixture(scope="session")
def nginx(directory: Callable[[str], Path]) -> Iterator[Nginx]:
    if PROGRAM is None:
        pytest.skip("nginx is not installed")
    with contextlib.closing(Nginx(directory("nginx"))) as server:
        yield server


@pytest.fixture(scope="session")
def programs(directory: Callable[[str], Path]) -> Programs:
    """Clients of many languages, which trust the proxy's authority."""
    return Programs(directory("programs"), authority().own.certificate)


@pytest.fixture(scope="session")
def repository(nginx: Nginx) -> bytes:
    """The file in nginx' /repo.git."""
    return nginx.make_repository()


@pytest.fixture(scope="session")
def shared_proxy(loop_name: str, directory: Callable[[str], Path]) -> Iterator[Proxy]:
    # Executed: of this one some tests look at the memory
    with Proxy(directory("proxy"), *COMMON, loop=loop_name, executed=True) as running:
        warm_up(running)
        yield running


def warm_up(proxy: Proxy) -> None:
    """All that opens once for ever (resolver, pools) is open before the base line."""
    before = proxy.sockets()
    with Origin() as origin:
        with proxy.client() as client:
            assert client.get(f"http://localhost:{origin.port}/").status == 200
        with proxy.client() as client:
            client.tunnel(f"localhost:{origin.port}")
            client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.read_response()
    proxy.wait_log(2)
    # Sockets come down to the first count; pipes and the resolver's handles may stay.
    wait_until(lambda: proxy.sockets() <= before, "no socket left by the warm-up")
    proxy.take_baseline()


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def proxy(shared_proxy: Proxy, opened: contextlib.ExitStack) -> Iterator[Proxy]:
    shared_proxy.mark()
    yield shared_proxy
    opened.close()
    shared_proxy.log()
    shared_proxy.wait_settled()


@pytest.fixture
def start_proxy(
    loop_name: str, directory: Callable[[str], Path], opened: contextlib.ExitStack
) -> Iterator[StartProxy]:
    started: list[Proxy] = []

    def start(*flags: str, **more: object) -> Proxy:
        own = Proxy(directory("proxy"), *COMMON, *flags, loop=loop_name, **more)
        started.append(own)
        own.take_baseline()
        return own

    yield start
    opened.close()
    try:
        for own in started:
            own.wait_settled("socket")  # the resolver may have opened its own since
    finally:
        for own in started:
            own.stop()


@pytest.fixture
def exhaust(opened):
    """Leaves a worker not one descriptor more than it has."""

    def lower(proxy) -> None:
        pid = proxy.worker.pid
        old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
        # The limit is on the number of a new descriptor: the first free is too high.
        first_free = next(n for n in range(len(used) + 1) if n not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, old[1]))
        opened.callback(restore, pid, old)

    def restore(pid: int, old: tuple[int, int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, old)

    return lower


def with_policy(
    folder: Path, loop_name: str, policy: str, config: str = "", hook: str = "",
    modules: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None,
    **more: object
) -> Proxy:
    """A proxy with this policy file, more configuration, a hook's module, others."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "policy.toml"
    path.write_text(textwrap.dedent(policy))
    env = dict(env or {})
    if hook:
        (folder / "decisions.py").write_text(textwrap.dedent(hook))
        env["PYTHONPATH"] = str(folder)
        config = 'policy_hook = "decisions:decide"\n' + config
    for name, text in (modules or {}).items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
        env["PYTHONPATH"] = str(folder)
    # Before the text, which may end in a table
    proxy = Proxy(folder, loop=loop_name, env=env, **more,
                  config=f'policy = "{path}"\n{config}')
    proxy.policy = path
    return proxy


@pytest.fixture
def start_policy(
    loop_name: str, directory: Callable[[str], Path], opened: contextlib.ExitStack
) -> StartProxy:
    """`with_policy`, for one test."""
    return lambda *words, **more: opened.enter_context(
        with_policy(directory("proxy"), loop_name, *words, **more))


@pytest.fixture(scope="module")
def kept(loop_name: str) -> Iterator[dict[tuple[str, ...], Proxy]]:
    """The proxies of `keep_proxy` and `keep_policy`, by their arguments."""
    found: dict[tuple[str, ...], Proxy] = {}
    yield found
    for proxy in found.values():
        proxy.stop()


@pytest.fixture
def keep(
    kept: dict[tuple[str, ...], Proxy], opened: contextlib.ExitStack
) -> Iterator[Callable[..., Proxy]]:
    """A start takes 0.06 s of CPU, and more with other processes than the first worker:
    tests of a module that change nothing in a proxy share it, and each begins when all
    that the one before opened is closed."""
    used: list[Proxy] = []

    def take(key: tuple[str, ...], start: Callable[[], Proxy]) -> Proxy:
        if key not in kept:
            kept[key] = start()
            kept[key].take_baseline()
        used.append(kept[key])
        kept[key].mark()
        return kept[key]

    yield take
    opened.close()
    for proxy in used:
        proxy.log()
        proxy.wait_settled("socket")    # the resolver may have opened its own since


@pytest.fixture
def keep_proxy(
    loop_name: str, directory: Callable[[str], Path], keep: Callable[..., Proxy]
) -> StartProxy:
    """`start_proxy` with flags, for the tests of a module."""
    return lambda *flags: keep(flags, lambda: Proxy(
        directory("proxy"), *COMMON, *flags, loop=loop_name))


@pytest.fixture
def keep_policy(
    loop_name: str, directory: Callable[[str], Path], keep: Callable[..., Proxy]
) -> StartProxy:
    """`start_policy`, for the tests of a module."""
    return lambda policy, config="": keep((policy, config), lambda: with_policy(
        directory("proxy"), loop_name, policy, config))


@pytest.fixture
def keep_administered(
    loop_name: str, directory: Callable[[str], Path], keep: Callable[..., Proxy]
) -> Callable[..., tuple[Proxy, Operator]]:
    """`administered`, for the tests of a module."""
    def start(text: str = "", token: str = TOKEN) -> tuple[Proxy, Operator]:
        proxy = keep((text, token), lambda: Proxy(
            directory("proxy"), loop=loop_name,
            config=DOOR.replace(TOKEN, token) + text))
        return proxy, operator_of(proxy)
    return start


@pytest.fixture(scope="module")
def chromium(directory: Callable[[str], Path]) -> Iterator[Browser]:
    with Browser(directory("browser"), program=SHELL) as running:
        yield running


@pytest.fixture
def browse(chromium: Browser, opened: contextlib.ExitStack) -> Callable[[], Browser]:
    """Opens a page of the module's Chromium."""
    return lambda: opened.enter_context(Tab(chromium))


@pytest.fixture
def make_origin(opened: contextlib.ExitStack) -> MakeOrigin:
    def make(script: Script = okay, host: str = "127.0.0.1") -> Origin:
        return opened.enter_context(Origin(script, host))

    return make


@pytest.fixture
def dial(request: pytest.FixtureRequest, opened: contextlib.ExitStack) -> Dial:
    """A new connection to the shared proxy, or to the one that is named."""

    def connect(proxy: Proxy | None = None, receive_buffer: int = 0) -> Client:
        proxy = proxy or request.getfixturevalue("proxy")
        return opened.enter_context(proxy.client(receive_buffer))

    return connect


@pytest.fixture
def limited(start_proxy: StartProxy) -> StartProxy:
    """A program with these limits for all users."""

    def start(*flags: str, **limits: float) -> Proxy:
        return start_proxy(*flags, command=command_with(Limits(**limits)))

    return start


@pytest.fixture
def call(opened) -> Callable[..., Client]:
    """A new connection to that port from an address of 127.0.0.0/8."""
    def dial(port: int, source: str = "127.0.0.1") -> Client:
        client = Client.__new__(Client)
        sock = socket.socket()
        opened.callback(sock.close)
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", port))
        Stream.__init__(client, sock)
        return client
    return dial


@pytest.fixture
def bounds():
    """Sets the most bytes that blocks of this process hold, in all or of a share."""
    yield buffers.set_bound
    buffers.set_bound(512 << 20)
