"""The proxy inside somebody else's event loop.

    async with cutthrough.serve(user="me", password="secret") as proxy:
        httpx.AsyncClient(proxy=proxy.url)

One worker, the same that runs in a process of its own; the caller's loop drives it. No
signal is caught, no limit raised, no process made, no thread pinned.
"""

import os
import socket
import threading
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import quote

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.options import Options
from cutthrough.config.settings import from_options
from cutthrough.config.values import show_address
from cutthrough.generation.hook import Function, lend_function
from cutthrough.generation.policy_files import load_policy
from cutthrough.net.listener import Address, bound_address, listen
from cutthrough.policy.source import Policy, PolicyError
from cutthrough.worker.worker import Worker

# The data path keeps what it reads into, pools and pipes once for the process. So all
# proxies of a process run in one thread: which, and how many there are.
_thread, _running = 0, 0


class Embedded:
    """A proxy in the caller's loop, from `async with` to its end.

    Entering raises OSError where an address cannot be listened on, PolicyError where a
    file that is named cannot be used, RuntimeError where another thread of the process
    runs one. Leaving cuts what is still open; `await
    proxy.drain(seconds)` before that lets it finish.
    """

    def __init__(self, config: Config, policy: Policy | None = None,
                 hook: Function | None = None) -> None:
        """`policy` stands for the files that the configuration names; `hook`: the
        function whose name it has, kept for as long as this proxy is."""
        if config.fleet_url:
            raise ConfigError("", "fleet_url", "an embedded proxy shares no limits")
        if config.admin != "off":
            raise ConfigError("", "admin", "an embedded proxy has no such listener; "
                              "`cutthrough serve` has")
        if policy is not None and policy.rules and not policy.source:
            # Without a source it would be the built-in one, whose rules nobody asks
            policy = msgspec.structs.replace(policy, source="policy")
        self.config = config
        self._policy = policy
        self._hook = hook
        self._listeners: list[socket.socket] = []
        self._worker: Worker | None = None

    async def __aenter__(self) -> Self:
        policy = self._policy or load_policy(self.config)
        _enter()
        try:
            for address in self.config.listen:
                self._listeners += listen(address)
            self._worker = Worker(self.config, slot=0, listeners=self._listeners,
                                  policy=policy)
            await self._worker.start()
        except BaseException:
            self._close_listeners()
            _leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None,
                        error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        try:
            await self.drain(0)
        finally:
            self.worker.stop()
            self._close_listeners()
            _leave()

    async def drain(self, seconds: float) -> int:
        """Accepts no more and ends within so many seconds.

        Returns how many connections had to be cut.
        """
        return await self.worker.drain(seconds)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    @property
    def worker(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("the proxy runs inside `async with` only")
        return self._worker

    @property
    def address(self) -> Address:
        """Host and real port of the first listener."""
        return bound_address(self._listeners[0])

    @property
    def port(self) -> int:
        return self.address[1]

    @property
    def url(self) -> str:
        """What a client is given: `http://user:password@host:port`.

        Without the user where only a file says who they are.
        """
        user, password = self.config.user, self.config.password
        if not user:
            return f"http://{show_address(self.address)}"
        return (f"http://{quote(user, safe='')}:{quote(password, safe='')}"
                f"@{show_address(self.address)}")


def _enter() -> None:
    global _thread, _running
    here = threading.get_ident()
    if _running and _thread != here:
        raise RuntimeError("another thread of this process runs one, and all have to "
                           "be in one: `cutthrough serve` makes processes")
    _thread, _running = here, _running + 1


def _leave() -> None:
    global _running
    _running -= 1


def serve(config: Config | None = None, *,
          policy: Policy | str | os.PathLike[str] | None = None,
          policy_hook: Function | str | None = None,
          **options: Unpack[Options]) -> Embedded:
    """Makes a proxy for `async with`; on a free loopback port where none is named.

    Options are those of Config, as values or as text (`head_timeout="200ms"`), laid
    over `config`. `policy` is one of them, a file's path; or a Policy, which stands for
    the files that they name. `policy_hook` may be the function itself: any async one,
    closures and methods too. The access log and the flight recorder are off unless
    asked for: what is said is the caller's. Raises ConfigError.
    """
    given: dict[str, Any] = {**options}
    if config is None:
        given = {"listen": "127.0.0.1:0", "access_log": "off",
                 "flight_recorder": "0"} | given
    if isinstance(policy, str | os.PathLike):
        given["policy"] = os.fspath(policy)
        policy = None
    function = policy_hook if callable(policy_hook) else None
    if function is not None:
        try:
            policy_hook = lend_function(function)
        except PolicyError as error:
            raise ConfigError("options", error.key, error.reason) from None
    if policy_hook is not None:
        given["policy_hook"] = policy_hook
    return Embedded(from_options(config, **given), policy, function)
