"""The store in a PostgreSQL database, to which several programs write.

    write:   announce, totals ── COPY ── (delete beyond bounds) ── totals, commit
    follow:  the horizon ── the rows above a number, up to it

Statements beside a comma are sent together. If the CPUs are busy, the program and its
process in the server wait for one at each answer, and that is most of a write's time.

No writer waits for another one. Numbers come from a sequence, so a batch may be seen
before another batch with lower numbers; a reader that follows ends at the horizon
(horizon.py), and misses none. Totals and bounds are of all programs' rows: a batch adds
a row to `totals`, and one program at a time deletes rows beyond the bounds, and
makes one row of these.
"""

import contextlib
import functools
import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg

from cutthrough.exchange.columns import ADDED, COLUMNS, PACKED
from cutthrough.exchange.packing import Packer
from cutthrough.storage.horizon import Horizon
from cutthrough.storage.postgres import (
    ANSWER_S,
    READER_ANSWER_S,
    REFUSED,
    Base,
    KnownRow,
)
from cutthrough.storage.postgres_rows import (
    OWN,
    TABLES,
    clean,
    join_bodies,
    query_of,
    quote,
    select_list,
    values_of,
)
from cutthrough.storage.store import (
    BODIES,
    BYTES,
    LIGHT,
    MOST_PRUNED,
    MOST_PRUNED_BYTES,
    MOST_READS,
    Rows,
    StoreAway,
)

# Whole rows of one SELECT: 20 MiB with bodies of the usual bound
WHOLE_ROWS = 20
# From so many rows of `totals` on, they are made one
MOST_TOTALS = 100
# Locks of deletions and of imports
PRUNING, IMPORTING = 0x63757470, 0x63757469
HORIZON = Horizon(0x6375, "SELECT coalesce(max(id), 0) FROM cutthrough.flows")

# Without parameters, because it is sent with other statements
_ADD = "INSERT INTO cutthrough.totals VALUES ({flows:d}, {bytes:d})"
_TOTALS = """
SELECT coalesce(sum(flows), 0)::bigint AS flows,
    coalesce(sum(bytes), 0)::bigint AS bytes, count(*) AS rows,
    EXISTS (SELECT FROM cutthrough.flows
        WHERE begun_us < {oldest:d} AND ended_us < {oldest:d}) AS is_old
FROM cutthrough.totals"""
_FOLD = """
WITH old AS (DELETE FROM cutthrough.totals RETURNING flows, bytes)
INSERT INTO cutthrough.totals SELECT sum(flows) - {flows:d}, sum(bytes) - {bytes:d}
FROM old HAVING count(*) > 0"""
_LOCK = f"SELECT pg_try_advisory_xact_lock({PRUNING}) AS is_ours"

_BEGUN, _REQUEST = COLUMNS.index("begun_us"), COLUMNS.index("request")
# The first ones beyond the bounds, and those that have ended too long ago, wherever
# they are: one before them may be of another program's clock, or imported
_PRUNE = """
DELETE FROM cutthrough.flows WHERE id IN (
    SELECT id FROM (
        SELECT id, bytes, row_number() OVER run AS n, sum(bytes) OVER run AS size
        FROM (SELECT id, bytes FROM cutthrough.flows ORDER BY id
            LIMIT %(looked)s) AS oldest
        WINDOW run AS (ORDER BY id)) AS sums
    WHERE size - bytes < %(most_bytes)s AND (n <= %(rows_over)s
        OR size - bytes < %(bytes_over)s)
    UNION SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY begun_us, id) AS size
        FROM (SELECT id, bytes, begun_us FROM cutthrough.flows
            WHERE begun_us < %(oldest_us)s AND ended_us < %(oldest_us)s
            ORDER BY begun_us LIMIT %(most)s) AS aged) AS aged_sums
    WHERE size - bytes < %(most_bytes)s)
RETURNING bytes"""


