"""How often the recordings of a file were replayed, in a table beside them: a number
that stands in a recording's own row has all its page written again.

The column `hits` is what a recording had when it came or was edited, and what earlier
programs have counted. The sum of both counts.
"""

import sqlite3

import msgspec

# Sessions of version 1 have it by this name; it is made with the first count
_TABLE = ("CREATE TABLE IF NOT EXISTS counts (number INTEGER PRIMARY KEY, "
          "count INTEGER NOT NULL)")
# In the place of the column
_SUM = ("hits + ifnull((SELECT count FROM counts "
        "WHERE counts.number = recordings.number), 0)")


def _is_made(base: sqlite3.Connection) -> bool:
    return base.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND "
                        "name = 'counts'").fetchone() is not None


def with_counts(base: sqlite3.Connection, statement: str) -> str:
    """This SELECT from `recordings`, with the counts in `hits`."""
    return (statement.replace("hits", _SUM) if "hits" in statement and _is_made(base)
            else statement)


def add_counts(base: sqlite3.Connection, hits: dict[int, int]) -> None:
    base.execute(_TABLE)
    # One statement: other threads have Python meanwhile
    base.execute("INSERT INTO counts SELECT CAST(key AS INTEGER), value "
                 "FROM json_each(?) WHERE 1 ON CONFLICT DO "
                 "UPDATE SET count = count + excluded.count",
                 (msgspec.json.encode(hits).decode(),))


def read_counts(base: sqlite3.Connection, most: int) -> dict[int, int]:
    return dict(base.execute("SELECT number, count FROM counts LIMIT ?", (most,))
                if _is_made(base) else ())


def take_counts(base: sqlite3.Connection, hits: dict[int, int]) -> None:
    """Takes these away, which read_counts has returned."""
    add_counts(base, {number: -count for number, count in hits.items()})
    base.executemany("DELETE FROM counts WHERE number = ? AND count <= 0",
                     [(number,) for number in hits])


def drop_counts(base: sqlite3.Connection, first: int, last: int) -> None:
    """Of recordings that are deleted or edited: `hits` has the sum then."""
    if _is_made(base):
        base.execute("DELETE FROM counts WHERE number BETWEEN ? AND ?", (first, last))
