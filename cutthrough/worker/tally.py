"""Counts a worker's requests by the rule that decided and by the user's groups, if the
option `rule_metrics` is set. Names are those of the policy, never from the wire (R38).
"""

import time
from collections.abc import Iterable

from cutthrough.session.model.counters import TALLIES, Page

RULE, GROUP = "rule", "group"


class RuleTally:
    """Requests since the last `write`, by name."""

    def __init__(self, page: Page, worker: int) -> None:
        self._page, self._worker = page, worker
        self._rows: dict[str, list[int]] = {}

    def count(self, rule: bytes | None, groups: Iterable[str], refused: bool,
              number: int) -> None:
        """One request or tunnel that has ended. `rule`: its label in the log, None:
        there was none; `number`: of the request in this worker."""
        names = [f"{GROUP} {group}" for group in groups]
        if rule is not None:
            names.append(f"{RULE} {rule.decode(errors='replace')}")
        for name in names:
            row = self._rows.setdefault(name, [0] * len(TALLIES))
            row[refused] += 1
            if refused:
                row[2:] = number, self._worker, time.time_ns() // 1_000_000

    def write(self) -> None:
        rows, self._rows = self._rows, {}
        self._page.write_tallies(rows.items())
