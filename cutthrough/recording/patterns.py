"""What a recording asks of requests by itself, as simulations of hoverfly have it.

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
from cutthrough.recording.keys import PLAIN, Parts, plain
from cutthrough.recording.model import OF_XML, Pattern, Request, split_pairs
from cutthrough.recording.xml_documents import (
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
        """Of JSON; `Text` itself: it is none."""
        try:
            return read_json(self.text.encode(errors="replace"))
        except ValueError:
            return Text

    @cached_property
    def spelling(self) -> str | None:
        """The one spelling of the document; None: it is none."""
        return None if self.document is Text else canonical(self.document)

    @cached_property
    def claims(self) -> "Text":
        return Text(_claims(self.text))


class Subject:
    """A request, as patterns are asked of it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._texts: dict[tuple[object, ...], Text | None] = {}

    def text(self, one: Pattern) -> Text | None:
        """The text of a pattern; None: the request has none."""
        at = (one.part, one.key, one.how in OF_XML, one.how == "array")
        if at not in self._texts:
            text = _text_of(self.request, one)
            self._texts[at] = None if text is None else Text(text)
        return self._texts[at]


Predicate = Callable[[Subject], bool]
Asks = Callable[[Text], bool]


def parts_of(request: Request) -> Parts:
    """What the exact patterns of a recording are looked up in."""
    parts: Parts = {name: str(getattr(request, name)) for name in PLAIN}
    for name, value in split_pairs(request.query):
        before = parts.get(("query", name))
        parts["query", name] = value if before is None else f"{before};{value}"
    return parts


def split(patterns: tuple[Pattern, ...]) -> tuple[Parts, tuple[Pattern, ...]]:
    """The parts of the index, and the patterns that are left."""
    parts: Parts = {}
    left = []
    for one in patterns:
        at = one.part if one.part in PLAIN else ("query", one.key)
        is_part = one.part in PLAIN or (one.part == "query" and one.key)
        if one.how == "exact" and is_part and at not in parts:
            parts[at] = one.value
        else:
            left.append(one)
    return parts, tuple(left)


def _text_of(request: Request, one: Pattern) -> str | None:
    if one.part == "field":
        if one.how == "array":
            return ";".join([value for name, value in request.fields
                             if name.lower() == one.key]) or None
        return request.field(one.key) or None
    if one.part == "url":
        return request.authority + request.path
    if one.part == "body":
        try:
            body = plain(request).body
        except ValueError:
            body = request.body
        return (decode_xml(body) if one.how in OF_XML else
                body.decode(errors="replace"))
    if one.part == "query" and one.key:
        found = parts_of(request).get(("query", one.key))
        return None if found is None else str(found)
    return str(getattr(request, one.part))


def make_predicate(one: Pattern) -> Predicate:
    """Raises KeyMistake."""
    asks = _READ[one.how](one)

    def holds(subject: Subject) -> bool:
        text = subject.text(one)
        try:
            return text is not None and asks(text)
        except TooMuch:                      # what is not known to match does not
            return False

    return holds


def _exact(one: Pattern) -> Asks:
    if one.part == "query" and not one.key:
        wanted = sorted(split_pairs(one.value))
        return lambda text: sorted(split_pairs(text.text)) == wanted
    return lambda text: text.text == one.value


def _negate(one: Pattern) -> Asks:
    return lambda text: text.text != one.value


def _array(one: Pattern) -> Asks:
    """`value`: JSON with `values`, and what does not count of hoverfly's
    `ignoreUnknown`, `ignoreOrder` and `ignoreOccurrences`."""
    given = read_json(one.value.encode())
    values = [str(value) for value in given["values"]]
    unknown, order, occurrences = (given.get(f"ignore{name}") is True for name in (
        "Unknown", "Order", "Occurrences"))

    def matches(text: Text) -> bool:
        found = text.text.split(";")
        rest, counts = iter(found), Counter(found)
        return (
            (unknown or set(found) <= set(values))
            and (occurrences or all(
                counts[value] == count for value, count in Counter(values).items()))
            # As a subsequence: `in` goes on behind what it has found
            and (order or all(value in rest for value in values)))

    return matches


