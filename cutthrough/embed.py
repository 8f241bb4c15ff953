"""The proxy inside another program.

    async with cutthrough.serve(user="me", password="secret") as proxy:
        httpx.AsyncClient(proxy=proxy.url)
    with cutthrough.serve(user="me", password="secret") as proxy:
        httpx.Client(proxy=proxy.url)

It is one worker, the same class that runs in a worker process, driven by the caller's
loop, or with `with` by a loop in a thread. It catches no signal, raises no limit, makes
no process and pins no thread.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import quote

import msgspec

from cutthrough.config.config import OPTIONS, Config, ConfigError
from cutthrough.config.options import Options
from cutthrough.config.settings import from_options
from cutthrough.config.values import show_address
from cutthrough.contained import ENDING_S, drive, end
from cutthrough.generation.generation import (
    Generation,
    changed_options,
    needs_new_workers,
)
from cutthrough.generation.hook import Function
from cutthrough.generation.interception import check_interception, read_interception
from cutthrough.generation.operator_code import lend_function, lend_object
from cutthrough.generation.policy_files import load_policy
from cutthrough.generation.recordings import check_recordings
from cutthrough.generation.tls_files import read_parent_files, read_tls_files
from cutthrough.net.listener import (
    BACKLOG,
    Address,
    bound_address,
    listen,
    path_of,
    set_saved_syn,
    set_transparent,
)
from cutthrough.net.unix_listener import inode_of, remove
from cutthrough.policy.source import Policy, PolicyError
from cutthrough.process.loops import choose_loop, make_loop
from cutthrough.worker.worker import Worker

# Of `auth_hook`: the name and the password; and of `dns_hook`: the name, the port and
# the user ("": none), and the addresses, or None for the usual ones
AuthFunction = Callable[[str, str], Awaitable[bool]]
DnsFunction = Callable[
    [str, int, str], Iterable[str] | Awaitable[Iterable[str] | None] | None]

# The data path has one set of read buffers, pools and pipes in a process, so that all
# proxies of a process run in one thread: the id of that thread, their number, and the
# process. A fork has a copy of all that, but neither the thread nor a set of its own.
_thread, _running, _process = 0, 0, 0

NOT_INSIDE = "the proxy runs only inside `async with` or `with`"
ELSEWHERE = "the proxy runs in another thread"


class Embedded:
    """A proxy in the caller's loop, for the duration of an `async with`; or in a loop
    of its own, in a thread, for the duration of a `with`.

    Entering raises OSError if it cannot listen on an address, PolicyError if a named
    file cannot be used, and RuntimeError if another thread of the process runs a proxy.
    Leaving closes the open connections; `await proxy.drain(seconds)` before that lets
    them finish.
    """

    def __init__(self, config: Config, policy: Policy | None = None,
                 functions: Sequence[object] = (), discards: bool = False) -> None:
        """`policy` replaces the files that the configuration names. `functions` are
        those behind its hooks, and its tracker; this object keeps them alive.
        `discards`: a trial of rules, of which nothing is captured or recorded; else a
        rule that does so is refused, because no process writes here."""
        _refuse_what_only_the_program_has(config)
        self.config = config
        self._policy = _with_source(policy)
        self._functions = functions
        self._discards = discards
        self._listeners: list[socket.socket] = []
        self._addresses: list[Address] = []  # of the listeners, when closed too
        self._files: dict[str, int] = {}     # of unix sockets: the inode of each
        self._worker: Worker | None = None
        self._is_inside = False

    async def __aenter__(self) -> Self:
        if self._is_inside:
            raise RuntimeError("this proxy runs already: make another one by serve()")
        generation = self._read(1, self.config, self._policy)
        _enter()
        self._is_inside = True
        try:
            for listener in self.config.all_listeners:
                sockets = listen(
                    listener.address, mode=listener.mode, owner=listener.owner,
                    backlog=listener.backlog or BACKLOG)
                self._listeners += sockets
                for sock in sockets:
                    set_transparent(sock, listener.transparent == "tproxy")
                    set_saved_syn(sock, listener.tcp_fingerprint)
                if path := path_of(listener.address):
                    self._files[path] = inode_of(path)
            self._addresses = [bound_address(sock) for sock in self._listeners]
            self._worker = Worker(generation, slot=0, listeners=self._listeners)
            await self._worker.start()
        except BaseException:
            if self._worker is not None:
                self._worker.stop()
            self._leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None,
                        error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        if _is_fork() or not self._is_inside:       # it has been left already
            return
        try:
            await self.drain(0)
        finally:
            self.worker.stop()
            self._leave()

    def _leave(self) -> None:
        self._close_listeners()
        if self._is_inside:             # else it was left twice at the same time
            self._is_inside = False
            _leave()

    def __enter__(self) -> Self:
        _refuse_a_fork()
        _background.run(self.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if not _is_fork() and self._is_inside:
            _background.run(self.__aexit__(kind, error, traceback))

    def change(self, *, policy: Policy | str | os.PathLike[str] | None = None,
               **options: Unpack[Options]) -> None:
        """Changes options or the policy of the running proxy, as a reload changes those
        of the program. Files are read again. Limits hold for transfers under way, the
        rest for the requests that follow.

        The proxy of a `with` may be changed from any thread, that of an `async with` in
        its loop alone. Raises ConfigError if an option is wrong, or fixed while a proxy
        runs, ValueError if a file cannot be used, RuntimeError if the proxy does not
        run or was drained; then nothing has changed.
        """
        _refuse_a_fork()
        if not self._is_inside:
            raise RuntimeError(NOT_INSIDE)
        if threading.get_ident() == _thread:
            self._change(policy, {**options})
        elif _background.is_driving():
            _background.run(self._change_there(policy, {**options}))
        else:
            raise RuntimeError(ELSEWHERE)

    async def _change_there(self, policy: Policy | str | os.PathLike[str] | None,
                            values: dict[str, Any]) -> None:
        if not self._is_inside:              # it was left meanwhile
            raise RuntimeError(NOT_INSIDE)
        self._change(policy, values)

    def _change(self, policy: Policy | str | os.PathLike[str] | None,
                values: dict[str, Any]) -> None:
        if isinstance(policy, str | os.PathLike):
            values["policy"] = os.fspath(policy)
            policy = None
        elif policy is None and "policy" not in values:
            policy = self._policy
        config, policy = from_options(self.config, **values), _with_source(policy)
        _refuse_what_only_the_program_has(config)
        before = self.worker.generation
        fixed = [name for name in changed_options(before.config, config)
                 if not OPTIONS[name].swapped]
        generation = self._read(before.number + 1, config, policy)
        if needs_new_workers(before, generation):
            raise ConfigError("options", fixed[0] if fixed else "",
                              "cannot change while the proxy runs")
        self.worker.swap(generation)
        self.config, self._policy = config, policy

    def _read(self, number: int, config: Config, policy: Policy | None) -> Generation:
        """Raises PolicyError and ConfigError. `policy` replaces the files."""
        policy = policy or load_policy(config)
        if not self._discards:
            _refuse_what_a_writer_keeps(policy)
        interception = read_interception(config)
        check_interception(interception, policy)
        check_recordings(config)
        return Generation(
            number, config, policy, tls=read_tls_files(config),
            parent_files=read_parent_files(config), interception=interception)

    async def drain(self, seconds: float) -> int:
        """Accepts no more connections and ends within `seconds`; from then on they are
        refused.

        Returns the number of connections that were cut at that deadline. That of a
        `with` may be awaited in any loop.
        """
        if not self._is_inside or threading.get_ident() == _thread:
            return await self._drain(seconds)
        if not _background.is_driving():
            raise RuntimeError(ELSEWHERE)
        return await asyncio.wrap_future(_background.begin(self._drain(seconds)))

    async def _drain(self, seconds: float) -> int:
        cut = await self.worker.drain(seconds)
        self._close_listeners()
        return cut

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for path, inode in self._files.items():
            remove(path, inode)
        self._files.clear()

    @property
    def worker(self) -> Worker:
        if self._worker is None:
            raise RuntimeError(NOT_INSIDE)
        return self._worker

    @property
    def address(self) -> Address:
        """Host and real port of the first listener; a path is `unix:/path` and 0."""
        return self._addresses[0]

    @property
    def port(self) -> int:
        return self.address[1]

    @property
    def url(self) -> str:
        """The URL for a client: `http://user:password@host:port`, or `https://`.

        It has no credentials if all users are defined in files. Raises RuntimeError if
        all listeners are unix sockets, for which there is no URL.
        """
        rows = zip(self._addresses, self.config.all_listeners, strict=True)
        first = next((pair for pair in rows if not pair[1].is_path), None)
        if first is None:
            raise RuntimeError("a unix socket has no URL: see `address`")
        address = show_address(first[0])
        scheme = "https" if first[1].certificates else "http"
        user, password = self.config.user, self.config.password
        if not user:
            return f"{scheme}://{address}"
        return (f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}"
                f"@{address}")


def _refuse_what_a_writer_keeps(policy: Policy) -> None:
    for key in ("capture", "recording"):
        if {getattr(rule, key) for rule in policy.rules} - {"", "replay", "spy"}:
            raise PolicyError(
                policy.source, key, "an embedded proxy has no process that writes; "
                "`cutthrough serve` captures and records")


def _with_source(policy: Policy | None) -> Policy | None:
    """Without a source it would count as the built-in policy, without rules."""
    if policy is not None and policy.rules and not policy.source:
        return msgspec.structs.replace(policy, source="policy")
    return policy


def _refuse_what_only_the_program_has(config: Config) -> None:
    if config.fleet_url:
        raise ConfigError("", "fleet_url", "an embedded proxy cannot share limits")
    if config.admin != "off":
        raise ConfigError("", "admin", "an embedded proxy has no admin listener; "
                          "`cutthrough serve` has one")


def _is_fork() -> bool:
    """Whether the proxies are those of a process of which this one is a fork. They go
    on there, and their sockets and epoll set are shared with it."""
    return _running > 0 and _process != os.getpid()


def _refuse_a_fork() -> None:
    if _is_fork():
        raise RuntimeError("this process is a fork of one that runs a proxy, and can "
                           "run none: start it anew (multiprocessing: spawn)")


def _enter() -> None:
    global _thread, _running, _process
    _refuse_a_fork()
    here = threading.get_ident()
    if _running and _thread != here:
        raise RuntimeError("another thread of this process runs a proxy, and all must "
                           "run in the same thread: `cutthrough serve` makes processes")
    _thread, _running, _process = here, _running + 1, os.getpid()


def _leave() -> None:
    global _running
    _running -= 1


class _Background:
    """The thread that drives the proxies of `with`: one, because all proxies of a
    process run in one thread. It runs while there is such a proxy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._driver: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
        self._over = asyncio.Event()

    def run(self, change: Coroutine[Any, Any, object]) -> None:
        """Runs `change`, which enters or leaves a proxy, to its end."""
        with self._lock:
            loop, thread = self._driver = self._driver or self._begin()
            try:
                asyncio.run_coroutine_threadsafe(change, loop).result()
            finally:
                if not (_running and _thread == thread.ident):
                    self._driver = None
                    loop.call_soon_threadsafe(self._over.set)
                    thread.join()

    def begin(self, work: Coroutine[Any, Any, int]) -> "Future[int]":
        """While it drives a proxy."""
        assert self._driver is not None
        return asyncio.run_coroutine_threadsafe(work, self._driver[0])

    def is_driving(self) -> bool:
        """Whether the proxies of the process run in this thread."""
        return self._driver is not None and self._driver[1].ident == _thread

    def _begin(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        _name, make = make_loop(choose_loop("auto"))
        loop, self._over = make(), asyncio.Event()
        thread = threading.Thread(target=_drive, args=(loop, self._over),
                                  name="cutthrough", daemon=True)
        thread.start()
        return loop, thread


def _drive(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    """Runs the loop until it is over, and closes it: here, because the caller's thread
    may have a running loop, as a cell of a notebook has. Tasks and threads of functions
    have a moment to end, and are left."""
    executor = ThreadPoolExecutor()
    loop.set_default_executor(executor)
    drive(loop, _end_behind(over))
    ending = threading.Thread(
        target=executor.shutdown, kwargs={"cancel_futures": True}, daemon=True)
    ending.start()
    ending.join(ENDING_S)
    loop.close()


async def _end_behind(over: asyncio.Event) -> None:
    await over.wait()
    await end(asyncio.all_tasks() - {asyncio.current_task()})


_background = _Background()


def serve(config: Config | None = None, *,
          policy: Policy | str | os.PathLike[str] | None = None,
          policy_hook: Function | str | None = None,
          dns_hook: DnsFunction | str | None = None,
          auth_hook: AuthFunction | str | None = None,
          activity_hook: object | None = None,
          **options: Unpack[Options]) -> Embedded:
    """Makes a proxy for `async with` or `with`, by default on a free loopback port.

    The options are those of Config, as values or as text (`head_timeout="200ms"`); they
    override `config`. `policy` is the path of a file, or a Policy, which replaces the
    files that the options name. A hook may be the function itself: any async function,
    closures and methods too, and for `dns_hook` a plain one; for `activity_hook` an
    object with functions. The access log and the flight recorder are off by default.
    Raises ConfigError.
    """
    values: dict[str, Any] = {**options}
    if config is None:
        values = {"access_log": "off", "flight_recorder": "0"} | values
        if not values.get("listeners"):
            values = {"listen": "127.0.0.1:0"} | values
    if isinstance(policy, str | os.PathLike):
        values["policy"] = os.fspath(policy)
        policy = None
    functions: list[object] = []
    for option, hook in (("policy_hook", policy_hook), ("dns_hook", dns_hook),
                         ("auth_hook", auth_hook), ("activity_hook", activity_hook)):
        if isinstance(hook, str):
            values[option] = hook
        elif hook is not None:
            functions.append(hook)
            values[option] = _lend(option, hook)
    return Embedded(from_options(config, **values), policy, functions)


def _lend(option: str, hook: Any) -> str:
    """The name by which the worker finds it. Raises ConfigError."""
    lend = lend_object if option == "activity_hook" else lend_function
    try:
        return lend(option, hook)
    except PolicyError as error:
        raise ConfigError("options", error.key, error.reason) from None
