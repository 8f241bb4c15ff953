"""Batches of rows into a table of SQLite: as a table that SQLite reads, or by sqlite3.

A row of 39 values takes 6 µs of CPU as a table that SQLite reads, and 15 by executemany
of sqlite3. The second way is for a build without SQLite's headers, and for a Python
whose sqlite3 loads no extensions.
"""

import functools
import operator
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutthrough.tape.batch import Batch

if TYPE_CHECKING:
    from cutthrough.storage.sqlite_batch import BatchTable

# sqlite3 looks for an adapter of nulls and bytes, by exceptions: 0.5 to 1 µs each. With
# one that returns the same object: 0.1 to 0.2
sqlite3.register_adapter(type(None), {None: None}.get)
sqlite3.register_adapter(bytes, bytes)


class Inserter:
    """Inserts into one table. `verb`: as INSERT INTO."""

    def __init__(self, base: sqlite3.Connection, verb: str, table: str,
                 columns: Sequence[str]) -> None:
        self._base, self._into = base, f"{verb} {table}"
        self._columns = tuple(columns)
        self._table = batch_table_of(base, len(columns))

    def insert(self, batch: Batch) -> int:
        """Returns how many rows were inserted. Raises sqlite3.Error."""
        if not len(batch):
            return 0
        # Without those that are null in all rows: a third of a capture's columns
        used = batch.used() or (0,)
        names = ", ".join([self._columns[number] for number in used])
        if self._table is not None:
            return self._table.insert(
                f"{self._into} ({names}) SELECT {_sources(used)} FROM given", batch)
        return self._base.executemany(
            f"{self._into} ({names}) VALUES ({', '.join('?' * len(used))})",
            map(operator.itemgetter(*used), batch) if len(used) > 1 else
            ((row[used[0]],) for row in batch)).rowcount


@functools.lru_cache(64)
def _sources(used: tuple[int, ...]) -> str:
    return ", ".join(f"c{number}" for number in used)


def batch_table_of(base: sqlite3.Connection, width: int) -> "BatchTable | None":
    """None: rows go through sqlite3."""
    try:
        from cutthrough.storage.sqlite_batch import BatchTable

        return BatchTable(base, width)
    except (ImportError, AttributeError, sqlite3.Error):
        return None
