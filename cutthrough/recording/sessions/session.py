"""A session of recordings, in a file or in PostgreSQL.

    directory.py   a directory of files, of one host
    postgres.py    a database, of several hosts
    places.py      opens the sessions that the configuration, or an operator, names
    copies.py      files that follow sessions of a database

A session has bounds in recordings and age. Recordings beyond them are deleted, oldest
first, in the transaction that adds others. Everything is redacted before it is written,
and so are edited recordings.
"""

import re
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import msgspec

from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.model.recording import Recording
from cutthrough.storage.store import StoreError

# Of the tables
VERSION = 1
# Deleted in one transaction, beside as many as are added
MOST_PRUNED = 2000
# Recordings that are read at a time
PAGE = 100
# Bounds that a session may have: of recordings, and of their age
MOST_COUNT, MOST_AGE_S = 1 << 53, 1e11
# That are kept in the log of reads
MOST_READS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

encode = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Recording).decode


class SessionError(StoreError):
    """A session that cannot be used, with the reason."""


class NoSession(SessionError):
    """There is none of this name."""


class Row(NamedTuple):
    """A recording in a list; `size`: bytes of the whole."""

    number: int
    created_us: int
    hits: int
    method: str
    url: str
    status: int
    tags: str
    size: int


class Read(NamedTuple):
    """A read that was logged. `host`: "" if the session is a file."""

    at_ms: int
    uid: int
    host: str
    verb: str
    what: str
    found: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a whole session. Bounds of 0 are none. `copy_of`: the session of
    a database that a file follows, and `copied`: the last change of it that is here,
    and the last recording of this change."""

    version: int = VERSION
    program: str = ""                        # that made it
    created_us: int = 0
    redaction: Redaction = Redaction()
    count: int = 0
    age_s: float = 0
    comment: str = ""
    copy_of: str = ""
    copied: tuple[int, int] = (0, 0)


class Attempt(NamedTuple):
    """Recordings that were sent to a database, whose commit has no answer yet, and the
    number of their change."""

    change: int
    recordings: list[Recording]


class AnySession(Protocol):
    """Every method may raise StoreError, and then nothing has changed."""

    manifest: Manifest
    masker: Masker

    def set_bounds(self, count: int, age_s: float) -> None: ...

    def add(self, recordings: Iterable[Recording]) -> list[Recording]:
        """Redacts and adds them; returns them as they are kept, with their numbers."""

    def put(self, recordings: Iterable[Recording]) -> None:
        """As `add`, and returns nothing."""

    def prune(self) -> int:
        """Deletes those that have become too old; returns how many."""

    def read_behind(self, number: int, most: int) -> list[Recording]:
        """Returns the recordings behind this number, in order: `most` at most, and at
        least one, if there is one."""

    def get(self, number: int) -> Recording | None: ...

    def search(self, words: str, most: int = 100, before: int = 0) -> list[Recording]:
        """The newest with all these words in method, URL, tags, fields or bodies, and
        with lower numbers than `before`, if it is not 0. Of bodies upper and lower case
        differ, and content with a coding is not read."""

    def rows(self, words: str, most: int, before: int = 0) -> list[Row]:
        """As `search`, without fields and bodies."""

    def stop_at(self, deadline: float) -> None:
        """A statement that runs at this time of time.monotonic fails."""

    def edit(self, recording: Recording) -> bool:
        """Replaces the recording of its number. False: there is none."""

    def delete(self, numbers: Iterable[int]) -> int:
        """Returns how many there were."""

    def hit(self, hits: dict[int, int]) -> None:
        """Adds to the hits of these numbers."""

    def size(self) -> int:
        """Bytes of the whole."""

    def log(self, verb: str, what: str, count: int) -> None:
        """Logs, in the session, that this program's user has read so many."""

    def reads(self) -> list[Read]:
        """The logged reads, newest first; MOST_READS at most."""

    def __len__(self) -> int: ...

    def close(self) -> None: ...

    # The same for all.

    def recordings(self) -> Iterator[Recording]:
        """All, in order; those that are added meanwhile may be among them."""
        last = 0
        while page := self.read_behind(last, PAGE):
            last = page[-1].number
            yield from page


class AnySessions(Protocol):
    def names(self) -> list[str]: ...

    def create(self, name: str, manifest: Manifest | None = None) -> AnySession:
        """Raises SessionError if there is one of this name, and KeyMistake."""

    def open(self, name: str) -> AnySession: ...

    def delete(self, name: str) -> None:
        """Programs that have it open keep their copies."""

    def close(self) -> None: ...


def masked(masker: Masker, recordings: Iterable[Recording]) -> list[Recording]:
    """Redacted recordings without numbers, as they are added."""
    now_us = time.time_ns() // 1000
    with masker.batch():
        entries = map(masker.recording, recordings)
        return [entry if entry.created_us and not entry.number else
                msgspec.structs.replace(
                    entry, number=0, created_us=entry.created_us or now_us)
                for entry in entries]


def read(number: int, created_us: int, hits: int, data: bytes) -> Recording:
    """A recording of its columns, of whatever type a damaged file has them. Raises
    SessionError."""
    try:
        if not isinstance(created_us, int) or not isinstance(hits, int):
            raise TypeError("its time or its hits are no number")
        recording = _DECODE(data)
    except (msgspec.DecodeError, TypeError) as error:
        raise SessionError(f"recording {number}: {error}") from None
    return msgspec.structs.replace(
        recording, number=number, created_us=created_us, hits=hits)


def check_manifest(manifest: Manifest) -> None:
    """Checks the manifest of a file. Raises ValueError."""
    if not (0 <= manifest.count <= MOST_COUNT and 0 <= manifest.age_s <= MOST_AGE_S):
        raise ValueError(f"no session has these bounds: count {manifest.count!r:.20}, "
                         f"age_s {manifest.age_s!r:.20}")
    try:
        encode(manifest)
    except (UnicodeError, OverflowError):
        raise ValueError("a text has halves of characters, or a number is too "
                         "large") from None


def limit_us(age_s: float) -> int:
    """The time of the oldest recording that is not too old."""
    return max(0, time.time_ns() // 1000 - int(min(age_s, MOST_AGE_S) * 1e6))


def read_manifest(data: bytes) -> Manifest:
    """Raises SessionError."""
    try:
        return msgspec.msgpack.decode(data, type=Manifest)
    except (msgspec.DecodeError, TypeError) as error:    # no octets: TypeError
        raise SessionError(f"its manifest: {error}") from None


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Raises SessionError."""
    if not is_name(text):
        raise SessionError(f"{text!r:.110} is no name of a session: letters, digits, "
                           "dot, dash and underscore, at most 100")
    return text
