"""The store of captured exchanges, as its writer and its readers see it.

    writer, import  ──>  Store ──┐   sqlite_store.py     a file, one program
                                 ├── postgres_store.py   a database, several programs
    flows, admin, MCP ─> Reader ─┘   stores.py           opens the one that is named

Both bound exchanges, bytes and age (R58): rows beyond a bound are deleted, oldest
first, in the transaction that adds rows; in a database by one program at a time. Each
read is logged in the store (R59).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from cutthrough.exchange.columns import COLUMNS, FINGERPRINTS, PACKED
from cutthrough.exchange.flow import Row
from cutthrough.exchange.packing import NoZstd, unpack
from cutthrough.tape.batch import Batch

# Rows beyond the bounds that are deleted in one transaction, and their bytes, beside as
# many as are added: some 20 ms, 100 ms if their words are indexed. A reload may lower a
# bound by a million rows, and the rings fill meanwhile
MOST_PRUNED, MOST_PRUNED_BYTES = 2000, 2 << 20
# Reads that are remembered
MOST_READS = 10_000

BODIES = ("request_body", "response_body", "messages")
# The columns of a row without them
LIGHT = tuple(name for name in ("id", *COLUMNS)
              if name not in (*BODIES, *PACKED.values()))
# The columns with indexed words
WORDS = ("url", "request_head", "response_head", *BODIES)
TEXTS = ("request", "kind", "method", "host", "url", "reason", "rule", "user", "client",
         "peer", "parent", "protocol", "sni", "alpn", "ja4", "request_body_state",
         "response_body_state", "request_head", "response_head", "tls_version",
         "client_tls_version", "client_cipher", "peer_tls_version", "peer_cipher",
         *FINGERPRINTS, "messages", "messages_state", "detail", "client_http",
         "origin_http", "request_trailers", "response_trailers")

BYTES = COLUMNS.index("bytes")
# Of a row: the columns of a body, plain and in zstd
PAIRS = tuple((COLUMNS.index(name), COLUMNS.index(packed))
              for name, packed in PACKED.items())

# The input of a store
Rows = Batch | Sequence[tuple[Any, ...]]


class StoreError(Exception):
    """A store that cannot be used, or rows that it refuses, with the reason."""


class NotNow(StoreError):
    """A store that cannot be used now: it is locked, of another version, no database,
    or not there. Rows that it did not take are not lost."""


class Locked(NotNow):
    """A file that another program has locked for too long."""


class StoreAway(NotNow):
    """A server that cannot be reached now."""


class Refused(StoreError):
    """A statement that fails in a file that can be used: rows may be the reason."""


class NoRoom(StoreError):
    """A disk that is full, or fails. Rows are lost until it does not."""


class NoStore(StoreError):
    """Nothing has been captured there yet."""


class Store(Protocol):
    """The writer's side. Bounds of 0 are none. `is_over`: rows beyond the bounds are
    left. Every method may raise StoreError, and then nothing has changed."""

    is_over: bool

    def open(self) -> None:
        """Makes the tables. Without it the first call does so."""

    @property
    def is_there(self) -> bool:
        """False: its file was deleted, or another has its name."""

    def write(self, rows: Rows) -> int:
        """Adds rows and deletes those beyond the bounds, as one transaction, unless
        another program deletes some now. Returns how many rows were not there
        already."""

    def prune(self) -> None:
        """Deletes rows that have become too old."""

    def measure(self) -> None:
        """Reads the sum of all rows' bytes: another program may write here, too."""

    def index(self, most: int) -> bool:
        """Indexes the words of the next `most` rows, or fewer large ones. False: there
        are no more."""

    def close(self) -> None: ...


class Reader(Protocol):
    """An operator's side: reads, and logs that it has. Raises StoreError."""

    def flows(self, words: str = "", number: int = 0) -> Iterator[Row]:
        """Whole rows, newest first: those with all these words, or the one of this
        number."""

    def page(self, at: int, most: int, *, rising: bool = False, words: str = ""
             ) -> Sequence[Row]:
        """Returns at most `most` rows without bodies: below number `at`, newest first,
        or above it, oldest first. Of the rows above, none is left out that appears
        later."""

    def light(self, number: int) -> Row | None:
        """One row without bodies."""

    def bodies(self, number: int) -> Sequence[Any]:
        """The columns BODIES of one row; nulls if it has gone."""

    def newest(self) -> int:
        """The number of the newest flow, up to which all are there; 0: there is
        none."""

    def resume(self, number: int) -> int:
        """Where who has all flows up to a number goes on: lower if the store is another
        one, or an earlier one, of a backup perhaps."""

    def delete(self, numbers: Sequence[int]) -> int:
        """Deletes these flows, their words and marks; returns how many there were."""

    def mark(self, number: int, tag: str | None, comment: str | None) -> bool:
        """Sets tag and comment of a flow; None leaves one as it is, "" removes it.
        False: there is no such flow."""

    def log(self, verb: str, what: str, count: int, client: str = "") -> int:
        """Logs a read of this program's user, or of a client of the admin listener.
        Returns the entry's number."""

    def correct(self, entry: int, count: int) -> None:
        """Sets the count, which is the column `found`, of an entry in the log."""

    def reads(self) -> Sequence[Row]:
        """The logged reads, newest first."""

    def close(self) -> None: ...


def unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the columns PACKED: their bodies are in their own ones; in place.
    Raises StoreError."""
    for name, packed in PACKED.items():
        if (data := row.pop(packed, None)) is not None:
            try:
                # A damaged page may make a text or a number of it
                row[name] = unpack(bytes(data)) if isinstance(
                    data, bytes | memoryview) else None
            except NoZstd as error:
                raise StoreError(str(error)) from None
    return row


def split_words(text: str) -> list[str]:
    """The words of a search."""
    return re.findall(r"\w+", text)
