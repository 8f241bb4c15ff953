"""How far each ring has been read into a session, so that nothing is added twice: a
writer that is killed between its transaction and the release of a ring's records
leaves both.

Its successor first takes the same records out of the ring (tape/ring.pyx), perhaps
in smaller parts.
"""

import sqlite3
from typing import NamedTuple

# Sessions of version 1 have it by this name
_TABLE = ("CREATE TABLE IF NOT EXISTS turns (ring INTEGER PRIMARY KEY, "
          "upto INTEGER NOT NULL)")
# Rings that are remembered: each program has one for each worker
MOST = 256


class Offset(NamedTuple):
    """The end of the records that a writer has read from a ring. `end`: in bytes since
    the ring was made. `is_again`: a writer that was killed had read them, too."""

    ring: int
    end: int
    is_again: bool


def advance(base: sqlite3.Connection, offset: Offset) -> bool:
    """Notes this offset, in the transaction that adds the recordings before it. False:
    they were added already."""
    base.execute(_TABLE)
    if offset.is_again and base.execute(
            "SELECT 1 FROM turns WHERE ring = ? AND upto >= ?", offset[:2]).fetchone():
        return False
    if base.execute("UPDATE turns SET upto = ? WHERE ring = ?",
                    (offset.end, offset.ring)).rowcount == 0:
        base.execute("DELETE FROM turns WHERE (SELECT count(*) FROM turns) >= ?",
                     (MOST,))
        base.execute("INSERT INTO turns VALUES (?, ?)", offset[:2])
    return True