class Totals(NamedTuple):
    """The totals of all programs: rows and their bytes, in so many rows of `totals`;
    and whether a program ended too long ago."""

    flows: int
    bytes: int
    rows: int
    is_old: bool


class PostgresStore:
    """Implements Store. It connects at the first call. `program`: the origin of the
    rows; "": they are imported, and the same exchange of any program is not added."""

    def __init__(self, url: str, count: int, most_bytes: int, age_s: float,
                 program: str, packer: Packer | None = None) -> None:
        self._packer = packer
        self._base = Base(url, TABLES, ANSWER_S, may_make=True)
        self._program = program
        self._count, self._most_bytes, self._age_us = count, most_bytes, age_s * 1e6
        self.is_over = False

    def open(self) -> None:
        with self._base.cursor():
            pass

    @property
    def is_there(self) -> bool:
        return True

    def write(self, rows: Rows) -> int:
        batch = list(rows)
        if self._count:
            batch = batch[-self._count:]
        records = [values_of(row, self._program, self._packer) for row in batch]
        if self._program:
            with contextlib.suppress(KnownRow):
                return self._write(batch, records, anew=True)
        return self._write(batch, records, anew=False)

    def _write(self, rows: Sequence[tuple[Any, ...]], records: list[list[Any]], *,
               anew: bool) -> int:
        """`anew`: none of the rows is there yet. Raises KnownRow if one is, or if a
        text is none that PostgreSQL can hold."""
        begin = ["BEGIN", f"SELECT {HORIZON.announcement}",
                 _TOTALS.format(oldest=self._oldest_us)]
        if not self._program:                # two may have the same exchanges
            begin.insert(1, f"SELECT pg_advisory_xact_lock({IMPORTING})")
        with self._base.cursor() as cursor:
            totals = _totals(_together(cursor, *begin))
            if anew:
                try:
                    _copy(cursor, records)
                except REFUSED:
                    raise KnownRow from None
                numbers = list(range(len(rows)))
            else:
                numbers = [number for number, values in enumerate(records)
                           if self._insert(cursor, values)]
            size = sum(records[number][BYTES] for number in numbers)
            is_over = self._finish(cursor, totals, len(numbers), size)
        self.is_over = is_over
        return len(numbers)

    def _insert(self, cursor: psycopg.Cursor[Any], values: Sequence[Any]) -> bool:
        """False: it is there already."""
        values = [clean(value) for value in values]
        cursor.execute(
            f"INSERT INTO cutthrough.flows ({quote((*COLUMNS, *OWN))}) "
            f"SELECT {', '.join(['%s'] * len(values))} WHERE %s OR NOT EXISTS (SELECT "
            "FROM cutthrough.flows WHERE begun_us = %s AND request = %s) "
            "ON CONFLICT DO NOTHING",
            [*values, self._program != "", values[_BEGUN], values[_REQUEST]])
        return cursor.rowcount == 1

    def _finish(self, cursor: psycopg.Cursor[Any], totals: Totals, count: int,
                size: int) -> bool:
        """Adds new rows and their bytes to the totals, deletes rows beyond the bounds,
        unless another program does, and commits. True: there are more of them."""
        add = [_ADD.format(flows=count, bytes=size)] if count else []
        if not self._beyond(totals, count, size) and totals.rows <= MOST_TOTALS:
            _together(cursor, *add, "COMMIT")
            return False
        # Another one may have deleted some meanwhile
        answers = _together(
            cursor, *add, _LOCK, _TOTALS.format(oldest=self._oldest_us))
        if not answers[-2]["is_ours"]:
            _together(cursor, "COMMIT")
            return False
        over = self._beyond(_totals(answers), 0, 0)
        most, most_bytes = MOST_PRUNED + count, MOST_PRUNED_BYTES + size
        freed: list[int] = []
        if over:
            looked = most if over["bytes_over"] > 0 else min(most, over["rows_over"])
            cursor.execute(_PRUNE, {
                **over, "looked": max(looked, 0), "most": most,
                "most_bytes": most_bytes})
            freed = [row["bytes"] for row in cursor]
        _together(cursor, _FOLD.format(flows=len(freed), bytes=sum(freed)), "COMMIT")
        return len(freed) >= most or sum(freed) >= most_bytes

    def _beyond(self, totals: Totals, count: int, size: int) -> dict[str, int]:
        """Returns by how much new rows and their bytes would exceed the bounds; empty
        if they would not."""
        rows_over = totals.flows + count - self._count if self._count else 0
        bytes_over = totals.bytes + size - self._most_bytes if self._most_bytes else 0
        return {"rows_over": rows_over, "bytes_over": bytes_over,
                "oldest_us": self._oldest_us} if (
                    rows_over > 0 or bytes_over > 0 or totals.is_old) else {}

    @property
    def _oldest_us(self) -> int:
        return time.time_ns() // 1000 - int(self._age_us) if self._age_us else 0

    def prune(self) -> None:
        self.write(())

    def measure(self) -> None:
        """The database has the totals of all programs."""

    def index(self, most: int) -> bool:
        """Words are indexed as they are written."""
        return False

    def close(self) -> None:
        self._base.close()


