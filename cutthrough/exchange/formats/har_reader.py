"""An HTTP Archive -> exchanges.

Beyond HAR 1.2 it accepts the habits of Chromium (a body with `params` and `text`,
fields of HTTP/2), Firefox (no `text` of images), mitmproxy (an empty `content`;
`content.size` is the transferred length) and Polly.js (lists of values of a field), and
absent values. An odd value costs itself alone, and is named. Our own files have keys of
ours for facts beyond HAR.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from cutthrough.exchange.documents import read_file
from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.flow import Fields
from cutthrough.exchange.formats.har_bodies import (
    Content,
    Number,
    Param,
    Post,
    Text,
    decode,
    join_pairs,
    read_content,
    read_post,
)
from cutthrough.exchange.formats.har_values import Notes, read_struct
from cutthrough.exchange.formats.imported import (
    MOST_US,
    Exchange,
    Frame,
    Message,
    NotImported,
    sound_fields,
)
from cutthrough.exchange.messages import OPCODES
from cutthrough.exchange.targets import spell_escaped

# Bytes of a file, which is read whole: four times as much memory
MOST_FILE = 256 << 20
OURS = "cutthrough"                          # of `creator`
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Octets of fields that Python has read as halves of characters (PEP 383)
_OCTETS = {0xDC00 + octet: octet for octet in range(0x80, 0x100)}
# -1: it does not apply
Milliseconds = Annotated[float, msgspec.Meta(ge=-(1 << 53), le=MOST_US // 1000)]


class Pair(msgspec.Struct):
    name: str
    value: Any = None                        # of Polly.js: a list


def ours(name: str) -> Any:
    """A field of ours, absent in other programs' files."""
    return msgspec.field(name=f"_{name}", default=None)


class Request(msgspec.Struct, rename="camel"):
    url: str
    method: Text = None
    http_version: Text = None
    headers: list[Pair] = []
    query_string: list[Param] = []
    headers_size: Number | None = None
    body_size: Number | None = None
    post_data: Post | None = None
    trailers: list[Pair] = ours("trailers")


class Response(msgspec.Struct, rename="camel"):
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] = 0
    status_text: Text = None
    http_version: Text = None
    headers: list[Pair] = []
    headers_size: Number | None = None
    body_size: Number | None = None
    content: Content = msgspec.field(default_factory=Content)
    error: Any = ours("error")               # Chromium's, too
    trailers: list[Pair] = ours("trailers")


class Timings(msgspec.Struct):
    blocked: Milliseconds | None = None
    dns: Milliseconds | None = None
    connect: Milliseconds | None = None
    send: Milliseconds | None = None
    wait: Milliseconds | None = None
    receive: Milliseconds | None = None
    ssl: Milliseconds | None = None
    auth: Milliseconds | None = ours("auth")
    hook: Milliseconds | None = ours("hook")
    held: Milliseconds | None = ours("held")
    client_tls: Milliseconds | None = ours("client_tls")


class WebSocketMessage(msgspec.Struct):
    """As Chromium writes them, and mitmproxy. Errors have the opcode -1."""

    type: str
    opcode: int
    time: Number
    data: Text = None
    encoding: Text = ours("encoding")
    bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None = ours("bytes")
    state: Text = ours("state")


class Entry(msgspec.Struct, rename="camel"):
    request: Request
    started_date_time: Text = None
    response: Response = msgspec.field(default_factory=Response)
    time: Milliseconds | None = None
    timings: Timings = msgspec.field(default_factory=Timings)
    peer: Text = msgspec.field(name="serverIPAddress", default=None)
    id: Any = ours("id")
    rule: Text = ours("rule")
    user: Text = ours("user")
    parent: Text = ours("parent")
    error: Any = ours("error")
    detail: Text = ours("detail")
    client_http_version: Text = ours("clientHttpVersion")
    resource_type: Text = ours("resourceType")
    messages: Any = ours("webSocketMessages")
    messages_state: Text = ours("messagesState")
    fingerprints: Any = ours("fingerprints")


