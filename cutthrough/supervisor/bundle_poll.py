"""Asks for a new bundle every `bundle_interval`, and brings it into force by a reload.

    fetched ─> verified ─> unpacked ─> current ─> reload ─┬─ committed ─> good
       └─ as before   └──── refused ────┴── held          └─ refused ─> current = good

The loop waits for nothing: what blocks is done in a thread. A bundle is good when the
supervisor has committed a generation that was read from it. One that was refused is not
fetched again until the source has another one; if a reload refused it, also after
AGAIN_S, because the reason may lie in this host.
"""

import asyncio
import hashlib
import importlib
import random
import socket
import ssl
import time
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, Protocol

from cutthrough.bundle.archive import Bundle, read_bundle
from cutthrough.bundle.cache import CURRENT, GOOD, Cache
from cutthrough.bundle.manifest import NO_LABEL, BundleError, Label
from cutthrough.config.bundles import BundleSource
from cutthrough.config.config import Config
from cutthrough.generation.generation import Generation
from cutthrough.log.stderr import say
from cutthrough.process.bundle_state import RESULTS, BundleState

# Longest pause while the source does not answer, unless the interval is longer
PAUSE_MAX_S = 60.0
AGAIN_S = 300.0


class Reload(Protocol):
    result: str
    over: asyncio.Event


class Client(NamedTuple):
    """The module `bundle.fetch`, and the authorities for it."""

    module: ModuleType
    context: ssl.SSLContext | None


