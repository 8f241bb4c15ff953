"""Exchanges in hand, for a reader: rows like those of the database, with the bytes that
have come so far.

The END that each exchange would have now, and its parts, make a row as the writer makes
one, with the same redaction. Such a row has no number, and is not written.
"""

from collections.abc import Sequence
from typing import Any

from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.flow import Flow, Row
from cutthrough.exchange.redaction.redactor import Redactor
from cutthrough.storage.settings import Settings
from cutthrough.storage.store import BODIES, Reader
from cutthrough.tape.assembly import END, Assembly
from cutthrough.tape.open_parts import Opened, decode, split_name

_STATES = ("request_body_state", "response_body_state", "messages_state")


def read_opened(content: bytes, settings: Settings) -> list[dict[str, Any]]:
    """The rows of OpenFlows, the newest first."""
    redactor = Redactor(settings.redaction)
    rows = [make_row(opened, redactor) for opened in decode(content, list[Opened])]
    return sorted(rows, key=lambda row: int(row["begun_us"]), reverse=True)


def make_row(opened: Opened, redactor: Redactor) -> dict[str, Any]:
    worker, request = split_name(opened.name)
    (values,) = Assembly(redactor).rows(
        [*((kind, worker, request, payload) for kind, payload in opened.parts.records),
         (END, worker, request, opened.end)])
    row = {**dict(zip(COLUMNS, values, strict=True)), "id": None}
    for name in _STATES:
        if row[name] == "truncated":         # the rest has not come yet
            row[name] = None
    return row


class OpenReader:
    """Reads these rows, in place of a database's. Its reads are logged there."""

    def __init__(self, reader: Reader, rows: Sequence[dict[str, Any]]) -> None:
        self._reader = reader
        self.rows = rows

    def light(self, number: int) -> Row | None:
        return self.rows[0] if self.rows else None

    def bodies(self, number: int) -> Sequence[Any]:
        return [self.rows[0][name] for name in BODIES]

    def log(self, verb: str, what: str, count: int, client: str = "") -> int:
        return self._reader.log(f"open {verb}", what, count, client)

    def close(self) -> None:
        self._reader.close()


def whole_messages(flow: Flow) -> list[dict[str, Any]]:
    """Without the unfinished ones, because further ones must come behind these."""
    messages = flow.messages
    for side in ("request", "response"):
        last = next((message for message in reversed(messages)
                     if message["side"] == side), None)
        if last is not None and last.get("state") == "truncated":
            messages.remove(last)
    return messages