def read_archive(data: bytes) -> Iterator[Exchange | NotImported]:
    """The entries in order, or the reason if one cannot be read. Raises NotImported if
    the file is not an archive."""
    try:                                     # msgspec refuses halves of characters
        document = read_file(data, constants=True)
    except (ValueError, RecursionError) as error:
        raise NotImported(f"is no HTTP Archive: {error!r:.100}") from None
    yield from read_log(document)


def read_log(document: Any) -> Iterator[Exchange | NotImported]:
    """As read_archive, of the document."""
    log = document.get("log") if isinstance(document, dict) else None
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(log, dict) or not isinstance(entries, list):
        raise NotImported("is no HTTP Archive: log.entries is no list")
    creator = log.get("creator")
    program = creator.get("name") if isinstance(creator, dict) else None
    for number, entry in enumerate(entries):
        notes = Notes()
        try:
            yield make_exchange(
                read_struct(entry, Entry, notes), number, program, notes)
        except NotImported as error:
            error.args = (f"log.entries[{number}]: {error}",)
            yield error
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            yield NotImported(f"log.entries[{number}]: {error}")
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this entry (R71)
            yield NotImported(f"log.entries[{number}]: {reason_of(error)}")


def make_exchange(entry: Entry, number: int, program: object, notes: Notes) -> Exchange:
    """Raises NotImported, and ValidationError of msgspec."""
    request, response = entry.request, entry.response
    reason = text_of_error(entry.error) or "ok"
    if not response.status and program != OURS:
        reason = text_of_error(response.error) or text_of_error(entry.error) or "failed"
    method = request.method
    if not method:
        method = "GET"
        notes.add("without a method: GET is assumed")
    messages = None if entry.messages is None else msgspec.convert(
        entry.messages, list[WebSocketMessage])
    return Exchange(
        name=entry.id if isinstance(entry.id, str) else f"har-{number}",
        begun_us=read_date(entry.started_date_time, notes), method=method,
        url=read_url(request), request=read_request(request, notes),
        response=read_response(response, method, program, notes),
        status=response.status, reason_phrase=response.status_text or "", reason=reason,
        phases=read_phases(entry.timings), total_us=to_us(entry.time), rule=entry.rule,
        user=entry.user, parent=entry.parent, detail=entry.detail,
        client_version=entry.client_http_version or "",
        peer=(entry.peer or "").strip("[]") or None,
        fingerprints=entry.fingerprints, is_tunnel=entry.resource_type == "websocket",
        frames=None if messages is None else list(
            map(read_message, filter(is_frame, messages))),
        frames_state=entry.messages_state or (
            "incomplete" if any(map(is_unknown, messages or ())) else ""),
        notes=notes.lines())


def text_of_error(value: Any) -> str:
    """A text, or an object with one, as Polly.js and others have it; "": there is none.
    """
    if isinstance(value, dict):
        value = next((value[key] for key in ("message", "code", "name")
                      if isinstance(value.get(key), str)), "failed")
    return value if isinstance(value, str) else "failed" if value else ""


def read_url(request: Request) -> str:
    """With the query, which some programs have beside it alone."""
    url = spell_escaped(request.url)         # mitmproxy writes octets so
    if "?" in url or not request.query_string:
        return url
    front, mark, fragment = url.partition("#")
    query = join_pairs([(pair.name, pair.value or "") for pair in request.query_string])
    return f"{front}?{query}{mark}{fragment}"


def is_unknown(message: WebSocketMessage) -> bool:
    """Is it a message of a kind that has no place here? An error (-1) is none."""
    return message.opcode >= 0 and not is_frame(message)


def is_frame(message: WebSocketMessage) -> bool:
    return message.opcode in OPCODES.values()


