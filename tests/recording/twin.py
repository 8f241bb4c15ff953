"""The matcher as its pages have it: every recording is tried, and nothing is hashed."""

import gzip
import json
import re
from urllib.parse import parse_qsl

from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Recording, Request

NAMES = ("query", "variables", "operationName", "extensions")


def same(one: object, other: object) -> bool:
    """Equal as JSON: True is not 1, and 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) in (int, float, str, bytes, type(None)) and one == other


def contains(whole: object, part: object) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(
            map(contains, whole, part))
    return same(whole, part)


def values(document: object) -> int:
    """The values that a recorded document requires: leaves, lists, empty objects."""
    if isinstance(document, dict) and document:
        return sum(map(values, document.values()))
    if isinstance(document, list):
        return 1 + sum(map(values, document))
    return 1


def content(request: Request) -> tuple[str, bytes]:
    """The body without gzip; "raw": it has a coding still."""
    if request.field("content-encoding") != "gzip" or not request.body:
        return "plain", request.body
    try:
        return "plain", gzip.decompress(request.body)
    except (OSError, EOFError):
        return "raw", request.body


def like(text: str, pattern: str) -> bool:
    """Of a pattern; its * stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text,
                        re.DOTALL) is not None


def steps(path: str) -> list[str]:
    """Of $.a.b[*]"""
    return re.findall(r"\w+|\*", path)


def select(document: object, path: list[str]) -> list[object]:
    if not path:
        return [document]
    first, rest = path[0], path[1:]
    if isinstance(document, dict):
        inner = [value for key, value in document.items() if first in ("*", key)]
    else:
        inner = document if isinstance(document, list) and first == "*" else []
    return [found for one in inner for found in select(one, rest)]


def without(document: object, path: list[str]) -> object:
    """A copy without the value at the path."""
    def goes(key: str) -> bool:
        return len(path) == 1 and path[0] in ("*", key)

    def inner(key: str, value: object) -> object:
        return without(value, path[1:]) if path[0] in ("*", key) else value

    if isinstance(document, dict):
        return {key: inner(key, value) for key, value in document.items()
                if not goes(key)}
    if isinstance(document, list) and path[0] == "*":
        return [inner("*", value) for value in document if not goes("*")]
    return document


def group(found: list[tuple[str, str]], ignored: tuple[str, ...]
          ) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for name, value in found:
        if not any(like(name, one) for one in ignored):
            made.setdefault(name, []).append(value)
    return made


def pairs(request: Request, key: Key, kind: str) -> dict[str, list[str]]:
    names = NAMES if kind == "graphql" and request.method == "GET" else ()
    return group(parse_qsl(request.query, keep_blank_values=True),
                 (*key.ignored_query, *names))


def operations(request: Request, body: bytes) -> list[object]:
    """Raises ValueError."""
    found: object = json.loads(body) if request.method != "GET" else dict(
        parse_qsl(request.query, keep_blank_values=True))
    made: list[object] = []
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict) or not isinstance(one.get("query"), str):
            raise ValueError
        text = re.sub(r"#[^\n]*|[\s,]", " ", one["query"]).split()
        variables = one.get("variables") or {}
        if request.method == "GET" and isinstance(variables, str):
            variables = json.loads(variables) or {}
        name = one.get("operationName")
        if not isinstance(name, str):
            named = re.search(r"\b(query|mutation) +(\w+)", " ".join(text))
            name = named[2] if named else ""
        made.append([name, variables, text])
    if not made:
        raise ValueError
    return made


def read(request: Request, key: Key) -> tuple[str, object]:
    """The kind by which a body was read, and the part of it that counts."""
    how, body = content(request)
    try:
        if key.body in ("json", "partial_json", "jsonpath"):
            try:
                document: object = json.loads(request.body)
            except ValueError:
                document = json.loads(body)
            for path in key.ignored_paths:
                document = without(document, steps(path))
            if key.body == "jsonpath":
                return "jsonpath", [select(document, steps(path)) for path in key.paths]
            return "json", document
        if key.body in ("form", "regex", "graphql") and how == "raw":
            raise ValueError
        if key.body == "form":
            return "form", group(parse_qsl(
                body.decode("latin-1"), keep_blank_values=True), key.ignored_form)
        if key.body == "regex":
            matches = [re.search(one, body.decode(errors="replace"))
                       for one in key.regexes]
            return "regex", [one and list(one.groups() or [one[0]]) for one in matches]
        if key.body == "graphql":
            return "graphql", operations(request, body)
    except ValueError:
        return "bytes", body
    return "bytes", b"" if key.body == "ignore" else request.body


