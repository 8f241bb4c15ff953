"""A captured exchange as readers see it: a row of the store with its heads read."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

from cutthrough.exchange.columns import FINGERPRINTS
from cutthrough.exchange.content import octets_codec
from cutthrough.exchange.messages import read_events
from cutthrough.outcome import TABLE

# Of an ending: the side at fault; "": it is healthy (docs/endings.md)
FAULTS = {row.label: row.fault for row in TABLE}

# Methods in the log of requests for a tunnel. If the tunnel is intercepted, or refused,
# its row is a request's all the same
TUNNEL_METHODS = frozenset(("CONNECT", "SOCKS5", "SOCKS4", "UDP", "TUNNEL"))

Fields = list[tuple[str, str]]


def read_fields(head: str) -> Fields:
    """The fields of a head, in order; white space around values is dropped."""
    fields = []
    for line in head.split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields.append((name, value.strip()))
    return fields


def find(fields: Fields, name: str) -> str:
    """The first value of this name (lower case); "": there is none."""
    return next((value for key, value in fields if key.lower() == name), "")


class Row(Protocol):
    """A row of sqlite3, or an object that reads like one."""

    def __getitem__(self, name: str, /) -> Any: ...
    def keys(self) -> Iterable[str]: ...


class Flow:
    """One row. Its columns are attributes: those of columns.COLUMNS, and `id`."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def __getattr__(self, name: str) -> Any:
        try:
            return self._row[name]
        except (IndexError, KeyError):
            raise AttributeError(name) from None

    @cached_property
    def request_fields(self) -> Fields:
        return read_fields(self.request_head or "")

    @cached_property
    def response_fields(self) -> Fields:
        return read_fields(self.response_head or "")

    @cached_property
    def request_trailer_fields(self) -> Fields:
        return read_fields(f"\n{self.request_trailers or ''}")

    @cached_property
    def response_trailer_fields(self) -> Fields:
        return read_fields(f"\n{self.response_trailers or ''}")

    @property
    def is_tunnel(self) -> bool:
        """There is no request of HTTP to send once more, or to export; a WebSocket is a
        tunnel too."""
        return self.kind == "tunnel" or self.method in TUNNEL_METHODS

    @property
    def is_websocket(self) -> bool:
        """The origin agreed to one. Its messages are kept with "full" only."""
        return self.kind == "tunnel" and "websocket" in find(
            self.response_fields, "upgrade").lower()

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """In order: `side` (request or response), `kind` (text, binary, close, ping,
        pong, event), `text` or `base64`; of frames `at_us`, `bytes` and `code` of a
        close; of events `event` and `id`; `state` if the content is not whole."""
        if self._row["messages"]:
            return list(json.loads(self._row["messages"]))
        if isinstance(self.response_body, str) and (
                self.response_type.lower().startswith("text/event-stream")):
            return list(read_events(self.response_body))
        return []

    @property
    def request_type(self) -> str:
        return find(self.request_fields, "content-type")

    @property
    def response_type(self) -> str:
        return find(self.response_fields, "content-type")

    def charset_of(self, side: str) -> str:
        """Python's codec of a body that is text. "": it cannot become the octets that
        came, because another program's text is not in the charset of its type."""
        return octets_codec(getattr(self, f"{side}_body"),
                            getattr(self, f"{side}_type"))

    def octets(self, side: str) -> bytes:
        """A body, without its coding, as the octets that came; without a charset in
        UTF-8."""
        body: str | bytes = getattr(self, f"{side}_body") or b""
        if isinstance(body, bytes):
            return body
        codec = self.charset_of(side)
        return body.encode(codec) if codec else body.encode(errors="replace")

    @property
    def response_coding(self) -> str:
        coding = ", ".join(value for name, value in self.response_fields
                           if name.lower() == "content-encoding").lower()
        return "" if coding == "identity" else coding

    @property
    def has_response(self) -> bool:
        """Whether the origin answered, or the tunnel was made."""
        return bool(self.response_head) or self.kind == "tunnel"

    @property
    def fingerprints(self) -> dict[str, str]:
        """The client's fingerprints that are known, by the log's names."""
        return {name: text for name in FINGERPRINTS
                if (text := getattr(self, name, None))}

    @property
    def fault(self) -> str:
        """The side at fault: "client", "policy", "network", "origin", "proxy"
        or, of another program's error, "unknown"; "": it ended well."""
        return FAULTS.get(self.reason, "unknown")

    @property
    def has_failed(self) -> bool:
        """Did the exchange not end well, or has it the status of an error?"""
        return bool(self.fault) or (self.status or 0) >= 400

    @property
    def begun(self) -> datetime:
        return datetime.fromtimestamp(self.begun_us / 1e6, UTC)

    def as_dict(self) -> dict[str, Any]:
        """The columns without heads, bodies and trailers."""
        left_out = {"request_head", "response_head", "request_body", "response_body",
                    "request_trailers", "response_trailers", "messages", "bytes",
                    "begun_us", "ended_us"}
        return {"time": self.begun.isoformat(timespec="milliseconds")} | {
            key: self._row[key] for key in self._row.keys()
            if key not in left_out and self._row[key] is not None}
