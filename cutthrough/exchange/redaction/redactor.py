"""The secrets to remove, and their stand-ins (R59, R79).

The values of credentials' fields go always, unless the configuration keeps them. Fields
of heads, keys of URLs and forms, paths in JSON and matches of expressions go as
configured. User information goes from every URL (R80). A body in which such a value
cannot be looked for, because it is cut, encoded, malformed or no text, goes as a whole.
"""

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import msgspec

from cutthrough.exchange.content import (
    has_heads,
    in_other_order,
    is_media,
    is_text,
    read_text,
)
from cutthrough.exchange.echoes import secrets_in
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.heads import Names
from cutthrough.exchange.redaction.beginnings import BEGIN, CALL, JSON, QUOTED
from cutthrough.exchange.redaction.json_redactor import JsonRedactor
from cutthrough.exchange.redaction.members import has_members
from cutthrough.exchange.redaction.parts import (
    Malformed,
    Nesting,
    outermost,
    read_message,
    read_parts,
    redact_events,
)
from cutthrough.exchange.redaction.spellings import Keys, unquoted, unquoted_octets
from cutthrough.exchange.user_information import without_user

CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "set-cookie",
               "x-api-key", "api-key", "x-auth-token", "x-goog-api-key",
               "x-amz-security-token")
REDACTED = "[redacted]"
# Values of keys, and matches of expressions, in a body: to replace each takes some µs
MOST_VALUES = 4096
MOST_MATCH = 4096                            # octets of one that a cut body may begin
MOST_LEVELS = 4                              # of multipart bodies in each other

_FORM = "application/x-www-form-urlencoded"
# Types of a head with a body, such as in a batch of requests
_MESSAGE = re.compile(r"(application|message)/http\b|message/(rfc822|global)\b", re.I)
_BLANK = b"\xef\xbb\xbf \t\r\n\x1e"
# A form's value, perhaps a document
_DOCUMENT = re.compile(
    rb"(?i)[+\s]*+(?:%(?:20|09|0a|0d|ef%bb%bf)[+\s]*+){0,999}(?:[\[{]|%7b|%5b)")
