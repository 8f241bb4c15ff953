"""Removes secrets from recordings before they are written, and from requests before
they are compared with recordings (R59).

A secret becomes `[redacted:…]` with a keyed hash of it, so that the same secret still
matches, and another one does not. The key is not in the recordings. If they go to where
the key is not, it is `[redacted]` alone, and any secret matches. What is removed:
credentials' fields always; fields, keys of URLs and forms, paths in JSON and matches of
expressions as configured. A body in which such a value cannot be looked for, because
its coding or form is unknown, goes as a whole. What was removed from a request is
removed from its answer, too.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote_plus

import msgspec

from cutthrough.capture.bodies import charset_of
from cutthrough.capture.redaction import CREDENTIALS, split_path
from cutthrough.codings import CodingError, decode, make_decoders
from cutthrough.recording.documents import compile_finder
from cutthrough.recording.echoes import Echoes, secrets_of
from cutthrough.recording.model import (
    OF_TOKENS,
    Chunk,
    Fields,
    Message,
    Pattern,
    Recording,
    Request,
    Response,
    find,
)

MOST_INFLATED = 64 << 20
_DONE = re.compile(r"\[redacted(:[0-9a-f]{16})?\]")
# As capture/redaction.py has it: keys in URLs, forms, and texts that contain URLs
_PAIR = re.compile(r"([?&;]|^)([^\s=&?;#\"'<>]{1,256})=([^\s&;#\"'<>]*)")
# All data of an event (the HTML standard, section 9.2.6)
_EVENT = re.compile(r"^data:[^\r\n]*(?:(?:\r\n|\r|\n)data:[^\r\n]*)*", re.M)
_LINE = re.compile(r"(?:^|\r\n|\r|\n)data:[ ]?")
_BLANK = "\ufeff \t\r\n"
_JSON = re.compile(r"[/+]json\b", re.I)
_OF_COOKIES = ("expires", "max-age", "domain", "path", "secure", "httponly", "samesite",
               "partitioned")
CODED = ("content-encoding", "content-length", "content-md5", "digest", "etag")


class Redaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Names of fields and keys are lower case. `json`: as in `capture_redact_json`."""

    fields: tuple[str, ...] = ()
    query: tuple[str, ...] = ()              # and of forms
    json: tuple[str, ...] = ()
    body: tuple[str, ...] = ()               # expressions: their groups, or the match
    hashed: bool = True                      # else all stand-ins are alike


class Unreadable(Exception):
    """A body in which a secret may be, and cannot be found."""