def _together(cursor: psycopg.Cursor[Any], *statements: str) -> list[dict[str, Any]]:
    """Sends statements without parameters at once; returns the first row of each that
    has rows."""
    cursor.execute("; ".join(statements))
    rows = []
    while True:
        if cursor.description is not None and (row := cursor.fetchone()) is not None:
            rows.append(row)
        if not cursor.nextset():
            return rows


def _totals(answers: list[dict[str, Any]]) -> Totals:
    """The last of these rows."""
    return Totals(**answers[-1])


def _copy(cursor: psycopg.Cursor[Any], records: list[list[Any]]) -> None:
    """Columns that are null in all rows are left out, a third of them."""
    if not records:
        return
    names = (*COLUMNS, *OWN)
    used = [number for number, values in enumerate(zip(*records, strict=True))
            if values[0] is not None or values.count(None) < len(records)]
    with cursor.copy(_copy_of(tuple(names[number] for number in used))) as copy:
        for values in records:
            copy.write_row([values[number] for number in used])


@functools.lru_cache(64)
def _copy_of(names: tuple[str, ...]) -> str:
    return f"COPY cutthrough.flows ({quote(names)}) FROM STDIN"


class PostgresReader:
    """Implements Reader."""

    def __init__(self, url: str, *, keep: bool = False) -> None:
        """`keep`: the connection, for the next reader. Raises StoreError; NoStore: the
        database has no tables of ours."""
        self._keep = keep
        self._base = Base(url, TABLES, READER_ANSWER_S, may_make=False)
        try:
            self._missing = self._look()
        except StoreAway:                    # a connection that was kept has broken
            self._missing = self._look()
        self._light = self._select_of(LIGHT)

    def _look(self) -> set[str]:
        """The columns that no writer has added yet; a reader may not."""
        return {*ADDED}.difference(row["attname"] for row in self._select(
            "SELECT attname FROM pg_catalog.pg_attribute WHERE "
            "attrelid = 'cutthrough.flows'::regclass"))

    def _select_of(self, names: Sequence[str]) -> str:
        return (f"SELECT {select_list(names, self._missing)}, program, tag, comment "
                "FROM cutthrough.flows WHERE ")

    def flows(self, words: str = "", number: int = 0) -> Iterator[dict[str, Any]]:
        where = "true"
        values: tuple[object, ...] = ()
        if words:
            where, values = "words @@ %s::tsquery", (query_of(words),)
            if not values[0]:
                return
        elif number:
            where, values = "id = %s", (number,)
        numbers = [row["id"] for row in self._select(
            f"SELECT id FROM cutthrough.flows WHERE {where} ORDER BY id DESC", values)]
        for at in range(0, len(numbers), WHOLE_ROWS):
            yield from map(join_bodies, self._select(
                f"{self._select_of(('id', *COLUMNS))} id = ANY(%s) ORDER BY id DESC",
                (numbers[at:at + WHOLE_ROWS],)))

    def page(self, at: int, most: int, *, rising: bool = False, words: str = ""
             ) -> list[dict[str, Any]]:
        order = "id < %s ORDER BY id DESC"
        if rising:
            order = f"id > %s AND id <= {(newest := self.newest())} ORDER BY id"
            if newest <= at:
                return []
        if not words:
            return self._select(f"{self._light} {order} LIMIT %s", (at, most))
        query = query_of(words)
        return self._select(f"{self._light} words @@ %s::tsquery AND {order} LIMIT %s",
                            (query, at, most)) if query else []

    def light(self, number: int) -> dict[str, Any] | None:
        rows = self._select(f"{self._light} id = %s", (number,))
        return rows[0] if rows else None

    def bodies(self, number: int) -> Sequence[Any]:
        rows = self._select(
            f"SELECT {select_list((*BODIES, *PACKED.values()), self._missing)} "
            "FROM cutthrough.flows WHERE id = %s", (number,))
        row = join_bodies(rows[0]) if rows else {}
        return tuple(row.get(name) for name in BODIES)

    def newest(self) -> int:
        with self._base.cursor() as cursor:
            return HORIZON.read(cursor)

    def resume(self, number: int) -> int:
        """At the highest number if that is lower. Beyond the horizon, because that may
        go back a little."""
        return min(number, int(self._select(
            "SELECT coalesce(max(id), 0) AS highest FROM cutthrough.flows"
            )[0]["highest"]))

    def _select(self, statement: str, values: Sequence[Any] = ()
                ) -> list[dict[str, Any]]:
        with self._base.cursor() as cursor:
            return cursor.execute(statement, values).fetchall()

    def delete(self, numbers: Sequence[int]) -> int:
        with self._base.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (PRUNING,))
            cursor.execute("DELETE FROM cutthrough.flows WHERE id = ANY(%s) "
                           "RETURNING bytes", (list(numbers),))
            freed = [row["bytes"] for row in cursor]
            if freed:
                cursor.execute(_ADD.format(flows=-len(freed), bytes=-sum(freed)))
        return len(freed)

    def mark(self, number: int, tag: str | None, comment: str | None) -> bool:
        with self._base.transaction() as cursor:
            cursor.execute(
                "UPDATE cutthrough.flows SET "
                "tag = nullif(coalesce(%s::text, tag), ''), "
                "comment = nullif(coalesce(%s::text, comment), '') WHERE id = %s",
                (clean(tag), clean(comment), number))
            return cursor.rowcount == 1

    def log(self, verb: str, what: str, count: int, client: str = "") -> int:
        with self._base.transaction() as cursor:
            cursor.execute(
                "INSERT INTO cutthrough.reads (at_ms, uid, program, client, verb, "
                "what, found) VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING id",
                (time.time_ns() // 1_000_000, os.getuid(), socket.gethostname(),
                 client or None, verb, clean(what), int(count)))
            entry = cursor.fetchone()
            cursor.execute("DELETE FROM cutthrough.reads WHERE id <= (SELECT max(id) "
                           "FROM cutthrough.reads) - %s", (MOST_READS,))
        return int(entry["id"]) if entry is not None else 0

    def correct(self, entry: int, count: int) -> None:
        with self._base.transaction() as cursor:
            cursor.execute("UPDATE cutthrough.reads SET found = %s WHERE id = %s",
                           (count, entry))

    def reads(self) -> list[dict[str, Any]]:
        return self._select("SELECT * FROM cutthrough.reads ORDER BY id DESC")

    def close(self) -> None:
        if self._keep:
            self._base.keep()
        else:
            self._base.close()