class BundlePoll:
    """Polls while the configuration names a source, from `begin` to `end`. `request`
    begins a reload, which calls `on_commit` or `on_refused`."""

    def __init__(self, generation: Callable[[], Generation],
                 request: Callable[[], Reload]) -> None:
        self._generation, self._request = generation, request
        self._task: asyncio.Task[None] | None = None
        self._source: BundleSource | None = None
        self._etag, self._digest = "", b""   # of the last bundle that was fetched
        self._again_at = float("inf")        # when these are forgotten
        self._pending = NO_LABEL             # current, and not in force
        self._polls = dict.fromkeys(RESULTS, 0)
        self._answered_at = 0.0
        self._last_line, self._is_failing = "", False
        self._client: Client | None = None

    @property
    def _config(self) -> Config:
        return self._generation().config

    def state(self) -> BundleState | None:
        if not self._config.bundle_url:
            return None
        return BundleState(*self._generation().bundle, self._polls, self._answered_at)

    def begin(self) -> None:
        """Begins to poll, if the configuration in force says so."""
        if self._config.bundle_url and (self._task is None or self._task.done()):
            self._keep(self._generation().bundle)
            self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        failures = 0
        while self._config.bundle_url:
            try:
                result = await self._poll(self._config.bundle_source)
                failures = 0
            except BundleError as error:
                result, failures = "refused", 0
                self._tell(f"refused: {error}; {self._generation().bundle} stays")
            except Exception as error:       # on any error the last good one stays
                result = "failed"
                failures += 1
                self._is_failing = True
                self._tell(f"{str(error) or type(error).__name__}; "
                           f"{self._generation().bundle} stays")
            if result:
                self._polls[result] += 1
            interval = self._config.bundle_interval
            pause = min(interval * 2 ** min(failures, 10), max(interval, PAUSE_MAX_S))
            await asyncio.sleep(pause * random.uniform(0.8, 1.0))

    def _tell(self, text: str) -> None:
        """Logs it, unless it was the last line about requests."""
        if text != self._last_line:
            say(f"bundle: {text}")
        self._last_line = text

    async def _poll(self, source: BundleSource) -> str:
        """Returns the result; "": `on_commit` or `on_refused` counts it. Raises
        BundleError, FetchError and OSError."""
        if self._pending != NO_LABEL:        # the reload is late
            return "unchanged"
        loop = asyncio.get_running_loop()
        if source != self._source or loop.time() >= self._again_at:
            self._source, self._client, self._again_at = source, None, float("inf")
            self._etag, self._digest = "", b""
        client = self._client
        if client is None:
            client = await asyncio.to_thread(prepare, source)
        self._client = None                  # after a failure authorities are read anew
        fetched = await client.module.fetch(source, self._etag, client.context)
        self._client = client
        self._answered_at = time.time()
        if self._is_failing:
            self._is_failing = False
            self._tell("the source answers again")
        if fetched is None:
            return "unchanged"
        digest, bundle, reason = await asyncio.to_thread(
            judge, fetched.data, self._digest, source)
        if bundle is not None:
            try:
                result = await self._take(bundle, Cache(source.cache))
            except BundleError as error:
                result, reason = "refused", str(error)
            # Else it is tried again: a full disk, or an upgrade that began meanwhile
        self._etag, self._digest = fetched.etag, digest
        if reason:
            raise BundleError(reason)
        return "unchanged" if bundle is None else result

    async def _take(self, bundle: Bundle, cache: Cache) -> str:
        manifest, good = bundle.manifest, self._generation().bundle
        if manifest.serial < good.serial:
            raise BundleError(f"{manifest.label} is older than {good}")
        if manifest.serial == good.serial:
            if cache.holds(GOOD, bundle):
                return "unchanged"
            raise BundleError(f"{manifest.label} has other content than the one that "
                              "is in force")
        if not manifest.is_for(socket.gethostname()):
            self._tell(f"{manifest.label} is a canary's, for other hosts")
            return "held"
        await asyncio.to_thread(cache.unpack, bundle)
        cache.point(CURRENT, manifest.serial)
        self._pending = manifest.label
        reload = self._request()
        await reload.over.wait()
        if reload.result != "late" and self._pending == manifest.label:
            self._pending = NO_LABEL         # it has read a configuration without it
        return ""

    def on_commit(self, label: Label) -> None:
        """A generation with this bundle is in force in this program."""
        self._keep(label)
        if label == self._pending != NO_LABEL:
            self._pending = NO_LABEL
            self._polls["new"] += 1

    def on_refused(self, label: Label | None) -> None:
        """A generation was refused. `label`: of its bundle; None: it was not read."""
        if self._pending == NO_LABEL or label not in (None, self._pending):
            return
        refused, self._pending = self._pending, NO_LABEL
        good = self._generation().bundle
        self._polls["refused"] += 1
        self._again_at = asyncio.get_running_loop().time() + AGAIN_S
        say(f"bundle: {refused} was refused by the reload; {good} stays")
        try:
            Cache(self._config.bundle_cache).point(CURRENT, good.serial)
        except OSError as error:             # the next start does it
            say(f"bundle: {good} is not current again: {error}")

    def _keep(self, label: Label) -> None:
        """This bundle is the one to return to, and to start from."""
        if label == NO_LABEL:
            return
        cache = Cache(self._config.bundle_cache)
        try:
            manifest = cache.manifest(GOOD)
            if manifest is None or manifest.label != label:
                cache.point(GOOD, label.serial)
        except (OSError, BundleError) as error:
            say(f"bundle: {label} cannot be kept: {error}")


def prepare(source: BundleSource) -> Client:
    """Imports the client, and reads the authorities. Blocks for up to half a second.
    Raises FetchError."""
    module = importlib.import_module("cutthrough.bundle.fetch")
    return Client(module, module.make_context(source))


def judge(data: bytes, before: bytes, source: BundleSource
          ) -> tuple[bytes, Bundle | None, str]:
    """Returns the data's digest, and the bundle, verified; None: it is that of
    `before`, or there is a reason to refuse it."""
    digest = hashlib.sha256(data).digest()
    if digest == before:
        return digest, None, ""
    try:
        return digest, read_bundle(data, source.key), ""
    except BundleError as error:
        return digest, None, str(error)
