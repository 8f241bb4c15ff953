"""An HTTP Archive -> exchanges.

Beyond HAR 1.2 it accepts the habits of Chromium (a body with `params` and `text`,
fields of HTTP/2), Firefox (no `text` of images) and mitmproxy (an empty `content`;
`content.size` is the transferred length), and absent fields. Our own files have keys of
ours for facts beyond HAR.
"""

import base64
import binascii
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote_plus

import msgspec

from cutthrough.capture.failures import reason_of
from cutthrough.capture.flow import Fields, find
from cutthrough.capture.imported import Body, Exchange, Frame, Message, NotImported
from cutthrough.capture.messages import OPCODES
from cutthrough.exchange.content import as_text
from cutthrough.exchange.documents import read_file

# Bytes of a file, which is read whole: four times as much memory
MOST_FILE = 256 << 20
OURS = "cutthrough"                          # of `creator`
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A JSON number that the database can hold: JSON has no NaN, but 1e300
Number = Annotated[float, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
Text = str | None


class Pair(msgspec.Struct):
    name: str
    value: Text = None


def ours(name: str) -> Any:
    """A field of ours, absent in other programs' files."""
    return msgspec.field(name=f"_{name}", default=None)


class Post(msgspec.Struct, rename="camel"):
    mime_type: Text = None
    text: Text = None
    params: list[Pair] | None = None
    encoding: Text = ours("encoding")
    state: Text = ours("state")


class Content(msgspec.Struct, rename="camel"):
    size: Number | None = None
    mime_type: Text = None
    text: Text = None
    encoding: Text = None
    comment: Text = None


class Request(msgspec.Struct, rename="camel"):
    method: str
    url: str
    http_version: Text = None
    headers: list[Pair] = []
    headers_size: Number | None = None
    body_size: Number | None = None
    post_data: Post | None = None
    trailers: list[Pair] | None = ours("trailers")


class Response(msgspec.Struct, rename="camel"):
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] = 0
    status_text: Text = None
    http_version: Text = None
    headers: list[Pair] = []
    headers_size: Number | None = None
    body_size: Number | None = None
    content: Content = msgspec.field(default_factory=Content)
    error: Text = msgspec.field(name="_error", default=None)     # Chromium's, too
    trailers: list[Pair] | None = ours("trailers")


class Timings(msgspec.Struct):
    blocked: Number | None = None
    dns: Number | None = None
    connect: Number | None = None
    send: Number | None = None
    wait: Number | None = None
    receive: Number | None = None
    ssl: Number | None = None
    auth: Number | None = ours("auth")
    hook: Number | None = ours("hook")
    held: Number | None = ours("held")
    client_tls: Number | None = ours("client_tls")


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
    started_date_time: str
    request: Request
    response: Response
    time: Number | None = None
    timings: Timings = msgspec.field(default_factory=Timings)
    peer: Text = msgspec.field(name="serverIPAddress", default=None)
    id: Any = ours("id")
    rule: Text = ours("rule")
    user: Text = ours("user")
    parent: Text = ours("parent")
    error: Text = ours("error")
    detail: Text = ours("detail")
    client_http_version: Text = ours("clientHttpVersion")
    resource_type: Text = ours("resourceType")
    messages: list[WebSocketMessage] | None = ours("webSocketMessages")
    messages_state: Text = ours("messagesState")


def read_archive(data: bytes) -> Iterator[Exchange | NotImported]:
    """The entries in order, or the reason if one cannot be read. Raises NotImported if
    the file is not an archive."""
    try:                                     # msgspec refuses halves of characters
        log = read_file(data)["log"]
        entries = log["entries"]
        creator = log["creator"] if "creator" in log else None
        program = creator.get("name") if isinstance(creator, dict) else None
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise NotImported(f"is no HTTP Archive: {error!r:.100}") from None
    if not isinstance(entries, list):
        raise NotImported("is no HTTP Archive: log.entries is no list")
    for number, entry in enumerate(entries):
        try:
            yield make_exchange(msgspec.convert(entry, Entry), number, program)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            yield NotImported(f"log.entries[{number}]: {error}")
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this entry (R71)
            yield NotImported(f"log.entries[{number}]: {reason_of(error)}")


