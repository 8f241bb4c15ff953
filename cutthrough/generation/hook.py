"""The policy hook: the operator's own Python function, called if no decision is cached.

    async def decide(request: cutthrough.Request) -> cutthrough.Decision

The hook is called after the rules, and only for requests that the rules allow; both
must allow. Identical requests share one call. Calls in progress are bounded, in total
and for each user. A call is cancelled when its last request has gone, and holds its
place until the function has ended. A decision is cached for its time to live. If the
function raises, returns anything but a Decision or takes too long, the request is
refused: the hook fails closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from cutthrough.contained import Begun, call, end
from cutthrough.exchange.work import Memory
from cutthrough.filters.breakpoints import Breakpoints
from cutthrough.filters.stage import Tally as FilterTally
from cutthrough.net.shares import Shares
from cutthrough.policy.decision_cache import Decision, DecisionCache

log = logging.getLogger("cutthrough")

Function = Callable[["Request"], Awaitable[Decision]]
Pairs = tuple[tuple[str, str], ...]

# Calls in progress: a hook that hangs must not pile up tasks without end (R31).
MOST_QUESTIONS = 1024


class Fingerprints(Mapping[str, str]):
    """A client's fingerprints, by the log's names: docs/fingerprints.md. It knows
    whether they were read: then a decision depends on them."""

    __slots__ = ("_texts", "are_read", "pairs")

    def __init__(self, pairs: Pairs = ()) -> None:
        self.pairs = pairs
        self._texts = dict(pairs)
        self.are_read = False

    def __getitem__(self, name: str) -> str:
        self.are_read = True
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        self.are_read = True
        return iter(self._texts)

    def __len__(self) -> int:
        self.are_read = True
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Fingerprints):  # of the same question?
            return self.pairs == other.pairs
        self.are_read = True
        return self._texts == other

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return repr(self._texts)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a hook. A cached decision applies to every client address and
    method: a hook that depends on these must return ttl=0. It applies to clients of
    the same fingerprints if the hook has read them, else to all."""

    user: str
    groups: tuple[str, ...]
    client: str                         # address, without port
    method: str
    host: str                           # canonical
    port: int
    own_method: str = ""                # of UPGRADE: its origin may do that instead
    fingerprints: Fingerprints = msgspec.field(default_factory=Fingerprints)


class Details(NamedTuple):
    """What a hook learns about a request beside its user and its destination."""

    groups: tuple[str, ...]
    client: str                         # address, without port
    method: str
    fingerprints: Pairs = ()
    own_method: str = ""                # "": the same


# The decision; None if the hook failed; an outcome's label if it was not called
Answer = Decision | str | None
Callback = Callable[[Answer], None]


class Tally:
    """Places, room and counters shared by the successive hooks and filters of a
    worker."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.filters = FilterTally(memory)
        self.breakpoints = Breakpoints()
        self.shares = Shares(MOST_QUESTIONS)
        self.asked = 0
        self.failures = 0
        self.dropped = 0

    def stats(self) -> dict[str, int]:
        """Counters since the start, and how many questions are under way."""
        return {"open": self.shares.taken, "asked": self.asked,
                "failed": self.failures, "dropped": self.dropped,
                "refused": self.shares.refused}


class _Question:
    """A call in progress, and the callbacks of its requests by token."""

    __slots__ = ("request", "task", "waiting")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.waiting: dict[object, Callback] = {}
        self.task: Begun[None] | None = None


class Hook:
    """Calls `function` and caches its decisions, for one worker and one generation."""

    details = Details                   # for the session, which imports nothing of here

    def __init__(
        self, function: Function, timeout: float, limits: Container[str] = (),
        entries: int = 10_000, tally: Tally | None = None
    ) -> None:
        """`timeout` in seconds; `limits`: names of limits that a decision may use;
        `tally`: the worker's."""
        self.verdicts = DecisionCache(entries)
        self.tally = tally or Tally()
        self._function = function
        self._timeout = timeout
        self._limits = limits
        # By the whole request: an answer for a GET does not apply to a POST
        self._questions: dict[Request, _Question] = {}
        self._tokens: dict[object, _Question] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, user: bytes, key: bytes, details: Details, callback: Callback,
            token: object = None) -> None:
        """Calls `callback` later, with an Answer.

        `key` is the canonical host and two bytes of port, most significant first.
        `token` is unique; a caller that stops waiting passes it to `abandon`.
        """
        request = Request(
            user=user.decode("utf-8", "replace"), groups=details.groups,
            client=details.client, method=details.method, host=key[:-2].decode(),
            port=int.from_bytes(key[-2:], "big"),
            own_method=details.own_method or details.method,
            fingerprints=Fingerprints(details.fingerprints))
        question = self._questions.get(request)
        if question is None:
            loop = asyncio.get_running_loop()
            label = self.tally.shares.take(user)
            if label:
                loop.call_soon(callback, label)
                return
            question = self._questions[request] = _Question(request)
            task = question.task = Begun(self._decide(user, key, question), loop=loop)
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_end, user))
        token = callback if token is None else token
        question.waiting[token] = callback
        self._tokens[token] = question

    def abandon(self, token: object) -> None:
        """Drops the callback of this token. Idempotent."""
        question = self._tokens.pop(token, None)
        if question is None:
            return
        del question.waiting[token]
        if not question.waiting and question.task is not None:
            self.tally.dropped += 1
            del self._questions[question.request]
            question.task.end()

    def _on_end(self, user: bytes, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.tally.shares.give(user)

    async def _decide(self, user: bytes, key: bytes, question: _Question) -> None:
        decision = None
        try:
            self.tally.asked += 1
            answer = await asyncio.wait_for(
                call(self._function, question.request), self._timeout)
            if not isinstance(answer, Decision):
                raise TypeError(f"returned {type(answer).__name__}, not a Decision")
            if answer.limits and answer.limits not in self._limits:
                raise ValueError(f"the policy has no limits named {answer.limits!r}")
            decision = answer
            now_ms = int(asyncio.get_running_loop().time() * 1000)
            given = question.request.fingerprints
            self.verdicts.keep(user, key, decision, now_ms,
                               given.pairs if given.are_read else None)
        except Exception as error:      # the operator's code: it may raise anything
            self._report_failure(error)
        except asyncio.CancelledError:
            if not question.waiting:
                raise
            self._report_failure(RuntimeError("its task was cancelled"))
        finally:
            if self._questions.get(question.request) is question:
                del self._questions[question.request]
            waiting, question.waiting = question.waiting, {}
            for token in waiting:
                del self._tokens[token]
            for callback in waiting.values():
                callback(decision)

    def _report_failure(self, error: Exception) -> None:
        self.tally.failures += 1
        failures = self.tally.failures
        if failures & (failures - 1) == 0:      # the 1st, 2nd, 4th, 8th …
            reason = "no answer in time" if isinstance(error, TimeoutError) else error
            log.error("the policy hook failed (%d so far): %s: %s", failures,
                      type(error).__name__, reason)

    async def close(self) -> None:
        """Cancels the calls in progress and drops their callbacks."""
        for question in self._questions.values():
            question.waiting.clear()
        self._tokens.clear()
        await end(self._tasks)
