"""Writes the worker's facts about parents into its page.

A parent has a row by its name. Several standings may have one name, because a reload
makes another one of a parent that has changed: the row has the state of the one in
force, and the sums of all.
"""

import time
from collections.abc import Mapping

from cutthrough.policy.parents import Registry, Standing, Ways
from cutthrough.session.model.counters import (
    PARENT_GAUGES,
    PARENT_STATES,
    PARENT_TOTALS,
    Page,
)
from cutthrough.worker.transaction import Transaction


class ParentRows:
    """The rows of the parents in `registry`, as far as `page` has room for them."""

    def __init__(self, page: Page, registry: Registry,
                 checks: Mapping[tuple[str, str], int]) -> None:
        """`checks`: the results of checks, see ParentChecks."""
        self._page = page
        self._registry = registry
        self._checks = checks
        self._checks_written: dict[tuple[str, str], int] = {}
        self._in_force: set[int] = set()     # numbers
        self._written: dict[int, list[int]] = {}     # totals, by number

    def prepare(self, ways: Ways | None, transaction: Transaction) -> None:
        """For these ways to be in force."""
        transaction.on_commit(self._assign, set() if ways is None else {
            parent.standing.number for parent in ways.parents
            if parent.standing is not None})

    def _assign(self, in_force: set[int]) -> None:
        self._in_force = in_force

    def write(self) -> None:
        rows: dict[str, tuple[list[int], list[int]]] = {}
        for standing in self._registry.standings:
            if standing is None:
                continue
            gauges, totals = self._read(standing)
            before = self._written.get(standing.number, [0] * len(totals))
            self._written[standing.number] = totals
            row = rows.setdefault(standing.name.decode(), (
                [0] * len(PARENT_GAUGES), [0] * len(totals)))
            row[0][-1] += gauges.pop()
            if standing.number in self._in_force:
                row[0][:-1] = gauges
            for n, total in enumerate(totals):
                row[1][n] += total - before[n]
        for (name, result), total in self._checks.items():
            if name in rows:
                rows[name][1][PARENT_TOTALS.index(f"checks {result}")] += (
                    total - self._checks_written.get((name, result), 0))
                self._checks_written[name, result] = total
        self._page.write_parents(
            (name, gauges, increases) for name, (gauges, increases) in rows.items())

    def _read(self, standing: Standing) -> tuple[list[int], list[int]]:
        """Returns a parent's gauges and totals, in the order of the page."""
        about = standing.describe(int(time.monotonic() * 1000))
        about["state"] = PARENT_STATES.index(about["state"])
        about |= {f"lost {reason}": n for reason, n in about["lost"].items()}
        about |= {"checks ok": 0, "checks failed": 0}        # added by `write`
        return ([about[word] for word in PARENT_GAUGES],
                [about[word] for word in PARENT_TOTALS])
