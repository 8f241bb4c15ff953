"""An operator's changes of a session, by the verb or the admin listener: the same
checks for both."""

import time
from typing import Any

import msgspec

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.sessions.folder import unpack
from cutthrough.recording.sessions.session import MOST_PRUNED, AnySession


def edit(session: AnySession, number: int, table: dict[str, Any], name: str) -> bool:
    """Replaces a recording; its time and hits stay. `table` has the form of an export,
    `name` is its source's. False if there is no such recording. Raises NotImported
    and StoreError."""
    recording = unpack(table, name)
    try:
        Matcher().add(recording)             # as a worker will
    except KeyMistake as error:
        raise NotImported(f"{name}: {error}") from None
    old = session.get(number)
    return old is not None and session.edit(msgspec.structs.replace(
        recording, number=number, created_us=old.created_us, hits=old.hits,
        owner=old.owner))


def set_bounds(session: AnySession, count: int | None, age_s: float | None,
               until: float) -> None:
    """If None, a bound stays. Deletes recordings beyond the bounds; not after `until`,
    a time of time.monotonic: the writer deletes the rest. Raises StoreError."""
    manifest = session.manifest
    session.set_bounds(manifest.count if count is None else count,
                       manifest.age_s if age_s is None else age_s)
    while session.prune() >= MOST_PRUNED and time.monotonic() < until:
        pass