def read_message(message: WebSocketMessage) -> Frame:
    """Raises NotImported."""
    if message.type not in ("send", "receive"):
        raise NotImported(f"a message is of type {message.type!r:.20}")
    data = message.data or ""
    is_text = message.opcode == OPCODES["text"] and message.encoding != "base64"
    content = data.encode(errors="replace") if is_text else decode(data)
    if content is None:
        raise NotImported("a message is not base64")
    return Frame(message.type == "send", round(message.time * 1e6), message.opcode,
                 content, message.state or "", message.bytes)


def read_phases(timings: Timings) -> dict[str, int | None]:
    """`blocked` is all before the look-up; without our own keys all of it is `head`.
    `ssl` lies in `connect`."""
    phases = {name: to_us(getattr(timings, name))
              for name in ("dns", "connect", "auth", "hook", "held", "client_tls")}
    phases["origin_tls"] = secured = to_us(timings.ssl)
    if secured is not None and phases["connect"] is not None:
        phases["connect"] = max(0, phases["connect"] - secured)
    for name in ("send", "wait", "receive"):     # 0, too, if it is not known
        phases[name] = to_us(getattr(timings, name)) or None
    blocked = to_us(timings.blocked)
    if blocked is not None:
        blocked -= sum(phases[name] or 0 for name in ("auth", "hook", "held"))
    phases["head"] = blocked
    return phases


def read_request(request: Request, notes: Notes) -> Message:
    size = to_bytes(request.body_size)
    fields = read_pairs(request.headers, "request", notes)
    body, state = read_post(request.post_data or Post(), fields, size)
    return Message(
        request.http_version or "", fields, to_bytes(request.headers_size), body, size,
        state=state, trailers=read_pairs(request.trailers, "request", notes))


def read_response(response: Response, method: str, program: object, notes: Notes
                  ) -> Message:
    content = response.content
    fields = read_pairs(response.headers, "response", notes)
    body = read_content(content, fields, notes, ours=program == OURS)
    if body is None and is_empty(response, method, program):
        body = ""
    size = to_bytes(content.size)
    if body and (program == "mitmproxy" or (
            program != OURS and isinstance(body, bytes))):
        size = len(body if isinstance(body, bytes) else body.encode(errors="replace"))
    return Message(
        response.http_version or "", fields, to_bytes(response.headers_size), body,
        to_bytes(response.body_size), size,
        state=(content.comment or "") if program == OURS else "",
        trailers=read_pairs(response.trailers, "response", notes))


def is_empty(response: Response, method: str, program: object) -> bool:
    """Had the answer no content? Its size may be that of another one: of the GET, of
    what a browser has in its cache."""
    size = response.content.size
    if program == OURS:
        return not size
    return (not size or method.upper() == "HEAD" or response.status in (204, 304)
            # Playwright's, of a redirection
            or (size < 0 and (response.body_size or 0) <= 0
                and 300 <= response.status < 400))


def read_pairs(pairs: list[Pair] | None, side: str, notes: Notes) -> Fields:
    fields: Fields = []
    for pair in pairs or ():
        values = pair.value if isinstance(pair.value, list) else [pair.value]
        for value in values:
            if value is None or isinstance(value, str | int | float):
                fields.append((pair.name, "" if value is None else
                               str(value).translate(_OCTETS)))
            else:
                notes.add(f"{side}: a value of {pair.name!r:.60} is no text")
    return sound_fields(fields, side, notes.add)


def read_date(text: Text, notes: Notes) -> int:
    """Microseconds since 1970 of a date in ISO 8601; 0 if there is none."""
    try:
        date = datetime.fromisoformat(text or "")
        return ((date.replace(tzinfo=date.tzinfo or UTC) - EPOCH)
                // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        notes.add(f"without a date: startedDateTime is {text!r:.40}")
        return 0


def to_us(ms: float | None) -> int | None:
    """-1: it does not apply."""
    return None if ms is None or ms < 0 else round(ms * 1000)


def to_bytes(size: float | None) -> int | None:
    return None if size is None or size < 0 else round(size)
