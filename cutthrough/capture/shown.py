"""The admin listener's views: rows of flows, messages, and the log of reads."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from cutthrough.capture.filters import address_of
from cutthrough.capture.indented import indent_json
from cutthrough.exchange.flow import Flow
from cutthrough.storage.store import BODIES, Reader

# Characters of a view; bounded, because indents can make a hostile body of 1 MiB many
# times as long
MOST_SHOWN = 4 << 20

# Of a row of the list: those that are not null
_SHOWN = ("request", "kind", "method", "url", "host", "status", "reason", "rule",
          "user", "client", "client_port", "intercepted", "sni", "ja4", "client_ja4",
          "http2_fingerprint", "tag",
          "comment", "program")


class LightRow:
    """A row; its bodies and messages are read when one of them is needed."""

    def __init__(self, row: Any, reader: Reader) -> None:
        self._row = row
        self._reader = reader
        self._bodies: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in BODIES:
            return self._row[name]
        if not self._bodies:
            self._bodies = dict(zip(
                BODIES, self._reader.bodies(self._row["id"]), strict=True))
        return self._bodies[name]

    def keys(self) -> list[str]:
        return list(self._row.keys())


def show_row(flow: Flow) -> dict[str, Any]:
    """A flow in a list. Absent: null."""
    row: dict[str, Any] = {
        "id": flow.id, "time": flow.begun.isoformat(timespec="milliseconds"),
        "ms": flow.total_us / 1000, "bytes": flow.bytes_up + flow.bytes_down}
    for name in _SHOWN:
        value = getattr(flow, name, None)    # a file has no column `program`
        if value is not None and value != "":
            row[name] = value
    if flow.fault:
        row["fault"] = flow.fault
    if peer := address_of(flow.peer, flow.peer_port):
        row["peer"] = peer
    kind = flow.response_type.partition(";")[0].strip()
    if kind:
        row["type"] = kind
    return row


def show_open(flow: Flow) -> dict[str, Any]:
    row = show_row(flow)
    del row["id"]                            # it gets its number when it ends
    return {**row, "open": True}


def show_read(row: Any) -> dict[str, Any]:
    at = datetime.fromtimestamp(row["at_ms"] / 1000, UTC)
    return {"time": at.isoformat(timespec="milliseconds"),
            **({"client": row["client"]} if row["client"] else {"uid": row["uid"]}),
            # A row of sqlite3 has values; a file has no such column
            **({"program": row["program"]} if "program" in row.keys() else {}),
            "verb": row["verb"], "what": row["what"], "found": row["found"]}


def add_shown(messages: list[dict[str, Any]]) -> None:
    """Adds to text in JSON how it is shown."""
    left = MOST_SHOWN
    for message in messages:
        text = message.get("text", "")
        if left and text.lstrip()[:1] in ("{", "["):
            message["shown"] = "\n".join(bound(indent_json(text), left))
            left = max(0, left - len(message["shown"]))


def bound(lines: Iterable[str], most: int = MOST_SHOWN) -> Iterator[str]:
    """Yields at most `most` characters of the lines, or a line more."""
    for line in lines:
        yield line[:most]
        most -= len(line) + 1
        if most <= 0:
            yield "(more is not shown)"
            return
