"""Which recordings of a file operators have read."""

import os
import sqlite3
import time

from cutthrough.recording.sessions.session import MOST_READS, Read

# Made with the first
_TABLE = ("CREATE TABLE IF NOT EXISTS reads (at_ms INTEGER NOT NULL, uid INTEGER NOT "
          "NULL, verb TEXT NOT NULL, what TEXT NOT NULL, found INTEGER NOT NULL)")


def log_read(base: sqlite3.Connection, verb: str, what: str, count: int) -> None:
    base.execute(_TABLE)
    base.execute("INSERT INTO reads VALUES (?, ?, ?, ?, ?)", (
        time.time_ns() // 1_000_000, os.getuid(), verb, what, count))
    base.execute("DELETE FROM reads WHERE rowid <= (SELECT max(rowid) FROM reads) - ?",
                 (MOST_READS,))


def list_reads(base: sqlite3.Connection) -> list[Read]:
    """The newest first."""
    base.execute(_TABLE)
    return [Read(*row) for row in base.execute(
        "SELECT at_ms, uid, '', verb, what, found FROM reads ORDER BY rowid DESC")]
