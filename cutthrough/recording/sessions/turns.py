"""A session's place in each ring, so that nothing is added twice: a writer that is
killed between its transaction and the release of a ring's records leaves both.

Its successor first takes the same records out of the ring (tape/ring.pyx), perhaps
in smaller turns.
"""

import sqlite3
from typing import NamedTuple

_TABLE = ("CREATE TABLE IF NOT EXISTS turns (ring INTEGER PRIMARY KEY, "
          "upto INTEGER NOT NULL)")
# Rings that are remembered: each program has one for each worker
MOST = 256


class Turn(NamedTuple):
    """A writer's share of a ring at once. `end`: in bytes since the ring was
    made. `is_again`: a writer that was killed had taken the same."""

    ring: int
    end: int
    is_again: bool


def take(base: sqlite3.Connection, turn: Turn) -> bool:
    """Notes this turn, in the transaction that adds its recordings. False: it was noted
    already."""
    base.execute(_TABLE)
    if turn.is_again and base.execute(
            "SELECT 1 FROM turns WHERE ring = ? AND upto >= ?", turn[:2]).fetchone():
        return False
    if base.execute("UPDATE turns SET upto = ? WHERE ring = ?",
                    (turn.end, turn.ring)).rowcount == 0:
        base.execute("DELETE FROM turns WHERE (SELECT count(*) FROM turns) >= ?",
                     (MOST,))
        base.execute("INSERT INTO turns VALUES (?, ?)", turn[:2])
    return True
