"""A dump of mitmproxy (`mitmdump -w`) -> exchanges.

Each item is the state of one flow, a dictionary with the attributes of mitmproxy's
classes Request, Response and Server. All versions since 0.10 are read: of the keys that
are used here a few had other names. Bodies are bytes of the wire, without chunks.
Messages of WebSockets are with their flow since mitmproxy 7; those that it has dropped
are left out. Flows of TCP, UDP and DNS, and of WebSockets before that, are no exchanges
of HTTP, and are counted.
"""

import re
from collections.abc import Iterator
from typing import Any

from cutthrough.exchange.bodies import Transferred, make_body
from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.flow import Fields
from cutthrough.exchange.formats.har_values import Notes
from cutthrough.exchange.formats.imported import (
    Exchange,
    Frame,
    Message,
    NotImported,
    OtherProtocol,
    sound_fields,
)
from cutthrough.exchange.formats.tnetstring import (
    MOST_BYTES,
    Readable,
    TnetstringError,
    read_item,
)
from cutthrough.exchange.messages import OPCODES
from cutthrough.exchange.redaction.redactor import Redactor
from cutthrough.exchange.targets import spell_octets

# Types of flows beside http
OTHERS = ("tcp", "udp", "dns", "websocket")
# Keys that versions before 1.0 had under other names
_OLD_KEYS = {"status_code": "code", "reason": "msg", "content": "body"}


def read_dump(file: Readable, redactor: Redactor) -> Iterator[Exchange | NotImported]:
    """The flows in order, or the reason if one cannot be read. Behind a malformed
    netstring the reading ends, because the place of the next flow is not known."""
    number = 0
    while True:
        place = f"flow {number}"
        number += 1
        try:
            state = read_item(file)
        except EOFError:
            return
        except TnetstringError as error:
            yield NotImported(f"{place}: {error}; nothing behind it can be read")
            return
        try:
            if state is None:
                raise NotImported(f"has more than {MOST_BYTES} bytes")
            yield make_exchange(_State(state, "flow"), redactor)
        except NotImported as error:
            error.args = (f"{place}: {error}",)
            yield error
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this flow (R71)
            yield NotImported(f"{place}: {reason_of(error)}")


class _State:
    """A dictionary; its values are read with their types."""

    def __init__(self, values: Any, name: str) -> None:
        """Raises NotImported if it is none."""
        if not isinstance(values, dict):
            raise NotImported(f"{name} is no dictionary")
        self._values = values | {key: values[old] for key, old in _OLD_KEYS.items()
                                 if key not in values and old in values}
        self._name = name

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def part(self, key: str) -> "_State":
        return _State(self._values.get(key), f"{self._name}.{key}")

    def text(self, key: str, default: str = "") -> str:
        value = self._values.get(key)
        if value is None:
            return default
        if isinstance(value, bytes):         # of a message; others are text
            return value.decode("latin-1")
        return str(self._of(key, value, str))

    def data(self, key: str) -> bytes | None:
        value = self._values.get(key)
        return None if value is None else bytes(self._of(key, value, bytes))

    def is_true(self, key: str) -> bool:
        return self._values.get(key) is True

    def whole(self, key: str) -> int:
        return int(self._of(key, self._values.get(key), int))

    def us(self, key: str) -> int | None:
        """A time in seconds since 1970, in microseconds."""
        value = self._values.get(key)
        if value is None:
            return None
        return round(float(self._of(key, value, (int, float))) * 1e6)

    def items(self, key: str) -> list[Any]:
        value = self._values.get(key)
        return [] if value is None else list(self._of(key, value, list))

    def address(self, key: str) -> list[Any]:
        """Returns an address; before version 2.0 it was in another dictionary."""
        value = self._values.get(key)
        inner = value.get("address") if isinstance(value, dict) else value
        return inner if isinstance(inner, list) else []

    def _of(self, key: str, value: Any, kind: Any) -> Any:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise NotImported(f"{self._name}.{key} has the wrong type")
        return value


