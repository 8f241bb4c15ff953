"""Exchanges from another program's file, as rows of the store.

    har_reader, dump_reader  ──>  Exchange  ──>  row  ──>  Store

The file is hostile: a value that no worker could have sent (a name with a line end, a
number beyond the database's) never becomes a row. Credentials are redacted, as in
captured exchanges (R59), and user information goes from every URL (R80). A fact that
the file lacks is null, never invented.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cutthrough.exchange.captured_echoes import echoes_of, without
from cutthrough.exchange.columns import COLUMNS, FINGERPRINTS
from cutthrough.exchange.content import has_heads
from cutthrough.exchange.echoes import Echoes
from cutthrough.exchange.flow import Fields, find
from cutthrough.exchange.messages import KINDS, MOST_MESSAGES, show
from cutthrough.exchange.messages import Message as Shown
from cutthrough.exchange.redaction.redactor import (
    Options,
    Redactor,
    Unreadable,
)
from cutthrough.exchange.targets import spell_iri
from cutthrough.exchange.user_information import without_user

# Bytes of a body that are kept: bodies.MOST_INFLATED
MOST_BODY = 4 << 20
# Characters of a URL, of a head, of a fingerprint, and of other texts
MOST_URL, MOST_HEAD, MOST_PRINT, MOST_TEXT = 64 << 10, 256 << 10, 600, 256
# 1970 to 9998 in microseconds; a day of the last year may lie in the next one
MOST_US = 253_370_764_800_000_000
MOST_BYTES = 1 << 53

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_AUTHORITY = re.compile(r"[^/?#]*")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_VERSION = re.compile(r"[0-9A-Za-z/.+]{1,20}")
# As browsers and mitmproxy write them
_VERSIONS = {"h2": "HTTP/2", "http/2": "HTTP/2", "http/2.0": "HTTP/2",
             "h3": "HTTP/3", "http/3": "HTTP/3", "http/3.0": "HTTP/3"}
_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}

CONNECTS = "is a CONNECT, whose exchanges have entries of their own"

Body = str | bytes | None


class NotImported(ValueError):
    """A file or an exchange that cannot be imported, with the reason."""


class Altered(NotImported):
    """The parts that an import leaves out by design: it has not failed."""


class OtherProtocol(NotImported):
    """An entry of another protocol, such as TCP, or of a browser itself: it is counted,
    and has not failed."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass
class Message:
    """A request or a response. None: not known. `body` is content, without codings."""

    version: str = ""
    fields: Fields = field(default_factory=list)
    head_bytes: int | None = None
    body: Body = None
    body_bytes: int | None = None            # transferred
    content_bytes: int | None = None
    state: str = ""                          # of bodies.Body
    trailers: Fields = field(default_factory=list)


class Frame(NamedTuple):
    """A message of a WebSocket, whole; of close the code is in its content."""

    is_up: bool
    at_us: int                               # Unix time
    opcode: int                              # of messages.OPCODES
    content: bytes
    state: str = ""                          # of Flow.messages
    size: int | None = None                  # bytes; None: the content's


@dataclass
class Exchange:
    """One exchange of a file. Times in microseconds; None: not known."""

    name: str                                # identifier
    begun_us: int
    method: str
    url: str
    request: Message
    response: Message
    status: int = 0                          # 0: no response
    reason_phrase: str = ""
    reason: str = "ok"
    phases: dict[str, int | None] = field(default_factory=dict)
    total_us: int | None = None              # None: the sum of the phases
    detail: str | None = None
    rule: str | None = None
    user: str | None = None
    parent: str | None = None
    peer: str | None = None
    client_version: str = ""                 # "": not known
    fingerprints: Any = None                 # by the log's names, of a dict of texts
    is_tunnel: bool = False
    frames: list[Frame] | None = None        # None: of no WebSocket, or not kept
    frames_state: str = ""
    notes: list[str] = field(default_factory=list)       # the changes against the file


def make_redactor(*, keep_credentials: bool) -> Redactor:
    """Redacts as capture does without further options."""
    return Redactor(Options(credentials=keep_credentials))


