"""Interactions of cassettes -> recordings, whichever program wrote them.

VCR.py and its followers (YAML or JSON):

    request: {method, uri, headers, body}
    response: {status: {code, message}, headers, body: {string}}
    response: {status_code, http_version, headers, content}   httpx, up to version 5
    request: {parsed_body}, response: {parsed_body}            pydantic-ai
    body: {type: json, content}                                cassetter

VCR for Ruby, and betamax: bodies have the name of a charset.

    response: {status: {code, message}, headers, body: {encoding, string}}

go-vcr, versions 1 and 2 of its files:

    request: {method, url, headers, body}
    response: {status: 200 OK, code: 200, headers, trailer, body}

If the form of a body is not known, that is an error, and the body is never empty.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from cutthrough.exchange.content import CODECS
from cutthrough.exchange.formats.har_bodies import decode
from cutthrough.exchange.formats.imported import NotImported, clean
from cutthrough.recording.formats.foreign import (
    fit_coding,
    make_request,
    part,
    read_fields,
)
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.model.recorded_heads import has_body
from cutthrough.recording.model.recording import (
    Chunk,
    Fields,
    Recording,
    Response,
    find,
)

Name = Callable[[str], None]

# The places of a body; the first one counts
_PLACES = ("body", "parsed_body", "content")
# Names of a body in a table, with text or bytes
_TEXTS = ("string", "content", "text")


def read_interaction(table: Any, name: Name) -> Recording:
    """`name` takes the parts that it lacks. Raises NotImported."""
    request, response = part(table, "request"), part(table, "response")
    url = request.get("uri", request.get("url"))
    if not isinstance(url, str):
        raise NotImported("has no `uri`")
    method = read_method(request.get("method"), name)
    status, reason = read_status(response)
    fields = read_fields(response.get("headers"), "response", name)
    body = read_answer(response, method, status, fields)
    return checked(Recording(
        request=make_request(method, url, read_fields(
            request.get("headers"), "request", name), read_message(request) or b""),
        response=Response(
            status=status, reason=clean(reason), fields=fit_coding(fields, body),
            chunks=(Chunk(0, body),) if body else (),
            trailers=read_fields(response.get("trailer"), "response", name)),
        created_us=read_time(table.get("recorded_at"))))


def read_method(value: Any, name: Name) -> str:
    """Symbols of Ruby have a colon; of Go's requests the empty one is GET."""
    if value is None:
        name("without a method: GET is assumed")
    if not value:
        return "GET"
    if not isinstance(value, str):
        raise NotImported("has no `method`")
    return value.removeprefix(":")


def read_status(response: dict[str, Any]) -> tuple[int, str]:
    """The number and the reason. Raises NotImported."""
    status = response.get("status")
    code: Any = response.get("status_code", response.get("code"))
    reason: Any = ""
    if isinstance(status, dict):
        code, reason = status.get("code"), status.get("message")
    elif isinstance(status, str):            # of go-vcr: 200 OK
        number, _, reason = status.partition(" ")
        code = number if code is None else code
    elif code is None:
        code = status
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if not isinstance(code, int) or not 100 <= code <= 999:
        raise NotImported("has no status of HTTP")
    return code, reason if isinstance(reason, str) else ""


def read_answer(response: dict[str, Any], method: str, status: int, fields: Fields
                ) -> bytes:
    """The body of a response. Raises NotImported, also if one should be there."""
    body = read_message(response)
    if body is None and has_body(method.upper(), status) and (
            find(fields, "content-length") != "0"):
        raise NotImported("the response has no body")
    return body or b""


def read_message(message: dict[str, Any]) -> bytes | None:
    """The body of a request or a response; None: there is none. Raises NotImported."""
    for place in _PLACES:
        if place in message:
            value = message[place]
            if place == "parsed_body":
                return write_json(value)
            if value is None and message.get("parsed_body") is not None:
                continue
            return read_body(value)
    return None


def read_body(value: Any, codec: str = "utf-8") -> bytes:
    """Raises NotImported: the form is not known."""
    match value:
        case None:
            return b""
        case bytes():
            return value
        case str():
            return encode(value, codec)
        case list():                         # an iterator's pieces
            if all(isinstance(piece, str | bytes) for piece in value):
                return b"".join(map(read_body, value))
        case dict():
            return read_table(value)
    raise NotImported(f"a body is neither text nor bytes, but {value!r:.60}")


def read_table(table: dict[str, Any]) -> bytes:
    """A body in the form of a table. Raises NotImported."""
    if isinstance(table.get("base64_string"), str):
        return from_base64(table["base64_string"])
    if "type" in table and "content" in table:
        return read_typed(str(table["type"]).lower(), table["content"])
    for key in ("yaml", "json", "parsed_body"):
        if table.get(key) is not None:
            inner = table[key]
            return inner.encode() if isinstance(inner, str) and key == "yaml" else (
                write_json(inner))
    for key in _TEXTS:
        if key in table:
            return read_body(table[key], codec_of(table.get("encoding")))
    if table:
        raise NotImported("a body is in a form that is not known: "
                          f"{', '.join(map(str, table)):.60}")
    return b""


def read_typed(kind: str, content: Any) -> bytes:
    """The content of this kind, as cassetter writes it. Raises NotImported."""
    if kind == "json":
        return write_json(content)
    if kind in ("base64", "binary", "bytes") and isinstance(content, str):
        return from_base64(content)
    if isinstance(content, dict):
        raise NotImported(f"a body is of the kind {kind!r:.20}, which is not known")
    return read_body(content)


def from_base64(text: str) -> bytes:
    data = decode(text)
    if data is None:
        raise NotImported("a body is not base64")
    return data


def write_json(value: Any) -> bytes:
    """As Python writes it: these serializers are Python's. Raises NotImported."""
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError):
        raise NotImported("a parsed body cannot be written as JSON") from None


def codec_of(encoding: Any) -> str:
    """Ruby's ASCII-8BIT has octets; a file has them as UTF-8."""
    return CODECS.get(encoding.lower(), "utf-8") if isinstance(encoding, str) else (
        "utf-8")


def encode(text: str, codec: str) -> bytes:
    try:
        return text.encode(codec)
    except UnicodeError:
        return text.encode(errors="surrogateescape")


def read_time(value: Any) -> int:
    """Microseconds since 1970 of a date of HTTP, or in ISO 8601; 0: there is none."""
    if not isinstance(value, str) or len(value) > 60:
        return 0
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = read(value)
            return max(0, int(date.replace(tzinfo=date.tzinfo or UTC).timestamp() * 1e6)
                       )
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return 0
