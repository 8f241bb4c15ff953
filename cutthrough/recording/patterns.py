"""What a recording asks of requests by itself, as simulations of hoverfly have it.

An exact value is a part of the index. The rest is a predicate, which is asked of the
requests that have all exact values: many recordings with predicates alone are slow.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from cutthrough.recording.documents import (
    KeyMistake,
    canonical,
    compile_path,
    compile_regex,
    flatten,
    read_json,
    select,
)
from cutthrough.recording.keys import PLAIN, Parts, plain
from cutthrough.recording.model import Pattern, Request, split_pairs

Predicate = Callable[[Request], bool]


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


def subject(request: Request, one: Pattern) -> str | None:
    """The text that a pattern looks at; None: the request has none."""
    if one.part == "field":
        return request.field(one.key) or None
    if one.part == "body":
        try:
            body = plain(request).body
        except ValueError:
            body = request.body
        return body.decode(errors="replace")
    if one.part == "query" and one.key:
        found = parts_of(request).get(("query", one.key))
        return None if found is None else str(found)
    return str(getattr(request, one.part))


def make_predicate(one: Pattern) -> Predicate:
    """Raises KeyMistake."""
    asks = _READ[one.how](one)

    def holds(request: Request) -> bool:
        text = subject(request, one)
        return text is not None and asks(text)

    return holds


def _exact(one: Pattern) -> Callable[[str], bool]:
    if one.part == "query" and not one.key:
        wanted = sorted(split_pairs(one.value))
        return lambda text: sorted(split_pairs(text)) == wanted
    return lambda text: text == one.value


def _glob(one: Pattern) -> Callable[[str], bool]:
    # hoverfly's globs have * alone
    pattern = one.value.replace("[", "[[]").replace("?", "[?]")
    return lambda text: fnmatchcase(text, pattern)


def _regex(one: Pattern) -> Callable[[str], bool]:
    search = compile_regex(one.value)
    return lambda text: search(text) is not None


def _document(text: str) -> Any:
    try:
        return read_json(text.encode(errors="replace"))
    except ValueError:
        return _document


def _json(one: Pattern) -> Callable[[str], bool]:
    try:
        wanted = canonical(read_json(one.value.encode()))
    except ValueError as error:
        raise KeyMistake(f"{one.value!r:.60} is no JSON: {error}") from None

    def equals(text: str) -> bool:
        found = _document(text)
        return found is not _document and canonical(found) == wanted

    return equals


def _partial(one: Pattern) -> Callable[[str], bool]:
    try:
        wanted = flatten(read_json(one.value.encode()), whole=False).items()
    except ValueError as error:
        raise KeyMistake(f"{one.value!r:.60} is no JSON: {error}") from None

    def contains(text: str) -> bool:
        found = _document(text)
        try:
            return found is not _document and (
                wanted <= flatten(found, whole=True).items())
        except ValueError:
            return False

    return contains


def _jsonpath(one: Pattern) -> Callable[[str], bool]:
    compile_path(one.value)

    def has(text: str) -> bool:
        found = _document(text)
        return found is not _document and bool(select(found, one.value))

    return has


def _form(one: Pattern) -> Callable[[str], bool]:
    """The value of the key `key`; without a key the pairs, in any order."""
    if one.key:
        return lambda text: (one.key, one.value) in split_pairs(text)
    wanted = sorted(split_pairs(one.value))
    return lambda text: sorted(split_pairs(text)) == wanted


_READ: dict[str, Callable[[Pattern], Callable[[str], bool]]] = {
    "exact": _exact, "glob": _glob, "regex": _regex, "json": _json,
    "partial_json": _partial, "jsonpath": _jsonpath, "form": _form}
