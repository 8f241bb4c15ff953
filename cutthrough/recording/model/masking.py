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
import itertools
import re
from collections.abc import Callable, Iterator
from operator import itemgetter

import msgspec

from cutthrough.codings import CodingError
from cutthrough.exchange.content import has_heads, inflate, is_digest
from cutthrough.exchange.echoes import secrets_of
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.redaction.redactor import (
    CREDENTIALS,
    REDACTED,
    Options,
    Redactor,
    Unreadable,
)
from cutthrough.recording.model.masked_patterns import PatternMasker
from cutthrough.recording.model.recorded_echoes import RecordedEchoes
from cutthrough.recording.model.recording import (
    Chunk,
    Fields,
    Message,
    Recording,
    Request,
    Response,
    find,
)
from cutthrough.recording.model.selection import Selection

_DONE = re.compile(r"\[redacted(:[0-9a-f]{16})?\]")
_OF_COOKIES = ("expires", "max-age", "domain", "path", "secure", "httponly", "samesite",
               "partitioned")
_OF_OCTETS = ("content-encoding", "content-length", "etag")


class Scope(Selection, frozen=True, kw_only=True, omit_defaults=True):
    """Further secrets, of the exchanges of a route."""

    fields: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    json: tuple[str, ...] = ()
    body: tuple[str, ...] = ()


class Redaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Names of fields and keys are lower case. `json`: as in `capture_redact_json`."""

    fields: tuple[str, ...] = ()
    query: tuple[str, ...] = ()              # and of forms
    json: tuple[str, ...] = ()
    body: tuple[str, ...] = ()               # expressions: their groups, or the match
    hashed: bool = True                      # else all stand-ins are alike
    scopes: tuple[Scope, ...] = ()           # further ones of some exchanges


def make_masker(redaction: Redaction, key: bytes) -> "Masker":
    """Raises KeyMistake if an expression is malformed."""
    return (ScopedMasker if redaction.scopes else Masker)(redaction, key)


class Masker:
    def __init__(self, redaction: Redaction, key: bytes) -> None:
        """Raises KeyMistake if an expression is malformed."""
        self._key = key if redaction.hashed else b""
        self._names = frozenset((*CREDENTIALS, *redaction.fields))
        self._redactor = Redactor(
            Options(fields=redaction.fields, query=redaction.query, json=redaction.json,
                    body=redaction.body), self.value, keeps_octets=True)
        self._patterns = PatternMasker(
            self._names, frozenset(redaction.query), redaction.json, self._redactor,
            self.value)
        self._known: dict[Fields, Fields] | None = None
        self._known_echoes: dict[tuple[str, ...], RecordedEchoes] = {}
        self.reads_bodies = self._redactor.reads_bodies

    def value(self, text: str) -> str:
        """The stand-in of a secret; of a stand-in itself, or that without a hash."""
        if not text or (self._key and _DONE.fullmatch(text)):
            return text
        if not self._key:
            return REDACTED
        mac = hashlib.blake2b(text.encode(errors="surrogatepass"), key=self._key,
                              digest_size=8)
        return f"[redacted:{mac.hexdigest()}]"

    def line(self, text: str) -> str:
        """Returns a line of a head, a path or a reason phrase, without the secrets of
        URLs in it, and without user information."""
        return self._redactor.pairs(text)

    def request(self, request: Request) -> Request:
        fields = self.fields(request.fields)
        path = self.line(request.path)
        query, body = self._redactor.query(request.query), request.body
        if body and (self.reads_bodies or has_heads(find(fields, "content-type"))):
            body, fields = self._coded(body, fields)
        if fields is request.fields and body == request.body and (
                path == request.path and query == request.query):
            return request
        return msgspec.structs.replace(
            request, fields=fields, path=path, query=query, body=body)

    def _request(self, request: Request) -> tuple[Request, RecordedEchoes | None]:
        """With the values that its answer may repeat; None: nothing."""
        self._redactor.heard = heard = list[str]()
        try:
            masked = self.request(request)
        finally:
            self._redactor.heard = None
        return masked, (
            None if masked is request else self._echoes(request.fields, heard))

    def echoes(self, fields: Fields) -> RecordedEchoes | None:
        """Values that an answer to these fields may repeat; None: nothing."""
        return self._echoes(fields, [])

    def _echoes(self, fields: Fields, heard: list[str]) -> RecordedEchoes | None:
        for name, value in fields:
            if (kind := name.lower()) in CREDENTIALS:
                heard += secrets_of(kind, value)
            elif kind in self._names:
                heard.append(value)
        if not heard:
            return None
        key = tuple(heard)
        echoes = self._known_echoes.get(key)
        if echoes is None:
            echoes = RecordedEchoes(heard, self.value)
            if self._known is not None:
                self._known_echoes[key] = echoes
        return echoes or None

    def response(self, response: Response) -> Response:
        fields, chunks = self.fields(response.fields), response.chunks
        trailers = self.fields(response.trailers) if response.trailers else ()
        if chunks and (self.reads_bodies or has_heads(find(fields, "content-type"))):
            whole = response.body
            body, fields = self._coded(whole, fields)
            if body != whole:
                chunks = spread(chunks, body, find(fields, "content-type"))
                trailers = of_another_body(trailers)
        messages = response.messages
        if messages and self.reads_bodies:
            messages = tuple(map(self.message, messages))
        reason = self.line(response.reason)
        if fields is response.fields and chunks is response.chunks and (
                messages is response.messages and trailers == response.trailers
                and reason == response.reason):
            return response
        return msgspec.structs.replace(
            response, reason=reason, fields=fields, chunks=chunks, messages=messages,
            trailers=trailers)

    def recording(self, recording: Recording) -> Recording:
        request, echoes = self._request(recording.request)
        response = self.response(recording.response)
        if echoes is not None:
            response = without(response, echoes, self.value)
        if response.is_early and len(request.body) != len(recording.request.body):
            response = answered_late(response)
        if request is recording.request and response is recording.response and (
                not recording.patterns):
            return recording
        return msgspec.structs.replace(
            recording, request=request, response=response,
            patterns=tuple(map(self._patterns.mask, recording.patterns)))

    def message(self, message: Message) -> Message:
        """The same object if nothing is removed."""
        if not self.reads_bodies:
            return message
        data = self._plain(message.data, "")
        return msgspec.structs.replace(message, data=data)

    def messages(self, request: Request) -> Callable[[Message], Message]:
        """As `message`, of the WebSocket of this request."""
        echoes = self._request(request)[1]
        if echoes is None:
            return self.message
        work = echoes.work()                 # as of the recording's: see `without`
        return lambda message: echoes.message(self.message(message), work)

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
        masked = self._known.get(fields)
        if masked is None:
            masked = self._known[fields] = self._fields(fields)
        return masked

    def _fields(self, fields: Fields) -> Fields:
        masked = tuple(
            (name, self._secret(name, value) if name.lower() in self._names else
             self._redactor.pairs(value)) for name, value in fields)
        return fields if masked == fields else masked

    def _secret(self, name: str, value: str) -> str:
        """Returns a field's value without its secret. A cookie keeps its name, lifetime
        and scope."""
        if name.lower() != "set-cookie":
            return self.value(value)
        pair, *attributes = value.split(";")
        name, equals, text = pair.partition("=") if "=" in pair else ("", "", pair)
        scope = [attribute for attribute in attributes
                 if attribute.partition("=")[0].strip().lower() in _OF_COOKIES]
        return ";".join([f"{name}{equals}{self.value(text.strip())}", *scope])

    def _coded(self, body: bytes, fields: Fields) -> tuple[bytes, Fields]:
        """The body and the fields, without a coding if the body has changed."""
        coding = find(fields, "content-encoding").lower()
        try:
            plain = body if coding in ("", "identity") else inflate(body, coding)
        except CodingError:
            masked = self._stand_in(body) if self.reads_bodies else body
        else:
            masked = self._plain(plain, find(fields, "content-type"))
            if masked == plain:
                return body, fields
        if masked == body:
            return body, fields
        return masked, of_another_body(fields)

    def _stand_in(self, body: bytes) -> bytes:
        """Returns the stand-in for a body as a whole."""
        return self.value(body.decode("latin-1")).encode()

    def _plain(self, data: bytes, kind: str) -> bytes:
        """A body without codings."""
        try:
            return self._redactor.content(data, kind)
        except Unreadable:
            return self._stand_in(data)


class ScopedMasker(Masker):
    """The masker of a redaction with scopes: all scopes that apply to a request hold
    for its exchange."""

    def __init__(self, redaction: Redaction, key: bytes) -> None:
        super().__init__(redaction, key)
        self._redaction = redaction
        self._secret_key = key
        self._others: dict[tuple[int, ...], Masker] = {}
        for number in range(len(redaction.scopes)):      # a mistake is found now
            self._with((number,))
            for text in redaction.scopes[number].path_regexes:
                compile_expression(text)
        # A row in C is made without a look at the request's place: none is
        self.reads_bodies = True

    def _of(self, request: Request) -> Masker | None:
        """None: no scope applies."""
        numbers = tuple(number for number, scope in enumerate(self._redaction.scopes)
                        if scope.applies(request))
        return self._with(numbers) if numbers else None

    def _with(self, numbers: tuple[int, ...]) -> Masker:
        masker = self._others.get(numbers)
        if masker is None:
            whole, names = self._redaction, ("fields", "query", "json", "body")
            parts = [whole, *(whole.scopes[number] for number in numbers)]
            masker = self._others[numbers] = Masker(msgspec.structs.replace(
                whole, scopes=(), **{name: tuple(dict.fromkeys(
                    value for part in parts for value in getattr(part, name)))
                    for name in names}), self._secret_key)
        return masker

    def request(self, request: Request) -> Request:
        other = self._of(request)
        return super().request(request) if other is None else other.request(request)

    def recording(self, recording: Recording) -> Recording:
        other = self._of(recording.request)
        return (super().recording(recording) if other is None else
                other.recording(recording))

    def messages(self, request: Request) -> Callable[[Message], Message]:
        other = self._of(request)
        return super().messages(request) if other is None else other.messages(request)


def of_another_body(fields: Fields) -> Fields:
    """Without the fields about the octets that a body had before."""
    return tuple(pair for pair in fields if not (
        pair[0].lower() in _OF_OCTETS or is_digest(pair[0])))


def repeats(echoes: RecordedEchoes, head: bytes, coding: str, body: bytes) -> bool:
    """Whether an answer has any of these. `head`: masked. The body is read without its
    coding, if that can be undone."""
    if echoes.has(head):
        return True
    if coding not in ("", "identity"):
        with contextlib.suppress(CodingError):
            body = inflate(body, coding)
    return echoes.has(body) or echoes.has_wide(body)


def spread(chunks: tuple[Chunk, ...], body: bytes, kind: str) -> tuple[Chunk, ...]:
    """A changed body in place of these chunks. A stream of events keeps its pace: each
    line comes when the same line came. Another body comes when its last byte came."""
    last = place_of(chunks[-1])
    if not kind.lower().startswith("text/event-stream"):
        return (Chunk(last[0], body, last[1]),)
    places = [place_of(chunk) for chunk in chunks
              for _ in range(chunk.data.count(b"\n"))]
    placed = itertools.zip_longest(places, body.splitlines(keepends=True))
    lines = ((place or last, line) for place, line in placed if line)
    return tuple(Chunk(at_us, b"".join(line for _, line in together), asked)
                 for (at_us, asked), together in itertools.groupby(
                     lines, itemgetter(0)))


def place_of(chunk: Chunk) -> tuple[int, int]:
    """When it came, and behind what of the request."""
    return chunk.at_us, chunk.asked


def answered_late(response: Response) -> Response:
    """As if it had begun behind its request: places in a body that has changed are of
    no use."""
    return msgspec.structs.replace(
        response, head_asked=-1, end_asked=-1, chunks=tuple([
            Chunk(chunk.at_us, chunk.data) for chunk in response.chunks]))


def without(response: Response, echoes: RecordedEchoes, value: Callable[[str], str]
            ) -> Response:
    """The same object if nothing is removed. `value`: the stand-in of a body. Messages
    of a client have a bound of their own, since replay looks at these alone."""
    work, up, down = (echoes.work() for _ in range(3))
    fields, chunks = echoes.fields(response.fields, work), response.chunks
    trailers = echoes.fields(response.trailers, work)
    coding = find(fields, "content-encoding").lower()
    plain = whole = response.body
    if coding not in ("", "identity"):
        with contextlib.suppress(CodingError):
            plain = inflate(whole, coding)
    if echoes.has_wide(plain, work):
        chunks = spread(chunks, value(plain.decode("latin-1")).encode(), "")
    elif plain is whole:
        chunks = echoes.chunks(chunks, work)
    elif (body := echoes.cut(plain, work)) is not plain:
        chunks = spread(chunks, body, find(fields, "content-type"))
    if chunks is not response.chunks:
        fields, trailers = of_another_body(fields), of_another_body(trailers)
    changed = msgspec.structs.replace(
        response, reason=echoes.text(response.reason, work), fields=fields,
        chunks=chunks, trailers=trailers,
        messages=tuple(echoes.message(message, up if message.is_up else down)
                       for message in response.messages))
    return response if changed == response else changed