# Behind the first equals sign of each pair of a form
_PAIR = re.compile(rb"(?:\A|(?<=&))[^&=]*+=([^&]*+)")
# In a line of a stream of events: the name of a field, or the start of a comment
_FIELD = re.compile(rb"[A-Za-z_-]{0,40}: ?")
_LINE = re.compile(rb"[^\r\n]++")
# Without any of these there is no JSON, in whatever spelling
_SIGN = re.compile(rb"[\[{\"%&]")


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
_OnOctets = Callable[[bytes], bytes]


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
        self._json_redactor = JsonRedactor(options.json, self._mask)
        self._expressions = [compile_expression(text) for text in options.body]
        self._keeps_octets = keeps_octets

    def _mask(self, secret: str) -> str:
        if self.heard is not None:
            self.heard += {secret, unquoted(secret)}
        return self._stand_in(secret)

    @property
    def reads_urls(self) -> bool:
        return bool(self._keys or self._json_redactor)

    @property
    def reads_bodies(self) -> bool:
        return bool(self._keys or self._json_redactor or self._expressions)

    # Heads, targets, fields.

    def head(self, text: str) -> str:
        """A head, start line included. Half characters, as of an imported one, become
        question marks."""
        try:
            text = self.names.replace(text)
        except UnicodeEncodeError:
            text = self.names.replace(text.encode("utf-8", "replace").decode())
        return self._line(text, self._pairs, self._json_redactor.in_head)

    def pairs(self, text: str) -> str:
        """A text, perhaps with URLs: without the values of the keys, those of JSON, and
        user information."""
        return self._line(text, self._pairs, self._json_redactor.in_line)

    def hides(self, name: str) -> bool:
        """Is the value of this field a secret?"""
        return name.lower() in self._fields

    def field(self, name: str, value: str) -> str:
        """The value of a field."""
        return REDACTED if self.hides(name) else self.pairs(value)

    def query(self, text: str) -> str:
        """A query, without its question mark."""
        return self._line(text, self._form, self._json_redactor.in_line)

    def _line(self, text: str, pairs: _OnOctets, documents: _OnOctets) -> str:
        text = without_user(text)
        text = _on_octets(pairs, text) if self._keys else text
        return _on_octets(documents, text) if self._json_redactor else text

    # Bodies.

    def body(self, text: str, kind: str, whole: bool) -> str | None:
        """A body as text, of media type `kind`; None: it cannot be kept."""
        if not self.reads_bodies:
            return text
        try:
            return _on_octets(lambda data: self._text(data, kind, whole), text)
        except (Unreadable, UnicodeError, RecursionError, MemoryError):
            return None

    def content(self, data: bytes, kind: str, *, whole: bool = True) -> bytes:
        """A body without codings; the same object if nothing is removed. Raises
        Unreadable."""
        if not self.reads_bodies:
            return self._heads_in(data) if has_heads(kind) else data
        if not data:
            return data
        try:
            return self._end(self._content(data, kind, whole, outermost()), whole)
        except (UnicodeError, RecursionError, MemoryError):
            raise Unreadable from None

    def _end(self, data: bytes, whole: bool) -> bytes:
        """Without the end of a cut body, in which a match may have begun."""
        return data if whole or not self._expressions else data[:-MOST_MATCH]

    def _content(self, data: bytes, kind: str, whole: bool, place: Nesting) -> bytes:
        if kind[:10].lower() == "multipart/":
            return self._parts(data, kind, place)
        if _MESSAGE.match(kind):
            return self._message(data, whole, place)
        read = read_text(data, kind, whole=whole)
        if read is None:
            if is_text(kind) or not (self._keeps_octets or is_media(data, kind)):
                raise Unreadable
            return self._octets(data, whole)
        if read.codec == "utf-8":
            return self._text(data, kind, whole)
        other = in_other_order(data, read, whole=whole)
        if other and other.changed(
                data, lambda text: self._text(text, "", whole)) != data:
            raise Unreadable                 # for one of both readers it has a secret
        return read.changed(data, lambda text: self._text(text, kind, whole))

    def _octets(self, data: bytes, whole: bool) -> bytes:
        """A body of no text. Raises Unreadable."""
        if b"\0" in data:                    # it may be UTF-16, without a mark
            bare = data.replace(b"\0", b"")
            if self._text(bare, "", whole) != bare:
                raise Unreadable
        return self._text(data, "", whole)

    def _text(self, data: bytes, kind: str, whole: bool) -> bytes:
        """UTF-8, of this media type. Raises Unreadable."""
        kind_of = kind.lower()
        if kind_of.startswith("text/event-stream"):
            try:
                return redact_events(data, self._event, self._others)
            except Malformed:
                raise Unreadable from None
        if kind_of.startswith("multipart/"):
            return self._parts(data, kind, outermost())
        is_form = kind_of.startswith(_FORM)
        if self._json_redactor:
            data = self._json(data, kind, whole, is_form=is_form)
        return self._values(data, is_form=is_form)

    def _json(self, data: bytes, kind: str, whole: bool, *, is_form: bool = False
              ) -> bytes:
        begin = BEGIN.match(data)
        # `curl -d` says of JSON, too, that it is a form
        if begin and (not is_form or QUOTED.match(data, begin.end())):
            at = begin.end() - 1
            return data[:at] + self._document(data[at:], whole)
        if JSON.search(kind):
            return self._document(data, whole)
        if call := CALL.match(data):
            return self._called(data, call.end(), whole)
        return self._documents_in_form(data, whole) if is_form else self._within(data)

    def _values(self, data: bytes, *, is_form: bool = False) -> bytes:
        """Without values of keys, and matches of expressions."""
        if self._keys:
            spans = self._keys.values(data, is_form=is_form)
            data = self._replace(data, _at_most(MOST_VALUES, spans))
        return self._matches(data) if self._expressions else data

    def _called(self, data: bytes, at: int, whole: bool) -> bytes:
        """A call with what begins here as its argument."""
        end = data.rfind(b")", at)
        if end < 0:
            end = len(data)
        document = data[at:end]
        try:
            return data[:at] + self._document(document, whole) + data[end:]
        except Unreadable:
            if has_members(document):
                raise
            return self._within(data)        # a script of another kind

    def _within(self, data: bytes) -> bytes:
        try:
            return self._json_redactor.within(data)
        except ValueError:
            raise Unreadable from None

    def _document(self, data: bytes, whole: bool) -> bytes:
        try:
            if not whole:
                raise ValueError("it is cut")
            return self._json_redactor.redact(data)
        except (ValueError, RecursionError):
            raise Unreadable from None

    def _documents_in_form(self, data: bytes, whole: bool) -> bytes:
        """A form with documents as values."""
        result = bytearray()
        at = tries = 0
        for match in _PAIR.finditer(data):
            begin, end = match.span(1)
            if _DOCUMENT.match(data, begin, end) is None:
                continue
            tries += 1
            if tries > MOST_VALUES:
                raise Unreadable
            plain = unquoted_octets(data[begin:end].replace(b"+", b" "))
            if plain.lstrip(_BLANK)[:1] in (b"{", b"["):
                redacted = self._document(plain, whole)
                result += self._within(data[at:begin])
                result += data[begin:end] if redacted == plain else quote(
                    redacted, safe="").encode()
                at = end
        rest = self._within(data[at:])
        return bytes(result + rest) if at else rest

    def _event(self, data: bytes) -> bytes:
        try:
            return self._text(data, "", True)
        except Unreadable:
            return self._whole(data)

    def _others(self, lines: bytes) -> bytes:
        """Lines of a stream of events beside their data."""
        try:
            if self._json_redactor and _SIGN.search(lines):
                lines = self._json_in_lines(lines)
            return self._values(lines)
        except Unreadable:
            if lines.count(b"\n") + lines.count(b"\r") > MOST_VALUES:
                return self._whole(lines)
            return _LINE.sub(lambda line: self._whole(line[0]), lines)

    def _json_in_lines(self, lines: bytes) -> bytes:
        """A document may be a field's value, or the whole, such as an answer that says
        of JSON that it is a stream of events."""
        result = bytearray()
        at = 0
        for line in _LINE.finditer(lines):
            begin, end = line.span()
            if field := _FIELD.match(lines, begin, end):
                begin = field.end()
            elif BEGIN.match(lines, begin) or CALL.match(lines, begin):
                end = len(lines)
            else:
                continue
            result += self._within(lines[at:begin])
            result += self._json(lines[begin:end], "", True)
            at = end
            if end == len(lines):
                break
        return bytes(result + self._within(lines[at:]))

    def _parts(self, data: bytes, kind: str, place: Nesting) -> bytes:
        """Each level has a copy of what is in it. Raises Unreadable."""
        if place.level >= MOST_LEVELS:
            raise Unreadable
        try:
            parts = read_parts(data, kind, place.parts)
        except Malformed:
            raise Unreadable from None
        pieces: list[bytes] = []
        at = 0
        for part in parts:
            old = data[part.begin:part.end]
            head = data[part.head:part.begin]
            new_head = self._fields_of(head)
            try:
                if not part.is_plain or self._keys.are_in(part.names):
                    raise Unreadable
                new = self._content(
                    old, part.kind or "text/plain", True, place.inner())
            except Unreadable:
                new = self._whole(old) if old else old
            if new != old or new_head != head:
                pieces += [data[at:part.head], new_head, new]
                at = part.end
        return b"".join([*pieces, data[at:]]) if pieces else data

    def _fields_of(self, head: bytes) -> bytes:
        """Redacts the fields of a part."""
        return self._inner_head(f"\n{head.decode('latin-1')}")[1:].encode("latin-1")

    def _inner_head(self, head: str) -> str:
        made = self.head(head)
        if self.heard is not None and made != head:
            self.heard += secrets_in(head, self._fields)
        return made

    def _heads_in(self, data: bytes) -> bytes:
        """All lines of a batch as those of a head: no part of it is read."""
        text = f"\n{data.decode('latin-1')}"
        made = self.names.replace(text)
        if self.heard is not None and made != text:
            self.heard += secrets_in(text, self._fields)
        return data if made == text else made[1:].encode("latin-1")

    def _message(self, data: bytes, whole: bool, place: Nesting) -> bytes:
        if place.level > MOST_LEVELS:
            raise Unreadable
        pieces, at = list[bytes](), 0
        while at < len(data):
            try:
                head, at, end, kind, is_plain = read_message(data, at)
            except Malformed:
                raise Unreadable from None
            body, at = data[at:end], end
            try:
                if not is_plain or (pieces and next(place.parts, None) is None):
                    raise Unreadable
                body = self._content(body, kind, whole, place.inner())
            except Unreadable:
                body = self._whole(body) if body else body
            pieces += [self._inner_head(head).encode("latin-1"), body]
        return b"".join(pieces)

    def _whole(self, data: bytes) -> bytes:
        return self._mask(data.decode("utf-8", "surrogateescape")).encode()

    def _form(self, data: bytes) -> bytes:
        return self._replace(data, self._keys.values(data, is_form=True))

    def _pairs(self, data: bytes) -> bytes:
        return self._replace(data, self._keys.values(data))

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
            text = data.decode()
            return self._without_matches(text, text).encode()
        except UnicodeDecodeError:           # UTF-8 in part, or ISO-8859-1
            text = data.decode("utf-8", "surrogateescape")
            shown = text.encode("utf-8", "replace").decode()
            data = self._without_matches(text, shown).encode("utf-8", "surrogateescape")
            text = data.decode("latin-1")
            return self._without_matches(text, text).encode("latin-1")

    def _without_matches(self, text: str, shown: str) -> str:
        """`shown`: as long as the text, to search in: RE2 takes no half characters."""
        for expression in self._expressions:
            pieces, searched, at = list[str](), list[str](), 0
            try:
                for match in expression.finditer(shown):
                    groups = [match.span(n + 1) for n in range(len(match.groups()))]
                    for begin, end in sorted(groups or [match.span()]):
                        if begin >= at and end > begin:
                            secret = self._mask(text[begin:end])
                            pieces += [text[at:begin], secret]
                            searched += [shown[at:begin], secret]
                            at = end
                    if len(pieces) > 2 * MOST_VALUES:
                        raise Unreadable
            except ValueError:
                raise Unreadable from None
            text = "".join([*pieces, text[at:]])
            shown = "".join([*searched, shown[at:]])
        return text


def _at_most(most: int, spans: Iterator[Span]) -> Iterator[Span]:
    """Raises Unreadable if there are more."""
    for number, span in enumerate(spans):
        if number >= most:
            raise Unreadable
        yield span


def _on_octets(redact: _OnOctets, text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    redacted = redact(data)
    return text if redacted is data or redacted == data else redacted.decode(
        "utf-8", "surrogatepass")
