"""The secrets to remove, and their stand-ins (R59, R79).

The values of credentials' fields go always, unless the configuration keeps them. Fields
of heads, keys of URLs and forms, paths in JSON and matches of expressions go as
configured. User information goes from every URL (R80). A body in which such a value
cannot be looked for, because it is cut, encoded, malformed or no text, goes as a whole.
"""

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote_plus, unquote_to_bytes

import msgspec

from cutthrough.exchange.content import Text, is_media, is_text, read_text
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.heads import Names
from cutthrough.exchange.redaction.documents import Documents
from cutthrough.exchange.redaction.parts import Malformed, read_parts, redact_events
from cutthrough.exchange.redaction.spellings import Keys, name_of

CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "set-cookie",
               "x-api-key", "api-key", "x-auth-token", "x-goog-api-key",
               "x-amz-security-token")
REDACTED = "[redacted]"
# Values of keys, and matches of expressions, in a body: to replace each takes some µs
MOST_VALUES = 4096

_FORM = "application/x-www-form-urlencoded"
# Types of JSON; bodies of other types may have it too
_JSON = re.compile(r"[/+](json|x-ndjson|jsonl|json-seq|csp-report)\b", re.I)
_BLANK = b"\xef\xbb\xbf \t\r\n\x1e"
_USER = re.compile(
    r"(://|%3a%2f%2f|:\\/\\/)(?:[^/?#\s\"'<>\\@%]|%(?!2f|3f|23|40))+(@|%40)", re.I)
# The start of a document, behind a guard against its use as a script
_BEGIN = re.compile(
    rb"[\xef\xbb\xbf\s\x1e]*+(?:\)\]\}'?,?|while\(1\);|for\(;;\);|&&&[A-Z]{1,20}&&&)?"
    rb"\s*+[\[{]")
# Behind the bracket of a document, and not in a form
_QUOTED = re.compile(rb"\s*+[\"\[{]")
# The start of a script: a call of a function with a document (JSONP)
_CALL = re.compile(
    rb"[\xef\xbb\xbf\s]*+(?:/\*\*/)?[\w.$]{1,100}\(\s*+(?=(?:\[\s*+){0,9}\{\s*+\")")
# A form's value, perhaps a document
_DOCUMENT = re.compile(rb"(?i)(?:[+\s]|%(?:20|09|0a|0d|ef%bb%bf))*(?:[\[{]|%7b|%5b)")


class Unreadable(Exception):
    """A body may have a secret, and cannot be searched."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Names of fields and keys are lower case."""

    fields: tuple[str, ...] = ()             # of heads, beside CREDENTIALS
    query: tuple[str, ...] = ()              # keys of URLs and forms
    json: tuple[str, ...] = ()               # paths in bodies
    body: tuple[str, ...] = ()               # expressions: their groups, or the match
    credentials: bool = False                # keep the values of CREDENTIALS


Span = tuple[int, int]


def hide(secret: str) -> str:
    """The usual stand-in."""
    return REDACTED if secret else secret