class Masker:
    def __init__(self, redaction: Redaction, key: bytes) -> None:
        """Raises KeyMistake if an expression is malformed."""
        self._key = key if redaction.hashed else b""
        self._names = frozenset((*CREDENTIALS, *redaction.fields))
        self._keys = frozenset(redaction.query)
        self._paths = [split_path(path) for path in redaction.json]
        self._searches = [compile_finder(one) for one in redaction.body]
        self._known: dict[Fields, Fields] | None = None
        self._known_echoes: dict[tuple[str, ...], Echoes] = {}
        self._heard: list[str] | None = None     # secrets of the request in hand
        self.reads_bodies = bool(self._keys or self._paths or self._searches)

    def value(self, text: str) -> str:
        """The stand-in of a secret; of a stand-in itself, or that without a hash."""
        if not text or (self._key and _DONE.fullmatch(text)):
            return text
        if not self._key:
            return "[redacted]"
        found = hashlib.blake2b(text.encode(errors="surrogatepass"), key=self._key,
                                digest_size=8)
        return f"[redacted:{found.hexdigest()}]"

    def request(self, request: Request) -> Request:
        fields = self.fields(request.fields)
        query = self.pairs(request.query) if self._keys else request.query
        body = request.body
        if body and self.reads_bodies:
            body, fields = self._coded(body, fields)
        if fields is request.fields and query == request.query and body == request.body:
            return request
        return msgspec.structs.replace(request, fields=fields, query=query, body=body)

    def _request(self, request: Request) -> tuple[Request, Echoes | None]:
        """With what its answer may repeat; None: nothing."""
        self._heard = heard = list[str]()
        try:
            made = self.request(request)
        finally:
            self._heard = None
        return made, None if made is request else self._echoes(request.fields, heard)

    def echoes(self, fields: Fields) -> Echoes | None:
        """What an answer may repeat of a request with these fields; None: nothing."""
        return self._echoes(fields, [])

    def _echoes(self, fields: Fields, heard: list[str]) -> Echoes | None:
        for name, value in fields:
            if (kind := name.lower()) in CREDENTIALS:
                heard += secrets_of(kind, value)
            elif kind in self._names:
                heard.append(value)
        if not heard:
            return None
        key = tuple(heard)
        found = self._known_echoes.get(key)
        if found is None:
            found = Echoes(heard, self.value)
            if self._known is not None:
                self._known_echoes[key] = found
        return found or None

    def response(self, response: Response) -> Response:
        fields, chunks = self.fields(response.fields), response.chunks
        if chunks and self.reads_bodies:
            whole = response.body
            body, fields = self._coded(whole, fields)
            if body != whole:
                chunks = spread(chunks, body, find(fields, "content-type"))
        messages = response.messages
        if messages and self.reads_bodies:
            messages = tuple(map(self.message, messages))
        trailers = self.fields(response.trailers) if response.trailers else ()
        if fields is response.fields and chunks is response.chunks and (
                messages is response.messages and trailers == response.trailers):
            return response
        return msgspec.structs.replace(
            response, fields=fields, chunks=chunks, messages=messages,
            trailers=trailers)

    def _without(self, response: Response, echoes: Echoes) -> Response:
        """The same object if nothing is removed."""
        fields, chunks = echoes.fields(response.fields), response.chunks
        coding = find(fields, "content-encoding").lower()
        if coding in ("", "identity"):
            chunks = echoes.chunks(chunks)
        else:
            with contextlib.suppress(Unreadable):
                plain = inflate(response.body, coding)
                if (body := echoes.cut(plain)) is not plain:
                    chunks = spread(chunks, body, find(fields, "content-type"))
        if chunks is not response.chunks:
            fields = tuple(pair for pair in fields if pair[0].lower() not in CODED)
        made = msgspec.structs.replace(
            response, reason=echoes.text(response.reason), fields=fields, chunks=chunks,
            messages=tuple(map(echoes.message, response.messages)),
            trailers=echoes.fields(response.trailers))
        return response if made == response else made

    def recording(self, one: Recording) -> Recording:
        request, echoes = self._request(one.request)
        response = self.response(one.response)
        if echoes is not None:
            response = self._without(response, echoes)
        if request is one.request and response is one.response and not one.patterns:
            return one
        return msgspec.structs.replace(
            one, request=request, response=response,
            patterns=tuple(map(self._pattern, one.patterns)))

    def _pattern(self, one: Pattern) -> Pattern:
        if one.how in OF_TOKENS:             # claims, and not the token
            return one
        names = {"field": self._names, "query": self._keys, "body": self._keys}
        if one.key.lower() in names.get(one.part, ()) and one.key:
            if one.how in ("exact", "form"):
                return msgspec.structs.replace(one, value=self.value(one.value))
            return msgspec.structs.replace(one, how="glob", value="*")
        if one.part not in ("query", "body") or (
                one.how in ("jsonpath", "xpath")):
            return one
        text = self.pairs(one.value) if self._keys else one.value
        if one.part == "body":
            try:
                text = self._text(text, "")
            except Unreadable:
                text = self.value(text)
        return msgspec.structs.replace(one, value=text)

    def message(self, message: Message) -> Message:
        """The same object if nothing is removed."""
        if not self.reads_bodies:
            return message
        made = self._plain(message.data, "")
        return msgspec.structs.replace(message, data=made)

    def messages(self, request: Request) -> Callable[[Message], Message]:
        """As `message`, of the WebSocket of this request."""
        echoes = self._request(request)[1]
        if echoes is None:
            return self.message
        return lambda message: echoes.message(self.message(message))

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Within, equal fields are masked once: `fields` keeps them, and drops them at
        the end, because they have secrets."""
        self._known = {}
        try:
            yield
        finally:
            self._known = None
            self._known_echoes.clear()

    def fields(self, fields: Fields) -> Fields:
        """The same object if nothing is removed."""
        if not fields:
            return fields
        if self._known is None:
            return self._fields(fields)
        made = self._known.get(fields)
        if made is None:
            made = self._known[fields] = self._fields(fields)
        return made

    def _fields(self, fields: Fields) -> Fields:
        made = tuple(
            (name, self._secret(name, value) if name.lower() in self._names else
             self.pairs(value) if self._keys else value) for name, value in fields)
        return fields if made == fields else made

    def _secret(self, name: str, value: str) -> str:
        """Of a cookie its name stays, and what says how long and where it holds."""
        if name.lower() != "set-cookie":
            return self.value(value)
        pair, *attributes = value.split(";")
        name, equals, text = pair.partition("=") if "=" in pair else ("", "", pair)
        kept = [one for one in attributes
                if one.partition("=")[0].strip().lower() in _OF_COOKIES]
        return ";".join([f"{name}{equals}{self.value(text.strip())}", *kept])

    def pairs(self, text: str) -> str:
        return _PAIR.sub(self._pair, text)

    def _pair(self, match: re.Match[str]) -> str:
        if unquote_plus(match[2]).lower() not in self._keys:
            return match[0]
        if self._heard is not None:
            self._heard += (match[3], unquote_plus(match[3]))
        return f"{match[1]}{match[2]}={self.value(match[3])}"

    def _coded(self, body: bytes, fields: Fields) -> tuple[bytes, Fields]:
        """The body and the fields, without a coding if the body has changed."""
        coding = find(fields, "content-encoding").lower()
        try:
            plain = body if coding in ("", "identity") else inflate(body, coding)
        except Unreadable:
            made = self.value(body.decode("latin-1")).encode()
        else:
            made = self._plain(plain, find(fields, "content-type"))
            if made == plain:
                return body, fields
        if made == body:
            return body, fields
        return made, tuple(pair for pair in fields if pair[0].lower() not in CODED)

    def _plain(self, data: bytes, kind: str) -> bytes:
        """A body without codings."""
        for charset in (charset_of(kind.lower()) or "utf-8", "latin-1"):
            try:
                text = data.decode(charset)
                made = self._text(text, kind)
                return data if made == text else made.encode(charset)
            except (UnicodeError, LookupError):
                continue
            except Unreadable:
                break
        return self.value(data.decode("latin-1")).encode()

    def _text(self, text: str, kind: str) -> str:
        """A body as text, of media type `kind`. Raises Unreadable."""
        kind = kind.lower()
        if self._paths and kind.startswith("text/event-stream"):
            text = _EVENT.sub(self._event, text)
        elif self._paths and not _DONE.fullmatch(text) and (
                text.lstrip(_BLANK)[:1] in ("{", "[") or _JSON.search(kind)):
            text = self._document(text)
        if self._keys:
            if kind.startswith("multipart/"):
                raise Unreadable
            text = self.pairs(text)
        for search in self._searches:
            text = self._cut(text, search)
        return text

    def _event(self, match: re.Match[str]) -> str:
        text = _LINE.sub("\n", match[0])[1:]
        if text.lstrip()[:1] not in ("{", "["):
            return match[0]
        try:
            made = self._document(text)
        except Unreadable:                  # without a quotation mark it has no keys
            made = self.value(text) if '"' in text else text
        return match[0] if made == text else f"data: {made}"

    def _document(self, text: str) -> str:
        try:
            document = json.loads(text)
            found = [self._replace(document, path) for path in self._paths]
            return json.dumps(document, ensure_ascii=False) if any(found) else text
        except (ValueError, RecursionError):
            raise Unreadable from None

    def _replace(self, value: Any, path: tuple[str, ...]) -> bool:
        """Replaces the values at a path, in place. Returns whether there were any."""
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, dict):
            items = list(value.items())
        elif isinstance(value, list):
            items = list(enumerate(value))
        found = False
        if path[0] == "..":
            found = self._replace(value, path[1:])
            for _, inner in items:
                found |= self._replace(inner, path)
            return found
        for key, inner in items:
            if path[0] not in ("*", str(key)):
                continue
            if len(path) > 1:
                found |= self._replace(inner, path[1:])
            else:
                text = inner if isinstance(inner, str) else json.dumps(
                    inner, sort_keys=True)
                if self._heard is not None and isinstance(inner, str):
                    self._heard.append(inner)
                value[key] = self.value(text)
                found |= value[key] != inner
        return found

    def _cut(self, text: str, search: Any) -> str:
        """Replaces what an expression finds: its groups, or the match."""
        made, at = [], 0
        try:
            matches = list(search(text))
        except ValueError:
            raise Unreadable from None
        for match in matches:
            spans = [match.span(number + 1) for number in range(len(match.groups()))]
            for begin, end in sorted(spans or [match.span()]):
                if begin >= at and end > begin:
                    if self._heard is not None:
                        self._heard.append(text[begin:end])
                    made += [text[at:begin], self.value(text[begin:end])]
                    at = end
        return "".join([*made, text[at:]])


def inflate(body: bytes, coding: str) -> bytes:
    """Raises Unreadable."""
    found = bytearray()
    try:
        decoders = make_decoders(coding)
        for piece in decode(body, decoders):
            found += piece
            if len(found) > MOST_INFLATED:
                raise Unreadable
        for decoder in decoders:
            decoder.end()
    except CodingError:
        raise Unreadable from None
    return bytes(found)


def repeats(echoes: Echoes, head: bytes, coding: str, body: bytes) -> bool:
    """Whether an answer has any of these. `head`: masked. The body is read without its
    coding, if that can be undone."""
    if echoes.has(head):
        return True
    if coding not in ("", "identity"):
        try:
            body = inflate(body, coding)
        except Unreadable:
            return False
    return echoes.has(body)


def spread(chunks: tuple[Chunk, ...], body: bytes, kind: str) -> tuple[Chunk, ...]:
    """A changed body in place of these chunks. A stream of events keeps its pace: each
    line comes when the same line came. Another body comes when its last byte came."""
    last = chunks[-1].at_us
    if not kind.lower().startswith("text/event-stream"):
        return (Chunk(last, body),)
    times = [chunk.at_us for chunk in chunks for _ in range(chunk.data.count(b"\n"))]
    made: list[Chunk] = []
    for number, line in enumerate(body.splitlines(keepends=True)):
        at_us = times[number] if number < len(times) else last
        if made and made[-1].at_us == at_us:
            made[-1] = Chunk(at_us, made[-1].data + line)
        else:
            made.append(Chunk(at_us, line))
    return tuple(made)