def make_row(exchange: Exchange, redactor: Redactor) -> tuple[Any, ...]:
    """Raises NotImported."""
    if _TOKEN.fullmatch(exchange.method) is None:
        raise NotImported(f"the method {exchange.method!r:.60} is none")
    if exchange.method == "CONNECT":
        raise OtherProtocol("CONNECT", CONNECTS)
    scheme, host, port, target = split_url(exchange.url)
    if not 0 <= exchange.status <= 999:
        raise NotImported(f"the status {exchange.status} is none")
    if not 0 <= exchange.begun_us < MOST_US:
        raise NotImported("the time is not in 1970 to 9998")
    request_head = make_head(
        f"{exchange.method} {target} {version_of(exchange.request)}",
        exchange.request.fields)
    response_head = None
    if exchange.status and (exchange.response.fields or exchange.response.version):
        response_head = make_head(
            f"{version_of(exchange.response)} {exchange.status:03} "
            f"{clean(exchange.reason_phrase)}",
            exchange.response.fields)
    for message in (exchange.request, exchange.response):
        cut_body(message)
        hide_heads(message, redactor)
    echoes = echoes_of(exchange.request.fields, redactor)
    if echoes is not None:
        response_head = response_head and echoes.text(response_head)
        cut_echoes(exchange.response, echoes)
    phases = {name: bounded(us, MOST_US) for name, us in exchange.phases.items()}
    total = bounded(exchange.total_us, MOST_US)
    if total is None:
        total = sum(us for us in phases.values() if us)
    ended = min(exchange.begun_us + total, MOST_US)
    row = dict.fromkeys(COLUMNS) | {
        "request": clean(exchange.name)[:MOST_TEXT], "begun_us": exchange.begun_us,
        "ended_us": ended, "kind": "tunnel" if (
            exchange.is_tunnel or exchange.frames is not None) else "request",
        "method": exchange.method, "host": host,
        "port": port or _DEFAULT_PORTS[scheme], "url": redactor.pairs(
            without_login(exchange.url)),
        "status": exchange.status or None, "reason": text(exchange.reason) or "ok",
        "detail": text(exchange.detail), "rule": text(exchange.rule), "reported": 0,
        "user": text(exchange.user), "parent": text(exchange.parent), "client": "",
        "peer": text(exchange.peer), **read_fingerprints(exchange.fingerprints),
        "total_us": total,
        **{f"{name}_us": us for name, us in phases.items()},
        "request_head": redactor.head(request_head),
        "response_head": response_head and redactor.head(response_head),
        "client_http": number_of(exchange.client_version),
        "origin_http": number_of(exchange.response.version) if response_head else None}
    for side, message in (
            ("request", exchange.request), ("response", exchange.response)):
        row |= {
            f"{side}_head_bytes": bounded(message.head_bytes, MOST_BYTES),
            f"{side}_body_bytes": bounded(message.body_bytes, MOST_BYTES),
            f"{side}_content_bytes": bounded(message.content_bytes, MOST_BYTES),
            f"{side}_body_state": message.state or None,
            f"{side}_body": message.body,
            f"{side}_trailers": make_trailers(
                message.trailers, redactor, echoes if side == "response" else None)}
    row["bytes_up"], row["bytes_down"] = (
        (row[f"{side}_head_bytes"] or 0) + (row[f"{side}_body_bytes"] or 0)
        for side in ("request", "response"))
    row["messages"], row["messages_state"] = make_messages(
        exchange, redactor, echoes)
    row["bytes"] = 400 + sum(len(row[name] or "") for name in (
        "url", "request_head", "response_head", "request_body", "response_body",
        "messages", "request_trailers", "response_trailers", *FINGERPRINTS))
    return tuple(row[name] for name in COLUMNS)


def make_messages(exchange: Exchange, redactor: Redactor, echoes: Echoes | None
                  ) -> tuple[str | None, str | None]:
    """The columns `messages` and `messages_state`. Raises NotImported."""
    if exchange.frames is None:
        return None, text(exchange.frames_state)
    state, left, shown = text(exchange.frames_state), MOST_BODY, []
    work = None if echoes is None else echoes.work()
    for number, frame in enumerate(exchange.frames):
        left -= len(frame.content)
        if number == 2 * MOST_MESSAGES or left < 0:
            state = "truncated"
            break
        if not 0 <= frame.at_us < MOST_US:
            raise NotImported("the time of a message is not in 1970 to 9998")
        entry = show(Shown(0, frame.is_up, KINDS[frame.opcode], frame.content,
                           clean(frame.state)[:MOST_TEXT]), frame.at_us, redactor,
                     echoes, work)
        if frame.size is not None:
            entry["bytes"] = frame.size
        shown.append(entry)
    return json.dumps(shown, ensure_ascii=False), state


def read_fingerprints(texts: Any) -> dict[str, str]:
    """Returns the fingerprints with known names. Values that are no text are left out.
    """
    return {name: clean(texts[name])[:MOST_PRINT] for name in FINGERPRINTS
            if isinstance(texts, dict) and isinstance(texts.get(name), str)}


