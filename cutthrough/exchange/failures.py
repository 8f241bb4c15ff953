"""Exchanges that could not be handled, by reason: counted, logged once a minute (R71).

A reason is the type of an exception and the line that raised it. Its text is not kept:
it may quote the exchange (R37).
"""

import logging
import time
from collections import Counter
from pathlib import Path

log = logging.getLogger("cutthrough")

# Between two lines in the log, and reasons that a line has
REPORT_S = 60.0
MOST_REASONS = 5


class Failures:
    def __init__(self, what: str = "captured") -> None:
        """`what`: the failed action, as a participle."""
        self._what = what
        self._reasons: Counter[str] = Counter()          # since the last report
        self._counted = 0                                # since the last `take`
        self._reported = 0.0

    def add(self, error: BaseException, count: int = 1) -> None:
        self.count(reason_of(error), count)

    def count(self, reason: str, count: int = 1) -> None:
        self._reasons[reason] += count
        self._counted += count

    def take(self) -> int:
        """How many there were since the last call."""
        counted, self._counted = self._counted, 0
        return counted

    def report(self, *, at_once: bool = False) -> None:
        """Logs the failures since the last report, if it is time."""
        now = time.monotonic()
        if not self._reasons or (not at_once and self._reported
                                 and now - self._reported < REPORT_S):
            return
        self._reported = now
        reasons = ", ".join(f"{reason} ({count})" for reason, count
                            in self._reasons.most_common(MOST_REASONS))
        log.error("%d exchanges could not be %s, and are lost: %s",
                  self._reasons.total(), self._what, reasons)
        self._reasons.clear()


def reason_of(error: BaseException) -> str:
    """Without the error's text."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = ""
    if at is not None:
        where = f" in {Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"
    return f"{type(error).__name__}{where}"
