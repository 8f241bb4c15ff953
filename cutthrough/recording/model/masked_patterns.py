"""Removes secrets from the patterns of recordings, so that they still hold of a request
without its secrets.

A value that a pattern is equal to becomes the stand-in of the request's value. What
cannot be such a value (a glob, an expression) becomes a glob that always holds.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from cutthrough.exchange.documents import canonical, read_json
from cutthrough.exchange.redaction.json_redactor import split_path
from cutthrough.exchange.redaction.redactor import Redactor
from cutthrough.exchange.redaction.spellings import names_of
from cutthrough.recording.model.recording import Part, Pattern

# Parts of a path; of a longer one nothing is kept
MOST_PLACES = 100

_TEXT = r"'[^'\\]*'|\"[^\"\\]*\""
# A part of a path that selects one value
_SINGLE = re.compile(
    rf"\.([A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)|\[\s*(?:({_TEXT})|[0-9]+)\s*\]")
_PLAIN = re.compile(rf"\$(?:{_SINGLE.pattern})*")
# A text in a filter: it is compared, or is the argument of a function
_COMPARED = re.compile(
    rf"(?<=[=<>])\s*({_TEXT})|({_TEXT})(?=\s*[=!<>])|(?<=,)\s*({_TEXT})(?=\s*\))")
_LOOSE = ("glob", "regex", "negate", "array")
_ANY = {"how": "glob", "value": "*"}


class _Place(NamedTuple):
    """A part of a path. `name` "": an index."""

    step: int
    name: str
    text: str


class PatternMasker:
    """`names`: of fields. `keys`: of URLs and forms. `paths`: in JSON. `value`: the
    stand-in of a secret."""

    def __init__(self, names: frozenset[str], keys: frozenset[str],
                 paths: Iterable[str], redactor: Redactor,
                 value: Callable[[str], str]) -> None:
        self._redactor, self._value = redactor, value
        self._names: dict[Part, frozenset[str]] = {
            "field": names, "query": keys, "form": keys, "body": keys}
        lasts = {names[-1] for names in map(split_path, paths) if names}
        self._members = tuple(last for last in lasts if last != "*")
        self._words = tuple({*map(str.lower, self._members), *keys})
        self._has_paths = bool(lasts)

    def mask(self, pattern: Pattern) -> Pattern:
        """The same object if nothing is removed."""
        if pattern.is_of_token:              # claims, and not the token
            return pattern
        if pattern.key and not self._names.get(pattern.part, frozenset()).isdisjoint(
                names_of(pattern.key)):
            if pattern.how in ("exact", "form") and not pattern.steps:
                return _changed(pattern, value=self._value(pattern.value))
            return _changed(pattern, **_ANY, steps=())
        if self._has_paths and pattern.part in ("body", "form"):
            pattern = self._with_filters(pattern)
            if pattern.how == "jsonpath":
                return self._of_path(pattern)
            if pattern.steps:
                return self._behind(pattern)
        if pattern.how in ("jsonpath", "xpath"):
            return pattern
        text = self._text(pattern)
        if text == pattern.value:
            return pattern
        return _changed(pattern, **(
            _ANY if pattern.how in _LOOSE else {"value": text}))

    def _text(self, pattern: Pattern) -> str:
        """As a request without its secrets has it."""
        value = pattern.value
        if pattern.part in ("path", "url", "query", "field"):
            return self._redactor.pairs(value)
        if pattern.part not in ("body", "form"):
            return value
        body = self._redactor.body(value, "", True)
        if body is not None and body == value and pattern.how in _LOOSE and any(
                word in value.lower() for word in self._words):
            return ""
        return self._value(value) if body is None else body

    def _with_filters(self, pattern: Pattern) -> Pattern:
        """Without the texts that filters of paths compare with a secret."""
        steps = tuple(map(self._filter, pattern.steps))
        value = self._filter(pattern.value) if pattern.how == "jsonpath" else (
            pattern.value)
        if steps == pattern.steps and value == pattern.value:
            return pattern
        return _changed(pattern, steps=steps, value=value)

    def _filter(self, path: str) -> str:
        if "?" not in path or not any(name in path for name in self._members):
            return path
        return _COMPARED.sub(lambda match: match[0].replace(
            text := match[1] or match[2] or match[3],
            f"{text[0]}{self._value(text[1:-1])}{text[0]}"), path)

    def _of_path(self, pattern: Pattern) -> Pattern:
        """If a part of the document around its value is hidden, that part."""
        steps = (*pattern.steps, pattern.value)
        if not all(map(_PLAIN.fullmatch, steps)):
            return pattern
        for places in _tails(steps):
            masked = self._at(places, "")
            if isinstance(masked, int):
                *steps_left, path = _upto(steps, places, masked) or ("$",)
                return _changed(pattern, steps=tuple(steps_left), value=path)
        return pattern

    def _behind(self, pattern: Pattern) -> Pattern:
        """Returns the masked pattern of a value that steps take out of a document."""
        if not all(map(_PLAIN.fullmatch, pattern.steps)):
            is_secret = any(name in step for name in self._members
                            for step in pattern.steps)
            return _hidden(pattern, self._value(pattern.value)) if is_secret else (
                pattern)
        value: Any = pattern.value
        if pattern.how in ("exact", "json", "partial_json"):
            value = _read(value)
        for places in _tails(pattern.steps):
            masked = self._at(places, value)
            if isinstance(masked, int):
                return _changed(pattern, **_ANY, steps=_upto(
                    pattern.steps, places, masked))
            if masked != value:
                return _hidden(pattern, masked) if isinstance(masked, str) else (
                    _changed(pattern, value=canonical(masked[0])))
        return pattern

    def _at(self, places: list[_Place], value: Any) -> Any:
        """Returns the masked value at these places: a list if it is a document; a text;
        or a number, the length of the path to a part that is hidden, 0 if the whole
        document is."""
        if len(places) > MOST_PLACES:
            return 0
        document = value[0] if isinstance(value, list) else value
        for place in reversed(places):
            document = {place.name: document} if place.name else [document]
        text = json.dumps(document)
        masked = self._redactor.body(text, "application/json", True)
        if masked == text:
            return value
        try:
            document = read_json((masked or "").encode())
        except ValueError:                   # it is malformed, or has half a character
            return 0
        for number, place in enumerate(places):
            if isinstance(document, dict):
                document = document[place.name]
            elif isinstance(document, list):
                document = document[0]
            else:
                return number
        return document if isinstance(document, str) else [document]


def _hidden(pattern: Pattern, stand_in: str) -> Pattern:
    """The whole value is a secret."""
    is_equal = pattern.how in ("exact", "json")
    return _changed(pattern, **(
        {"how": "exact", "value": stand_in} if is_equal else _ANY))


def _read(text: str) -> Any:
    """A document in a list; the text itself, if it is none or a single value."""
    try:
        document = read_json(text.encode())
    except ValueError:
        return text
    return [document] if isinstance(document, dict | list) else text


def _tails(steps: tuple[str, ...]) -> Iterator[list[_Place]]:
    """The places of all steps, of those behind the first, and so on: a document in a
    string has paths of its own."""
    for first in range(len(steps)):
        yield [_Place(number, match[1] or (match[2] or "")[1:-1], match[0])
               for number, step in enumerate(steps) if number >= first
               for match in _SINGLE.finditer(step)]


def _upto(steps: tuple[str, ...], places: list[_Place], count: int) -> tuple[str, ...]:
    """The steps to the first `count` places."""
    if not count:
        return steps[:places[0].step] if places else ()
    last = places[count - 1].step
    return (*steps[:last], "$" + "".join(
        place.text for place in places[:count] if place.step == last))


def _changed(pattern: Pattern, **changes: Any) -> Pattern:
    return msgspec.structs.replace(pattern, **changes)