def split_url(url: str) -> tuple[str, str, int | None, str]:
    """Scheme, host, port (None: the scheme's) and the rest as a request's target, in
    ASCII as clients send it. Raises NotImported."""
    if len(url) > MOST_URL or _CONTROLS.search(url) or not is_text(url):
        raise NotImported("the URL is too long, or has control characters")
    url = without_login(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise NotImported(f"the URL: {error}") from None
    if parts.scheme and parts.scheme not in _DEFAULT_PORTS:
        raise OtherProtocol(parts.scheme[:30],
                     f"the URL {without_user(url)!r:.60} is none of HTTP")
    if not parts.scheme or not host:
        raise NotImported(f"the URL {without_user(url)!r:.60} is none of HTTP")
    behind = re.sub(r"^[^/?#*]*", "", url.partition("://")[2]).partition("#")[0]
    target = spell_iri(behind)
    if not host.isascii():
        host = to_ascii(host)
    return parts.scheme, host, port, f"/{target}" if target[:1] == "?" else target or (
        "/")


def without_login(url: str) -> str:
    """Without the user information of the authority. Of another URL in this one it
    stays."""
    scheme, mark, rest = url.partition("://")
    authority = _AUTHORITY.match(rest)
    end = authority.end() if authority is not None else 0
    return f"{scheme}{mark}{rest[:end].rpartition('@')[2]}{rest[end:]}"


def to_ascii(host: str) -> str:
    """Raises NotImported."""
    import idna  # its tables are large, and few files need them

    try:
        if len(host) > MOST_TEXT:
            raise idna.IDNAError("is too long")
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise NotImported(f"the host {host!r:.60}: {error}") from None


def make_head(line: str, fields: Fields) -> str:
    """A head as a worker would have captured it. Raises NotImported."""
    lines = [line]
    for name, value in fields:
        if name.startswith(":"):             # pseudo-fields of HTTP/2 as browsers write
            continue
        if _TOKEN.fullmatch(name) is None:
            raise NotImported(f"the name of a field {name!r:.60} is none")
        # Browsers join the fields of one name by line ends
        lines += [f"{name}: {clean(part)}" for part in value.split("\n")]
    head = "\r\n".join([*lines, "", ""])
    if len(head) > MOST_HEAD:
        raise NotImported(f"a head is longer than {MOST_HEAD} characters")
    return head


def sound_fields(fields: Fields, side: str, name: Callable[[str], None]) -> Fields:
    """Returns the fields with possible names, and pseudo-fields of HTTP/2. The others,
    such as a request line, are named by `name`."""
    for key, _value in fields:
        if not is_name(key):
            name(f"{side}: without a field: the name {key!r:.60} is none")
    return [pair for pair in fields if is_name(pair[0])]


def is_name(text: str) -> bool:
    return _TOKEN.fullmatch(text.removeprefix(":")) is not None


def make_trailers(fields: Fields, redactor: Redactor, echoes: Echoes | None
                  ) -> str | None:
    """The lines. Raises NotImported."""
    lines = make_head("", fields).removesuffix("\r\n")
    if echoes is not None:
        lines = echoes.text(lines)
    return redactor.head(lines).removeprefix("\r\n") or None


def version_of(message: Message) -> str:
    """As a head has it, whoever wrote it in another way."""
    known = _VERSIONS.get(message.version.lower(), message.version)
    return known if _VERSION.fullmatch(known) else "HTTP/1.1"


def number_of(version: str) -> str | None:
    """The number alone; None: the text is no version."""
    known = _VERSIONS.get(version.lower(), version)
    return known[5:] if re.fullmatch("HTTP/[0-9]([.][0-9])?", known) else None


def cut_body(message: Message) -> None:
    """Makes a body one that the database can hold."""
    body = message.body
    if isinstance(body, str) and ("\0" in body or not is_text(body)):
        body = body.encode(errors="surrogatepass")   # a NUL would end a text
    if body is not None and len(body) > MOST_BODY:
        body = body[:MOST_BODY]
        message.state = message.state or "truncated"
    message.body = body


def hide_heads(message: Message, redactor: Redactor) -> None:
    """Removes the credentials of a batch of requests, as capture does."""
    kind, body = find(message.fields, "content-type"), message.body
    if body and has_heads(kind):
        data = body.encode() if isinstance(body, str) else body
        made = redactor.content(data, kind)
        message.body = made.decode() if isinstance(body, str) else made


def cut_echoes(message: Message, echoes: Echoes) -> None:
    """Removes what the answer's body repeats of its request's secrets."""
    try:
        if message.body is not None:
            message.body = without(message.body, echoes, whole=not message.state)
    except Unreadable:
        message.body, message.state = None, "redacted"


def is_text(value: str) -> bool:
    """False: it has halves of characters, which JSON can have and UTF-8 cannot."""
    try:
        value.encode()
    except UnicodeError:
        return False
    return True


def clean(value: str) -> str:
    """One line, without characters that end a text or a line elsewhere."""
    return _CONTROLS.sub(" ", value).encode(errors="replace").decode().strip()


def text(value: str | None) -> str | None:
    return without_user(clean(value))[:MOST_TEXT] if value else None


def bounded(number: int | None, most: int) -> int | None:
    """None for a negative number, too: the information is not available."""
    if number is None or number < 0:
        return None
    if number > most:
        raise NotImported(f"the number {number} is too large")
    return number
