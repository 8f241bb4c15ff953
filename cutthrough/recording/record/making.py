"""A recording of an exchange from the ring, after the operator's hook."""

import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from cutthrough.contained import contain
from cutthrough.exchange.failures import Failures, reason_of
from cutthrough.recording.model.heads import Known
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.record.taping import NotWhole, make_recording
from cutthrough.tape.ring_exchange import RingExchange

log = logging.getLogger("cutthrough")

OnRecord = Callable[[Recording], Recording | None]


class Maker:
    def __init__(self, hooks: str, cuts: str, failures: Failures | None = None
                 ) -> None:
        """`hooks`: module:class; "": there are none. `cuts`: as of make_recording.
        `failures`: counts failures without a fault of the exchange."""
        self.failures = failures or Failures("recorded")
        self._on_record = find_hook(hooks)
        self._cuts = cuts
        self._partial = self._faults = 0
        self.detours: Counter[str] = Counter()           # by reason, as rows has them

    @property
    def has_hook(self) -> bool:
        return self._on_record is not None

    def recordings(self, exchanges: Iterable[RingExchange], known: Known
                   ) -> list[Recording]:
        """Of those that are recorded."""
        return [recording for exchange in exchanges
                if (recording := self.make(exchange, known)) is not None]

    def detour(self, exchange: RingExchange, known: Known, reason: str,
               error: Exception | None = None) -> Recording | None:
        """For an exchange of which no row could be made at once. `error`: if that
        failed. None: it is not recorded."""
        self.detours[reason] += 1
        recording = self.make(exchange, known)
        if recording is not None and error is not None:
            self._faults += 1
            if self._faults & (self._faults - 1) == 0:
                log.warning("a recording's row was made the long way: %s (%d so far)",
                            reason_of(error), self._faults)
        return recording

    def make(self, exchange: RingExchange, known: Known) -> Recording | None:
        """None: it is not recorded."""
        try:
            recording: Any = make_recording(exchange, known, self._cuts)
            if self._on_record is not None:
                recording = self._on_record(recording)
            if recording is None or isinstance(recording, Recording):
                return recording
            raise TypeError(f"on_record returned {type(recording).__name__}")
        except NotWhole as error:
            self.leave_out(exchange, error)
        except BaseException as error:       # the operator's code may raise anything
            self.failures.add(contain(error))
            self.leave_out(exchange, contain(error))
        return None

    def leave_out(self, exchange: RingExchange, error: BaseException) -> None:
        self._partial += 1
        if self._partial & (self._partial - 1) == 0:
            log.warning("an answer of %s is not recorded: %s (%d so far)",
                        exchange.host, error, self._partial)


def find_hook(name: str) -> OnRecord | None:
    """The method on_record of `module:Class`, or None. If it cannot be had, nothing is
    recorded: it may be there to remove secrets."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        hooks = getattr(importlib.import_module(module), attribute)()
        on_record: OnRecord | None = getattr(hooks, "on_record", None)
        return on_record
    except BaseException as error:
        reason = f"{name}: {type(error).__name__}: {contain(error)}"
        log.error("nothing is recorded: %s", reason)

        def refuse(recording: Recording) -> Recording | None:
            raise NotWhole(reason)

        return refuse
