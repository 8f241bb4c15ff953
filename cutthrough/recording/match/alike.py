"""Messages of a client, compared with recorded ones by the key of their route.

A message is compared as if it were the body of its request. A value ignored by the key,
such as an identifier, is the client's own: in answers it takes the place of the
recorded value at the same path.
"""

import json
from typing import Any

import msgspec

from cutthrough.exchange.bounds import TooMuch
from cutthrough.exchange.documents import compile_path, read_file, read_json
from cutthrough.exchange.jsonpath_nodes import Node
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.matches import RecordedRequest
from cutthrough.recording.match.nearest import differences
from cutthrough.recording.match.routes import Route
from cutthrough.recording.model.grpc_messages import MOST_MESSAGE_NEAR
from cutthrough.recording.model.recording import Request

# Of GraphQL over WebSocket; its operation is in `payload`
ID, PAYLOAD = "$.id", "payload"
# Values put in place of recorded values, and characters of each
MOST_OWN, MOST_VALUE = 1000, 256

# The client's values, by path and recorded value
Own = dict[tuple[str, str], str | int]


class Alike:
    """For one conversation. `request`: the recorded request."""

    def __init__(self, route: Route, request: Request) -> None:
        """Raises KeyMistake."""
        self._reader = KeyReader(route.key)
        self._request = msgspec.structs.replace(request, query="")
        self._is_graphql = route.key.body == "graphql"
        self._paths = () if route.key.body == "grpc" else route.key.ignored_paths
        self._plain: KeyReader | None = None
        if self._is_graphql:
            self._paths = (ID,)
            self._plain = KeyReader(msgspec.structs.replace(
                route.key, body="json", ignored_paths=(ID,)))
        self.own: Own = {}

    def compare(self, masked: bytes, here: bytes, there: bytes) -> str | None:
        """The difference, in words; None if they are the same, and the client's
        values are known. `masked`: the client's message without its secrets."""
        if not self.same(masked, there):
            return self.tell(masked, there)
        self.take(here, there)
        return None

    def same(self, here: bytes, there: bytes) -> bool:
        """`there` is the recorded message."""
        if here == there or self._reader.key.body == "raw":
            return here == there
        if self._reader.key.body == "grpc" and (
                max(len(here), len(there)) > MOST_MESSAGE_NEAR):
            return False
        return self._is_same(here, there)

    def _is_same(self, here: bytes, there: bytes) -> bool:
        reader, (request, other) = self._read(here, there)
        base, parts = reader.read(request, recorded=False)
        wanted, least = reader.read(other, recorded=True)
        return base == wanted and least.items() <= parts.items()

    def _read(self, here: bytes, there: bytes
              ) -> tuple[KeyReader, tuple[Request, Request]]:
        """Returns the reader of two messages, and a request in place of each."""
        if self._plain is not None:
            sent, recorded = operation(here), operation(there)
            if sent is None or recorded is None or sent[0] != recorded[0]:
                return self._plain, (self._as_request(here), self._as_request(there))
            here, there = sent[1], recorded[1]
        return self._reader, (self._as_request(here), self._as_request(there))

    def _as_request(self, data: bytes) -> Request:
        if self._reader.key.body == "grpc":
            data = b"\0" + len(data).to_bytes(4) + data
        return msgspec.structs.replace(self._request, method="POST", body=data)

    def tell(self, here: bytes, there: bytes) -> str:
        """The differences, in words."""
        reader, (request, other) = self._read(here, there)
        return "; ".join(list(differences(
            request, RecordedRequest(request=other), reader, {}, (request, other)))[:3])

    def take(self, here: bytes, there: bytes) -> None:
        """If they are the same: keeps the client's values ignored by the key."""
        if not self._paths or here == there:
            return
        sent, recorded = document(here), document(there)
        for path in self._paths if sent is not None and recorded is not None else ():
            for value, recorded_value in zip(
                    values_at(sent, path), values_at(recorded, path), strict=False):
                if is_identifier(value) and is_identifier(recorded_value) and (
                        len(self.own) < MOST_OWN):
                    self.own[path, as_key(recorded_value)] = value

    def answer(self, data: bytes) -> bytes:
        """A recorded message of the origin's, with the client's values."""
        if not self.own:
            return data
        message = document(data)
        if message is None:
            return data
        changed = False
        for path in self._paths:
            for node in nodes_at(message, path):
                own = self.own.get((path, as_key(node.value)))
                if own is not None and node.parent is not None:
                    node.parent.value[node.key] = own
                    changed = True
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode(
            errors="surrogatepass") if changed else data


def document(data: bytes) -> Any:
    """None if it is no object or list of JSON."""
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        read_json(data)                      # within its bounds
        return read_file(data)               # 1.0 stays 1.0
    except (ValueError, RecursionError):
        return None


def nodes_at(document: Any, path: str) -> list[Node]:
    """[] if there are too many nodes to look at."""
    try:
        return compile_path(path).find(document)
    except TooMuch:
        return []


def values_at(document: Any, path: str) -> list[Any]:
    return [node.value for node in nodes_at(document, path)]


def operation(data: bytes) -> tuple[Any, bytes] | None:
    """The type of a message, and the request of GraphQL in it; None if it is absent."""
    message = document(data)
    payload = message.get(PAYLOAD) if isinstance(message, dict) else None
    if not isinstance(payload, dict) or not ("query" in payload
                                             or "extensions" in payload):
        return None
    return message.get("type"), json.dumps(payload).encode()


def is_identifier(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and len(value) <= MOST_VALUE)


def as_key(value: Any) -> str:
    """1 and "1" differ."""
    return json.dumps(value) if isinstance(value, int | str) else ""