def make_exchange(entry: Entry, number: int, program: object) -> Exchange:
    """Raises NotImported."""
    response = entry.response
    reason = entry.error or "ok"
    if not response.status and program != OURS:
        reason = response.error or entry.error or "failed"
    return Exchange(
        name=entry.id if isinstance(entry.id, str) else f"har-{number}",
        begun_us=read_date(entry.started_date_time), method=entry.request.method,
        url=entry.request.url, request=read_request(entry.request),
        response=read_response(response, program), status=response.status,
        reason_phrase=response.status_text or "", reason=reason,
        phases=read_phases(entry.timings), total_us=to_us(entry.time), rule=entry.rule,
        user=entry.user, parent=entry.parent, detail=entry.detail,
        client_version=entry.client_http_version or "",
        peer=(entry.peer or "").strip("[]") or None,
        is_tunnel=entry.resource_type == "websocket",
        frames=None if entry.messages is None else list(
            map(read_message, filter(is_frame, entry.messages))),
        frames_state=entry.messages_state or (
            "incomplete" if any(map(is_unknown, entry.messages or ())) else ""))


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
    return Frame(
        message.type == "send", round(message.time * 1e6), message.opcode,
        data.encode(errors="replace") if is_text else decode(data),
        message.state or "", message.bytes)


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


def read_request(request: Request) -> Message:
    post = request.post_data or Post()
    size = to_bytes(request.body_size)
    state = post.state or ""
    if post.text is None and post.params and (
            (post.mime_type or "").lower().startswith("multipart/")):
        state = state or "incomplete"        # files have no text there
    return Message(
        request.http_version or "", read_pairs(request.headers),
        to_bytes(request.headers_size), read_post(post, size), size,
        state=state, trailers=read_pairs(request.trailers or []))


def read_response(response: Response, program: object) -> Message:
    content = response.content
    fields = read_pairs(response.headers)
    body = read_content(content, fields, program)
    size = to_bytes(content.size)
    if body and (program == "mitmproxy" or (
            program != OURS and isinstance(body, bytes))):
        size = len(body if isinstance(body, bytes) else body.encode(errors="replace"))
    return Message(
        response.http_version or "", fields, to_bytes(response.headers_size), body,
        to_bytes(response.body_size), size,
        state=(content.comment or "") if program == OURS else "",
        trailers=read_pairs(response.trailers or []))


def read_pairs(pairs: list[Pair]) -> Fields:
    return [(pair.name, pair.value or "") for pair in pairs]


def read_post(post: Post, size: int | None) -> Body:
    """The body of a request; None: absent. If only parameters are there, they are
    encoded again."""
    if post.text is None and post.params:
        return "&".join(f"{quote_plus(one.name)}={quote_plus(one.value or '')}"
                        for one in post.params)
    if post.encoding == "base64":
        return decode(post.text or "")
    return None if post.text is None and size else post.text or ""


def read_content(content: Content, fields: Fields, program: object) -> Body:
    """The body of a response; None: absent. As at capture, bytes become text if their
    type is one of text."""
    if content.text is None:
        return None if content.size else ""
    if not content.encoding:
        return content.text
    if content.encoding != "base64":
        raise NotImported(f"the encoding {content.encoding!r:.40} is not known")
    data = decode(content.text)
    if program == OURS:
        return data
    kind = find(fields, "content-type") or content.mime_type or ""
    text = as_text(data, kind, whole=True)
    return data if text is None else text


def decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotImported("a body is not base64") from None


def read_date(text: str) -> int:
    """Microseconds since 1970 of a date in ISO 8601."""
    try:
        found = datetime.fromisoformat(text)
        return ((found.replace(tzinfo=found.tzinfo or UTC) - EPOCH)
                // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise NotImported(f"the date {text!r:.40} cannot be read") from None


def to_us(ms: float | None) -> int | None:
    """-1: it does not apply."""
    return None if ms is None or ms < 0 else round(ms * 1000)


def to_bytes(size: float | None) -> int | None:
    return None if size is None or size < 0 else round(size)