def make_exchange(flow: _State, redactor: Redactor) -> Exchange:
    """Raises NotImported."""
    kind = flow.text("type", "http")         # absent before version 0.11
    if kind in OTHERS:
        raise OtherProtocol(kind, f"is of type {kind}, not http")
    if kind != "http":
        raise NotImported(f"is of type {kind!r:.20}, not http")
    request = flow.part("request")
    server = flow.part("server_conn") if flow.has("server_conn") else (
        _State({}, "server_conn"))
    begun = request.us("timestamp_start")
    if begun is None:
        raise NotImported("has no time")
    response = flow.part("response") if flow.has("response") else None
    phases, ended = read_phases(begun, request, response, server)
    reason = "ok"
    if flow.has("error"):
        reason = flow.part("error").text("msg") or "failed"
    elif response is None:
        reason = "failed"
    host = request.text("host")
    shown = f"[{host}]" if ":" in host else host
    port, scheme = request.whole("port"), request.text("scheme", "http")
    path = request.text("path") or "/"
    # The target of OPTIONS may be *, and in older versions the path a whole URL
    path = re.sub(r"^[a-z]+://[^/]*", "", path)
    notes = Notes()
    usual = {"http": 80, "https": 443}.get(scheme)
    return Exchange(
        name=flow.text("id"), begun_us=begun, method=request.text("method"),
        url=f"{scheme}://{shown}{'' if port == usual else f':{port}'}"
            f"{spell_octets(path)}",
        request=read_message(request, "request", redactor, notes),
        response=read_message(response, "response", redactor, notes)
        if response else Message(),
        status=response.whole("status_code") if response else 0,
        reason_phrase=response.text("reason") if response else "", reason=reason,
        phases=phases, total_us=max(0, ended - begun), peer=read_peer(server),
        is_tunnel=flow.has("websocket"),
        frames=read_frames(flow.part("websocket")) if flow.has("websocket") else None,
        notes=notes.lines())


def read_frames(websocket: _State) -> list[Frame]:
    """The messages: [opcode, from the client, content, time, dropped, injected]; and
    the close, which has keys of its own. Raises NotImported."""
    frames = []
    for message in websocket.items("messages"):
        match message:
            case [1 | 2 as opcode, bool(is_up), bytes(content), int() | float() as at,
                  bool(dropped), *_]:
                if not dropped:
                    frames.append(Frame(is_up, round(at * 1e6), opcode, content))
            case _:
                raise NotImported("has a message of a WebSocket that cannot be read")
    ended = websocket.us("timestamp_end")
    if ended is not None and websocket.has("close_code"):
        code = websocket.whole("close_code")
        content = code.to_bytes(2, "big") if 0 <= code <= 0xFFFF else b""
        frames.append(Frame(websocket.is_true("closed_by_client"), ended,
                            OPCODES["close"],
                            content + websocket.text("close_reason").encode()))
    return frames


def read_phases(begun: int, request: _State, response: _State | None, server: _State
                ) -> tuple[dict[str, int | None], int]:
    """The phases, and the time of the end. A connection that was made before the
    request is none of its phases; the handshake of TLS is a part of connecting."""
    sent = request.us("timestamp_end")
    first = response.us("timestamp_start") if response else None
    last = response.us("timestamp_end") if response else None
    dialled = server.us("timestamp_start")
    connected = server.us("timestamp_tls_setup") or server.us("timestamp_tcp_setup")

    def between(begin: int | None, end: int | None) -> int | None:
        return None if begin is None or end is None or end < begin else end - begin

    phases = {"send": between(begun, sent), "wait": between(sent, first),
              "receive": between(first, last)}
    if dialled is not None and dialled >= begun:
        phases["connect"] = between(dialled, connected)
        if phases["connect"] is not None and phases["wait"] is not None:
            # It dials when it has the request, and waits from then on
            phases["wait"] = max(0, phases["wait"] - phases["connect"])
    return phases, max(us for us in (begun, sent, first, last) if us is not None)


def read_message(message: _State, side: str, redactor: Redactor, notes: Notes
                 ) -> Message:
    fields = sound_fields(read_pairs(message, "headers"), side, notes.add)
    trailers = sound_fields(read_pairs(message, "trailers"), side, notes.add)
    raw = message.data("content")            # null: the body was streamed
    head = "".join(f"\r\n{name}: {value}" for name, value in fields)
    version = message.text("http_version")
    if not version and message.has("httpversion"):
        version = f"HTTP/{'.'.join(map(str, message.items('httpversion')[:2]))}"
    if raw is None:
        return Message(version, fields, trailers=trailers)
    body = make_body(Transferred(raw, len(raw)), head, redactor)
    return Message(version, fields, body=body.content, body_bytes=body.transferred,
                   content_bytes=body.decoded, state=body.state, trailers=trailers)


def read_pairs(message: _State, key: str) -> Fields:
    """Raises NotImported."""
    fields: Fields = []
    for pair in message.items(key):
        if not (isinstance(pair, list) and len(pair) == 2
                and all(isinstance(part, bytes) for part in pair)):
            raise NotImported("has a field that is no pair of bytes")
        fields.append((pair[0].decode("latin-1"), pair[1].decode("latin-1")))
    return fields


def read_peer(server: _State) -> str | None:
    """The address that was dialled: `peername`, until version 18 `ip_address`."""
    for key in ("peername", "ip_address"):
        address = server.address(key)
        if address and isinstance(address[0], str | bytes):
            value = address[0]
            return value.decode("latin-1") if isinstance(value, bytes) else value
    return None