def weigh(request: Request, other: Request, key: Key) -> int | None:
    """How much the recorded request requires; None: it does not match."""
    for name in ("method", "scheme", "host", "port", "path"):
        if getattr(key, name) and getattr(request, name) != getattr(other, name):
            return None
    (kind, one), (other_kind, two) = read(request, key), read(other, key)
    if kind != other_kind:
        return None
    weight = 0
    here, there = pairs(request, key, kind), pairs(other, key, kind)
    if key.query == "exact" and here != there:
        return None
    if key.query == "subset":
        weight = len(there)
        if any(here.get(name) != found for name, found in there.items()):
            return None
    if any(request.field(name) != other.field(name) for name in key.fields):
        return None
    if key.body == "partial_json" and kind == "json":
        return weight + values(two) if contains(one, two) else None
    return weight if same(one, two) else None


def find(request: Request, recordings: list[Recording], key: Key) -> list[int]:
    """The numbers that match: the most demanding first, then the oldest."""
    found = []
    for one in recordings:
        weight = weigh(request, one.request, key)
        if weight is not None:
            found.append((-weight, one.number))
    return [number for _, number in sorted(found)]


class Twin:
    """Routes, sequences, lanes and state."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = [*routes, Route()]
        self.sequences: list[list[Recording]] = []
        self.lanes: dict[str, tuple[dict[int, int], dict[str, str]]] = {}

    def route(self, request: Request) -> Route:
        return next(one for one in self.routes if
                    (not one.methods or request.method in one.methods)
                    and (not one.hosts or any(like(request.host, each)
                                              for each in one.hosts))
                    and (not one.paths or any(like(request.path, each)
                                              for each in one.paths)))

    def numbers(self) -> list[int]:
        return sorted(one.number for each in self.sequences for one in each)

    def add(self, one: Recording) -> None:
        route = self.route(one.request)
        for sequence in self.sequences:
            first = sequence[0]
            if self.route(first.request) is route and first.requires == (
                    one.requires) and None not in (
                        weigh(one.request, first.request, route.key),
                        weigh(first.request, one.request, route.key)):
                sequence.append(one)
                sequence.sort(key=lambda each: each.number)
                return
        self.sequences.append([one])

    def remove(self, number: int) -> None:
        for sequence in self.sequences:
            sequence[:] = [one for one in sequence if one.number != number]
        # A list is the same sequence until it is empty
        for sequence in self.sequences:
            if not sequence:
                for places, _ in self.lanes.values():
                    places.pop(id(sequence), None)
        self.sequences = [one for one in self.sequences if one]

    def lane(self, name: str) -> tuple[dict[int, int], dict[str, str]]:
        return self.lanes.setdefault(name, ({}, {}))

    def match(self, request: Request, lane: str) -> int | None:
        route = self.route(request)
        places, state = self.lane(
            request.field(route.lane) if route.lane else lane)
        found = []
        for sequence in self.sequences:
            first = sequence[0]
            weight = weigh(request, first.request, route.key)
            if self.route(first.request) is route and weight is not None and (
                    first.requires.items() <= state.items()):
                found.append((-weight - len(first.requires), first.number, sequence))
        for _, _, sequence in sorted(found, key=lambda one: one[:2]):
            place = places.get(id(sequence), 0)
            if place >= len(sequence):
                if route.after == "miss":
                    continue
                place = 0 if route.after == "cycle" else len(sequence) - 1
            if route.after == "newest":
                place = len(sequence) - 1
            else:
                places[id(sequence)] = place + 1
            one = sequence[place]
            for name in one.removes:
                state.pop(name, None)
            state.update(one.sets)
            return one.number
        return None
