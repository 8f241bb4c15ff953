"""A recording's own conditions for requests, as simulations of hoverfly have it.

An exact value is a part of the index. The rest is a predicate, and is asked of requests
with all exact values: many recordings with predicates alone are slow. Each text of a
request is decoded and parsed once for all of them.
"""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from cutthrough.exchange.bounds import KeyMistake, TooMuch
from cutthrough.exchange.documents import (
    canonical,
    compile_path,
    contains,
    read_json,
    select,
)
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.targets import path_of_go
from cutthrough.recording.match.bodies import plain, read_form
from cutthrough.recording.match.routes import PLAIN, Parts
from cutthrough.recording.model.recording import (
    JWT,
    OF_XML,
    Pairs,
    Pattern,
    Request,
    split_pairs,
)
from cutthrough.recording.model.xml_documents import (
    check_template,
    compile_xpath,
    decode_xml,
    equal,
    has_xpath,
    is_like,
    read_xml,
    spell,
)


class Text:
    """A text of a request, and the documents in it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def document(self) -> Any:
        """The text as JSON; `Text` itself if it is none."""
        try:
            return read_json(self.text.encode(errors="replace"))
        except ValueError:
            return Text

    @cached_property
    def spelling(self) -> str | None:
        """The canonical spelling of the document; None: it is none."""
        return None if self.document is Text else canonical(self.document)

    @cached_property
    def claims(self) -> "Text":
        return Text(_claims(self.text))


class Subject:
    """A request, as patterns are asked of it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._texts: dict[tuple[object, ...], Text | None] = {}

    def text(self, pattern: Pattern) -> Text | None:
        """The text of a pattern; None: the request has none."""
        at = (pattern.part, pattern.key, pattern.how in OF_XML)
        if at not in self._texts:
            text = _text_of(self.request, pattern)
            self._texts[at] = None if text is None else Text(text)
        return self._texts[at]


Predicate = Callable[[Subject], bool]
Asks = Callable[[Text], bool]


def parts_of(request: Request) -> Parts:
    """The index of a recording's exact patterns."""
    parts: Parts = {name: str(getattr(request, name)) for name in PLAIN}
    parts["path"] = path_of_go(request.path)
    for name, value in split_pairs(request.query):
        before = parts.get(("query", name))
        parts["query", name] = value if before is None else f"{before};{value}"
    return parts


def split(patterns: tuple[Pattern, ...]) -> tuple[Parts, tuple[Pattern, ...]]:
    """The parts of the index, and the patterns that are left."""
    parts: Parts = {}
    left = []
    for pattern in patterns:
        at = pattern.part if pattern.part in PLAIN else ("query", pattern.key)
        is_part = pattern.part in PLAIN or (pattern.part == "query" and pattern.key)
        if pattern.how == "exact" and is_part and not pattern.steps and (
                at not in parts):
            parts[at] = pattern.value if pattern.part != "path" else (
                path_of_go(pattern.value))
        else:
            left.append(pattern)
    return parts, tuple(left)


def _text_of(request: Request, pattern: Pattern) -> str | None:
    if pattern.part == "field":              # joined as hoverfly does, not as HTTP does
        return ";".join([value for name, value in request.fields
                         if name.lower() == pattern.key]) or None
    if pattern.part == "form":
        values = [value for name, value in read_pairs(request) if name == pattern.key]
        return ";".join(values) if values else None
    if pattern.part == "path":
        return path_of_go(request.path)
    if pattern.part == "url":
        return request.authority + path_of_go(request.path)
    if pattern.part == "body":
        try:
            body = plain(request).body
        except ValueError:
            body = request.body
        return (decode_xml(body) if pattern.how in OF_XML else
                body.decode(errors="replace"))
    if pattern.part == "query" and pattern.key:
        value = parts_of(request).get(("query", pattern.key))
        return None if value is None else str(value)
    return str(getattr(request, pattern.part))


def read_pairs(request: Request) -> Pairs:
    """Returns the pairs of a form in the body. An upload has none."""
    try:
        form = read_form(plain(request))
    except ValueError:
        return []
    return [] if isinstance(form, bytes) else form


def make_predicate(pattern: Pattern) -> Predicate:
    """Raises KeyMistake."""
    asks = _READ[pattern.how](pattern)
    steps = [*map(_step, pattern.steps)]

    def holds(subject: Subject) -> bool:
        text = subject.text(pattern)
        try:
            for take in steps:
                text = None if text is None else take(text)
            return text is not None and asks(text)
        except TooMuch:                      # not known to match: no match
            return False

    return holds


def _step(name: str) -> Callable[[Text], Text | None]:
    """Raises KeyMistake."""
    if name == JWT:
        return lambda text: text.claims
    compile_path(name)

    def take(text: Text) -> Text | None:
        values = [] if text.document is Text else select(text.document, name)
        if not values:
            return None
        return Text(values[0] if isinstance(values[0], str) else canonical(values[0]))

    return take