def _glob(one: Pattern) -> Asks:
    # hoverfly's globs have * alone
    pattern = one.value.replace("[", "[[]").replace("?", "[?]")
    return lambda text: fnmatchcase(text.text, pattern)


def _regex(one: Pattern) -> Asks:
    search = compile_expression(one.value).search
    return lambda text: search(text.text) is not None


def _json(one: Pattern) -> Asks:
    try:
        wanted = canonical(read_json(one.value.encode()))
    except ValueError as error:
        raise KeyMistake(f"{one.value!r:.60} is no JSON: {error}") from None

    return lambda text: text.spelling == wanted


def _partial(one: Pattern) -> Asks:
    """As hoverfly has it: anywhere in the document, and of a list some values, in any
    order."""
    try:
        wanted = read_json(one.value.encode())
    except ValueError as error:
        raise KeyMistake(f"{one.value!r:.60} is no JSON: {error}") from None

    return lambda text: text.document is not Text and contains(text.document, wanted)


def _jsonpath(one: Pattern) -> Asks:
    compile_path(one.value)
    return lambda text: text.document is not Text and bool(
        select(text.document, one.value))


def _form(one: Pattern) -> Asks:
    """The value of the key `key`; without a key the pairs, in any order."""
    if one.key:
        return lambda text: (one.key, one.value) in split_pairs(text.text)
    wanted = sorted(split_pairs(one.value))
    return lambda text: sorted(split_pairs(text.text)) == wanted


def _claims(text: str) -> str:
    """The header and the payload of a JSON Web Token (RFC 7519), as JSON; "": it is
    none. Nothing is verified: a pattern is no permission."""
    word, _, rest = text.strip().partition(" ")
    parts = (rest.strip() if word.lower() == "bearer" else text.strip()).split(".")
    if len(parts) != 3:
        return ""
    found = {}
    for name, part in zip(("header", "payload"), parts, strict=False):
        try:
            found[name] = read_json(base64.b64decode(
                part + "=" * (-len(part) % 4), b"-_", validate=True))
        except (binascii.Error, ValueError):
            continue                         # as hoverfly does
    return json.dumps(found)


def _jwt(one: Pattern) -> Asks:
    has_part = _partial(one)
    return lambda text: has_part(text.claims)


def _jwt_jsonpath(one: Pattern) -> Asks:
    has = _jsonpath(one)
    return lambda text: has(text.claims)


def _root(one: Pattern) -> Any:
    try:
        return read_xml(one.value)
    except KeyMistake:
        raise
    except ValueError as error:
        raise KeyMistake(f"{one.value!r:.60} is no XML: {error}") from None


def _of_xml(asks: Callable[[Any], bool]) -> Asks:
    def holds(text: Text) -> bool:
        try:
            return asks(read_xml(text.text))
        except ValueError:
            return False

    return holds


def _xml(one: Pattern) -> Asks:
    wanted = [*spell(_root(one))]
    return _of_xml(lambda root: equal(wanted, root))


def _xml_templated(one: Pattern) -> Asks:
    wanted = _root(one)
    check_template(wanted)
    return _of_xml(lambda root: is_like(wanted, root))


def _xpath(one: Pattern) -> Asks:
    path = compile_xpath(one.value)
    return _of_xml(lambda root: has_xpath(root, path))


_READ: dict[str, Callable[[Pattern], Asks]] = {
    "exact": _exact, "negate": _negate, "glob": _glob, "regex": _regex,
    "array": _array, "json": _json, "partial_json": _partial, "jsonpath": _jsonpath,
    "form": _form, "jwt": _jwt, "jwt_jsonpath": _jwt_jsonpath, "xml": _xml,
    "xml_templated": _xml_templated, "xpath": _xpath}
