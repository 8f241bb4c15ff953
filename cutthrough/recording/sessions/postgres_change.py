"""A change of a session in PostgreSQL, within its transaction: what it deletes, and the
sums by which the session grows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from cutthrough.recording.sessions.postgres_tables import OF, OLD_FIRST, SESSION_LOCK

Cursor = psycopg.Cursor[dict[str, Any]]


@dataclass(slots=True)
class Change:
    """`is_copied`: copies must have it."""

    cursor: Cursor
    session: int
    number: int
    numbers: list[int]                       # for new recordings
    count: int = 0                           # and bytes, by which the session grows
    bytes: int = 0
    is_copied: bool = True

    def may_delete(self) -> bool:
        """False: another host deletes some, which need not be waited for."""
        row = self.cursor.execute("SELECT pg_try_advisory_xact_lock(%s) AS is_ours",
                                  (SESSION_LOCK + self.session,)).fetchone()
        return row is not None and bool(row["is_ours"])

    def delete(self, where: str, values: Sequence[object]) -> int:
        self.cursor.execute(
            f"DELETE {OF} AND {where} RETURNING length(data) AS size",
            (self.session, *values))
        sizes = [row["size"] for row in self.cursor]
        self.count -= len(sizes)
        self.bytes -= sum(sizes)
        return len(sizes)

    def delete_old(self, oldest_us: int, most: int) -> int:
        """Reads the whole session."""
        return self.delete(
            f"number IN (SELECT number {OF} AND created_us < %s "
            "ORDER BY number LIMIT %s)", (self.session, oldest_us, most))

    def delete_first_old(self, oldest_us: int, most: int) -> int:
        """Deletes the recordings before the first that is not old, without reading the
        others. Returns how many."""
        row = self.cursor.execute(
            f"SELECT created_us {OF} ORDER BY number LIMIT 1",
            (self.session,)).fetchone()
        if row is None or row["created_us"] >= oldest_us:
            return 0
        return self.delete(OLD_FIRST, (oldest_us, self.session, most))