def _exact(pattern: Pattern) -> Asks:
    if pattern.part == "query" and not pattern.key:
        wanted = sorted(split_pairs(pattern.value))
        return lambda text: sorted(split_pairs(text.text)) == wanted
    return lambda text: text.text == pattern.value


def _negate(pattern: Pattern) -> Asks:
    return lambda text: text.text != pattern.value


def _array(pattern: Pattern) -> Asks:
    """`value`: JSON with `values`, and hoverfly's flags `ignoreUnknown`, `ignoreOrder`
    and `ignoreOccurrences`. Raises KeyMistake."""
    options = _document(pattern)
    if not isinstance(options, dict) or not isinstance(options.get("values"), list):
        raise KeyMistake(f"{pattern.value!r:.60} has no list of `values`")
    values = [str(value) for value in options["values"]]
    unknown, order, occurrences = (options.get(f"ignore{name}") is True for name in (
        "Unknown", "Order", "Occurrences"))

    def matches(text: Text) -> bool:
        items = text.text.split(";")
        rest, counts = iter(items), Counter(items)
        return (
            (unknown or set(items) <= set(values))
            and (occurrences or all(
                counts[value] == count for value, count in Counter(values).items()))
            # As a subsequence: `in` goes on after its last match
            and (order or all(value in rest for value in values)))

    return matches


def _glob(pattern: Pattern) -> Asks:
    # hoverfly's globs have * alone
    glob = pattern.value.replace("[", "[[]").replace("?", "[?]")
    return lambda text: fnmatchcase(text.text, glob)


def _regex(pattern: Pattern) -> Asks:
    search = compile_expression(pattern.value).search
    return lambda text: search(text.text) is not None


def _document(pattern: Pattern) -> Any:
    """Raises KeyMistake."""
    try:
        return read_json(pattern.value.encode())
    except (ValueError, RecursionError) as error:
        raise KeyMistake(f"{pattern.value!r:.60} is no JSON: {error}") from None


def _json(pattern: Pattern) -> Asks:
    wanted = canonical(_document(pattern))
    return lambda text: text.spelling == wanted


def _partial(pattern: Pattern) -> Asks:
    """As hoverfly has it: anywhere in the document, and of a list some values, in any
    order."""
    wanted = _document(pattern)
    return lambda text: text.document is not Text and contains(text.document, wanted)


def _jsonpath(pattern: Pattern) -> Asks:
    compile_path(pattern.value)
    return lambda text: text.document is not Text and bool(
        select(text.document, pattern.value))


def _form(pattern: Pattern) -> Asks:
    """The value of the key `key`; without a key the pairs, in any order."""
    if pattern.key:
        return lambda text: (pattern.key, pattern.value) in split_pairs(text.text)
    wanted = sorted(split_pairs(pattern.value))
    return lambda text: sorted(split_pairs(text.text)) == wanted


def _claims(text: str) -> str:
    """The header and the payload of a JSON Web Token (RFC 7519), as JSON; "": it is
    none. Nothing is verified: a pattern is no permission."""
    word, _, rest = text.strip().partition(" ")
    parts = (rest.strip() if word.lower() == "bearer" else text.strip()).split(".")
    if len(parts) != 3:
        return ""
    claims = {}
    for name, part in zip(("header", "payload"), parts, strict=False):
        try:
            claims[name] = read_json(base64.b64decode(
                part + "=" * (-len(part) % 4), b"-_", validate=True))
        except (binascii.Error, ValueError):
            continue                         # as hoverfly does
    return json.dumps(claims)


def _jwt(pattern: Pattern) -> Asks:
    has_part = _partial(pattern)
    return lambda text: has_part(text.claims)


def _jwt_jsonpath(pattern: Pattern) -> Asks:
    has = _jsonpath(pattern)
    return lambda text: has(text.claims)


def _root(pattern: Pattern) -> Any:
    try:
        return read_xml(pattern.value)
    except KeyMistake:
        raise
    except ValueError as error:
        raise KeyMistake(f"{pattern.value!r:.60} is no XML: {error}") from None


def _of_xml(asks: Callable[[Any], bool]) -> Asks:
    def holds(text: Text) -> bool:
        try:
            return asks(read_xml(text.text))
        except ValueError:
            return False

    return holds


def _xml(pattern: Pattern) -> Asks:
    wanted = [*spell(_root(pattern))]
    return _of_xml(lambda root: equal(wanted, root))


def _xml_templated(pattern: Pattern) -> Asks:
    wanted = _root(pattern)
    check_template(wanted)
    return _of_xml(lambda root: is_like(wanted, root))


def _xpath(pattern: Pattern) -> Asks:
    path = compile_xpath(pattern.value)
    return _of_xml(lambda root: has_xpath(root, path))


_READ: dict[str, Callable[[Pattern], Asks]] = {
    "exact": _exact, "negate": _negate, "glob": _glob, "regex": _regex,
    "array": _array, "json": _json, "partial_json": _partial, "jsonpath": _jsonpath,
    "form": _form, "jwt": _jwt, "jwt_jsonpath": _jwt_jsonpath, "xml": _xml,
    "xml_templated": _xml_templated, "xpath": _xpath}
