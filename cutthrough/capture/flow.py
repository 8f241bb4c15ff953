"""A captured exchange as readers see it: a row of the store with its heads read."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

Fields = list[tuple[str, str]]


def read_fields(head: str) -> Fields:
    """The fields of a head, in order; white space around values is dropped."""
    found = []
    for line in head.split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found.append((name, value.strip()))
    return found


def find(fields: Fields, name: str) -> str:
    """The first value of this name (lower case); "": there is none."""
    return next((value for key, value in fields if key.lower() == name), "")


class Row(Protocol):
    """A row of sqlite3, or what reads like one."""

    def __getitem__(self, name: str, /) -> Any: ...
    def keys(self) -> Iterable[str]: ...


class Flow:
    """One row. Its columns are attributes: those of records.COLUMNS, and `id`."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def __getattr__(self, name: str) -> Any:
        try:
            return self._row[name]
        except IndexError:
            raise AttributeError(name) from None

    @cached_property
    def request_fields(self) -> Fields:
        return read_fields(self.request_head or "")

    @cached_property
    def response_fields(self) -> Fields:
        return read_fields(self.response_head or "")

    @property
    def request_type(self) -> str:
        return find(self.request_fields, "content-type")

    @property
    def response_type(self) -> str:
        return find(self.response_fields, "content-type")

    @property
    def has_response(self) -> bool:
        """Whether the origin answered, or the tunnel was made."""
        return bool(self.response_head) or self.kind == "tunnel"

    @property
    def begun(self) -> datetime:
        return datetime.fromtimestamp(self.begun_us / 1e6, UTC)

    def as_dict(self) -> dict[str, Any]:
        """The columns without heads and bodies."""
        left_out = {"request_head", "response_head", "request_body", "response_body",
                    "bytes", "begun_us", "ended_us"}
        return {"time": self.begun.isoformat(timespec="milliseconds")} | {
            key: self._row[key] for key in self._row.keys()
            if key not in left_out and self._row[key] is not None}
