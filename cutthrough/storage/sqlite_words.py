"""The words of the rows of a file, by FTS5: indexed, forgotten, looked for.

    words   the words of every row, as spaces and marks divide them
    runs    of a row with text without spaces: its words, and the pairs of its runs

A row is found if either has all the words of a search. `runs` is a table of its own; in
a file of an earlier program the first writer makes it. If an earlier program writes
beside it, its deleted rows stay in `runs`, and lead to no row.

FTS5's own trigrams take ten times the CPU and seven times the room for ASCII, and find
no word of two characters, as most words of Chinese are.
"""

import sqlite3
from typing import Final

from cutthrough.exchange.packing import NoZstd, unpack
from cutthrough.storage.runs import paired, parts_of
from cutthrough.storage.store import WORDS, split_words

# Bytes of the rows of one transaction, and characters of their pairs, three for each
# character of the text: some 50 ms each
MOST_INDEXED_BYTES, MOST_PAIRS = 1 << 20, 256 << 10

# Of a row, also if a damaged page has it as a text or without a value
SIZE: Final = "CAST(coalesce(bytes, 0) AS INTEGER)"
RUNS: Final = """
CREATE VIRTUAL TABLE IF NOT EXISTS runs USING fts5(text, content='');
INSERT OR IGNORE INTO state VALUES ('paired', 0);
"""
# The texts of a row, whether they are in zstd or not. Messages that a damaged page has
# made no JSON have no words: else the row could not be deleted, and no row be added
_TEXTS = """unpacked AS SELECT id, url, request_head, response_head,
    CASE WHEN typeof(request_body) = 'text' THEN request_body
        WHEN request_packed IS NOT NULL THEN unpacked_text(request_packed)
        END AS request_body,
    CASE WHEN typeof(response_body) = 'text' THEN response_body
        WHEN response_packed IS NOT NULL THEN unpacked_text(response_packed)
        END AS response_body,
    CASE WHEN messages IS NOT NULL OR messages_packed IS NOT NULL THEN (
        SELECT group_concat(CASE type WHEN 'object' THEN
            json_extract(value, '$.text') END, char(10))
        FROM (SELECT coalesce(messages, unpacked_text(messages_packed)) AS whole),
            json_each(CASE WHEN json_valid(whole) THEN whole END)
        ) END AS messages
    FROM flows;
"""
# `texts`, the words' own view, is that of earlier programs, which know no other
UNPACKED: Final = f"CREATE VIEW IF NOT EXISTS {_TEXTS}"
# In a connection it stands before that of the file, which may be an earlier program's
OWN_UNPACKED: Final = f"CREATE TEMP VIEW {_TEXTS}"
_NAMES = ", ".join(WORDS)
_TEXT = " || char(10) || ".join(f"coalesce({name}, '')" for name in WORDS)
_INDEX = (f"INSERT INTO words (rowid, {_NAMES}) "
          f"SELECT id, {_NAMES} FROM unpacked WHERE id > ? AND id <= ?")
_FORGET = (f"INSERT INTO words (words, rowid, {_NAMES}) "
           f"SELECT 'delete', id, {_NAMES} FROM unpacked WHERE id >= ? AND id <= ?")
_PAIR = "INSERT INTO runs (rowid, text) VALUES (?, ?)"
_UNPAIR = "INSERT INTO runs (runs, rowid, text) VALUES ('delete', ?, ?)"
# Rows with characters beyond ASCII, without a call for each of the others
_UNPAIRED = f"""SELECT id, CAST(text AS BLOB) FROM (
    SELECT id, {_TEXT} AS text FROM unpacked WHERE id > ? AND id <= ?)
    WHERE length(CAST(text AS BLOB)) <> length(text) ORDER BY id"""
# FTS5's own table has a row for each row of `runs`
_PAIRED = f"""SELECT id, CAST({_TEXT} AS BLOB) FROM unpacked WHERE id IN (
    SELECT id FROM runs_docsize WHERE id >= ? AND id <= ?)"""


def unpacked_text(packed: bytes | None) -> str | None:
    """None, too, if it is no text, or cannot be read: then it has no words."""
    if not isinstance(packed, bytes):
        return None
    try:
        body = unpack(packed)
    except NoZstd:
        return None
    return body if isinstance(body, str) else None


class Words:
    """The index of words, by one connection. All but `find` is in a transaction. Raises
    sqlite3.Error."""

    def __init__(self, base: sqlite3.Connection, *, writes: bool = False) -> None:
        """`writes`: adds what a file of an earlier program lacks."""
        self._base = base
        base.execute(OWN_UNPACKED)
        self._has_runs = self._look()
        if writes and not self._has_runs:
            base.executescript(f"BEGIN IMMEDIATE; {RUNS} COMMIT;")
            self._has_runs = True

    def _look(self) -> bool:
        return self._base.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone() is not None

    def index(self, most: int) -> bool:
        """The words of the next `most` rows, or fewer large ones. False: there are no
        more."""
        return bool(self._index("indexed", most) + self._index("paired", most))

    def _index(self, name: str, most: int) -> int:
        """Returns the number of the last row; 0: there was none."""
        first, last, size = self._up_to(name), 0, 0
        for number, more in self._base.execute(
                f"SELECT id, {SIZE} FROM flows WHERE id > ? ORDER BY id LIMIT ?",
                (first, most)):
            last = number
            size += more
            if size >= MOST_INDEXED_BYTES:
                break
        if not last:
            return 0
        if name == "indexed":
            self._base.execute(_INDEX, (first, last))
        else:
            last = self._pair(first, last)
        self._base.execute("UPDATE state SET value = ? WHERE name = ?", (last, name))
        return last

    def _pair(self, first: int, last: int) -> int:
        """Returns the last indexed row."""
        rows, size = [], 0
        for number, text in self._base.execute(_UNPAIRED, (first, last)):
            if (pairs := paired(text.decode(errors="replace"))) is not None:
                rows.append((number, pairs))
                size += len(pairs)
                if size >= MOST_PAIRS:
                    last = number
                    break
        self._base.executemany(_PAIR, rows)
        return last

    def forget(self, first: int, last: int) -> None:
        """The words of rows before their deletion; a row without words is not indexed
        yet."""
        self._base.execute(_FORGET, (first, min(last, self._up_to("indexed"))))
        if self._has_runs:
            self._base.executemany(_UNPAIR, [
                (number, paired(text.decode(errors="replace")))
                for number, text in self._base.execute(_PAIRED, (first, last))])

    def _up_to(self, name: str) -> int:
        """The last row of an index."""
        (number,) = self._base.execute(
            "SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return int(number)

    def find(self, words: str) -> tuple[str, tuple[str, ...]] | None:
        """A condition of SQL for rows with all these words, and its values; None: these
        are no words."""
        whole = " ".join(f'"{word}"' for word in split_words(words))
        if not whole:
            return None
        numbers, values = ["SELECT rowid FROM words WHERE words MATCH ?"], [whole]
        if self._has_runs and (parts := parts_of(words)):
            numbers.append("SELECT rowid FROM runs WHERE runs MATCH ?")
            values.append(" ".join(f'"{" ".join(pairs)}"' if pairs else f'"{part}" *'
                                   for part, pairs in parts))
        return f"flows.id IN ({' UNION ALL '.join(numbers)})", tuple(values)