class Redactor:
    """Redacts as these options say. `mask` makes the stand-in for a secret.
    `keeps_octets`: a body of no text is kept, without the values in its
    octets; else only pictures and the like are."""

    def __init__(self, options: Options, mask: Callable[[str], str] = hide,
                 *, keeps_octets: bool = False) -> None:
        """Raises KeyMistake if an expression is malformed."""
        names = {*options.fields, *(() if options.credentials else CREDENTIALS)}
        self.names = Names(names, f" {REDACTED}")
        self._fields = frozenset(names)
        self.heard: list[str] | None = None  # takes what is replaced, but for fields
        self._stand_in = mask
        self._keys = Keys(options.query)
        self._documents = Documents(options.json, self._mask)
        self._expressions = [compile_expression(text) for text in options.body]
        self._keeps_octets = keeps_octets

    def _mask(self, secret: str) -> str:
        if self.heard is not None:
            self.heard += {secret, unquote_plus(secret)}
        return self._stand_in(secret)

    @property
    def reads_urls(self) -> bool:
        return bool(self._keys)

    @property
    def reads_bodies(self) -> bool:
        return bool(self._keys or self._documents or self._expressions)

    # Heads, targets, fields.

    def head(self, text: str) -> str:
        """A head, start line included."""
        return self.pairs(self.names.replace(text))

    def pairs(self, text: str) -> str:
        """A text, perhaps with URLs: without the values of the keys, and without user
        information."""
        text = without_user(text)
        return _on_octets(self._pairs, text) if self._keys else text

    def field(self, name: str, value: str) -> str:
        """The value of a field."""
        return REDACTED if name.lower() in self._fields else self.pairs(value)

    def query(self, text: str) -> str:
        """A query, without its question mark."""
        text = without_user(text)
        return _on_octets(self._form, text) if self._keys else text

    # Bodies.

    def body(self, text: str, kind: str, whole: bool) -> str | None:
        """A body as text, of media type `kind`; None: it cannot be kept."""
        if not self.reads_bodies:
            return text
        try:
            return _on_octets(lambda data: self._text(data, kind.lower(), whole), text)
        except Unreadable:
            return None

    def content(self, data: bytes, kind: str, *, whole: bool = True) -> bytes:
        """A body without codings; the same object if nothing is removed. Raises
        Unreadable."""
        if not self.reads_bodies or not data:
            return data
        lower = kind.lower()
        if lower.startswith("multipart/"):
            return self._parts(data, kind)
        read = read_text(data, kind, whole=whole)
        if read is None:
            if is_text(kind) or not (self._keeps_octets or is_media(data, kind)):
                raise Unreadable
            return self._octets(data, whole)
        if read.codec == "utf-8":
            return self._text(data, lower, whole)
        return _through_utf8(read, data, lambda text: self._text(text, lower, whole))

    def _octets(self, data: bytes, whole: bool) -> bytes:
        """A body of no text. Raises Unreadable."""
        if b"\0" in data:                    # it may be UTF-16, without a mark
            bare = data.replace(b"\0", b"")
            if self._text(bare, "", whole) != bare:
                raise Unreadable
        return self._text(data, "", whole)

    def _text(self, data: bytes, kind: str, whole: bool) -> bytes:
        """UTF-8, of a media type in lower case. Raises Unreadable."""
        if kind.startswith("text/event-stream"):
            return redact_events(data, self._event, self._line)
        if kind.startswith("multipart/"):
            return self._parts(data, kind)
        is_form = kind.startswith(_FORM)
        if self._documents:
            begin = _BEGIN.match(data)
            # `curl -d` says of JSON, too, that it is a form
            if begin and (not is_form or _QUOTED.match(data, begin.end())):
                at = begin.end() - 1
                data = data[:at] + self._document(data[at:], whole)
            elif _JSON.search(kind):
                data = self._document(data, whole)
            elif call := _CALL.match(data):
                at = call.end()
                end = max(data.rfind(b")"), at)
                data = data[:at] + self._document(data[at:end], whole) + data[end:]
            elif is_form:
                data = self._documents_in_form(data, whole)
        if self._keys:
            spans = self._keys.values(data, is_form=is_form)
            data = self._replace(data, _at_most(MOST_VALUES, spans))
        return self._matches(data) if self._expressions else data

    def _document(self, data: bytes, whole: bool) -> bytes:
        try:
            if not whole:
                raise ValueError("it is cut")
            return self._documents.redact(data)
        except (ValueError, RecursionError):
            raise Unreadable from None

    def _documents_in_form(self, data: bytes, whole: bool) -> bytes:
        """A form with documents as values."""
        pairs = data.split(b"&")
        tries = 0
        for number, pair in enumerate(pairs):
            key, equals, value = pair.partition(b"=")
            if _DOCUMENT.match(value) is None:
                continue
            tries += 1
            if tries > MOST_VALUES:
                raise Unreadable
            plain = unquote_to_bytes(value.replace(b"+", b" "))
            if plain.lstrip(_BLANK)[:1] in (b"{", b"["):
                redacted = self._document(plain, whole)
                if redacted != plain:
                    pairs[number] = key + equals + quote(redacted, safe="").encode()
        return b"&".join(pairs)

    def _event(self, data: bytes) -> bytes:
        try:
            return self._text(data, "", True)
        except Unreadable:                   # without a quotation mark it has no keys
            return self._whole(data) if b'"' in data else data

    def _line(self, data: bytes) -> bytes:
        return self._pairs(data)

    def _parts(self, data: bytes, kind: str) -> bytes:
        try:
            parts = read_parts(data, kind)
        except Malformed:
            raise Unreadable from None
        pieces: list[bytes] = []
        at = 0
        for part in parts:
            old = data[part.begin:part.end]
            if name_of(part.name) in self._keys.names and old:
                new = self._whole(old)
            else:
                try:
                    if not part.is_plain:
                        raise Unreadable
                    new = self.content(old, part.kind or "text/plain")
                except Unreadable:
                    new = self._whole(old)
            if new != old:
                pieces += [data[at:part.begin], new]
                at = part.end
        return b"".join([*pieces, data[at:]]) if pieces else data

    def _whole(self, data: bytes) -> bytes:
        return self._mask(data.decode("utf-8", "surrogateescape")).encode()

    def _form(self, data: bytes) -> bytes:
        return self._replace(data, self._keys.values(data, is_form=True))

    def _pairs(self, data: bytes) -> bytes:
        return self._replace(data, self._keys.values(data)) if self._keys else data

    def _replace(self, data: bytes, spans: Iterator[Span]) -> bytes:
        pieces: list[bytes] = []
        at = 0
        for begin, end in spans:
            pieces += [data[at:begin], self._whole(data[begin:end])]
            at = end
        return b"".join([*pieces, data[at:]]) if pieces else data

    def _matches(self, data: bytes) -> bytes:
        """Replaces the matches of the expressions: their groups, or all."""
        try:
            text, charset = data.decode(), "utf-8"
        except UnicodeDecodeError:
            text, charset = data.decode("latin-1"), "latin-1"
        for expression in self._expressions:
            pieces, at = [], 0
            try:
                for match in expression.finditer(text):
                    groups = [match.span(n + 1) for n in range(len(match.groups()))]
                    for begin, end in sorted(groups or [match.span()]):
                        if begin >= at and end > begin:
                            pieces += [text[at:begin], self._mask(text[begin:end])]
                            at = end
                    if len(pieces) > 2 * MOST_VALUES:
                        raise Unreadable
            except ValueError:
                raise Unreadable from None
            text = "".join([*pieces, text[at:]])
        return text.encode(charset)


def _at_most(most: int, spans: Iterator[Span]) -> Iterator[Span]:
    """Raises Unreadable if there are more."""
    for number, span in enumerate(spans):
        if number >= most:
            raise Unreadable
        yield span


def without_user(text: str) -> str:
    """Without the user information of URLs in it (R80)."""
    if "@" not in text and "%40" not in text:
        return text
    return _USER.sub(rf"\1{REDACTED}\2", text)


def _on_octets(redact: Callable[[bytes], bytes], text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    redacted = redact(data)
    return text if redacted is data or redacted == data else redacted.decode(
        "utf-8", "surrogatepass")


def _through_utf8(read: Text, data: bytes, redact: Callable[[bytes], bytes]) -> bytes:
    errors = "surrogateescape" if read.errors == "surrogateescape" else "surrogatepass"
    text = read.text.encode("utf-8", errors)
    redacted = redact(text)
    return data if redacted == text else read.octets(redacted.decode("utf-8", errors))
