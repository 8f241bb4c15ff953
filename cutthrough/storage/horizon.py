"""The horizon: the number up to which a reader has all rows of several writers.

Numbers come from a sequence and writers do not wait for each other, so a batch may
appear before another batch with lower numbers. A batch therefore announces itself
before its first number: by a shared advisory lock, whose key has the lowest number that
it may get. Nobody waits for that lock, and it ends with the transaction.

    batch    announce ── numbers ── rows ── commit ── (the lock ends)
    reader   highest number ── announced batches ── rows up to the lower of both

If a batch was announced before and is not any more, the next statement sees its rows.
A later batch gets numbers above the highest.
"""

from typing import Any

import psycopg

# Bits of a number in a key
_NUMBER_BITS = 48


class Horizon:
    def __init__(self, kind: int, highest: str) -> None:
        """`kind`: the upper 16 bits of the keys, below 0x8000, of no other locks.
        `highest`: selects the highest number there is."""
        # In a column of a SELECT, in a transaction that takes numbers afterwards
        self.announcement = (
            f"pg_advisory_xact_lock_shared({kind << _NUMBER_BITS} + ({highest}) + 1)")
        # Its snapshot, which `highest` is of, is older than its look at the locks
        self._question = f"""
SELECT ({highest}) AS highest, (
    SELECT min(((classid::bigint & 65535) << 32) | objid::bigint)
    FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = {kind}
        AND database = (SELECT oid FROM pg_catalog.pg_database
            WHERE datname = current_database())) AS announced"""

    def read(self, cursor: psycopg.Cursor[dict[str, Any]]) -> int:
        """Outside of a transaction. The next statement sees all rows up to it."""
        row = cursor.execute(self._question).fetchone()
        assert row is not None
        highest, announced = int(row["highest"]), row["announced"]
        return highest if announced is None else min(highest, int(announced) - 1)
