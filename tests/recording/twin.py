"""The matcher as its pages say it: every recording is asked, and nothing is hashed."""

import json
from urllib.parse import parse_qsl

from cutthrough.recording.keys import Key
from cutthrough.recording.model import Recording, Request


def same(one: object, other: object) -> bool:
    """Equal as JSON: True is not 1, and 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) in (int, float, str, type(None)) and one == other


def contains(whole: object, part: object) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(
            map(contains, whole, part))
    return same(whole, part)


def values(document: object) -> int:
    """What a recorded document asks for: leaves, lists, empty objects."""
    if isinstance(document, dict) and document:
        return sum(map(values, document.values()))
    if isinstance(document, list):
        return 1 + sum(map(values, document))
    return 1


def load(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return load


def pairs(query: str, key: Key) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in key.ignored_query:
            found.setdefault(name, []).append(value)
    return found


def weigh(request: Request, other: Request, key: Key) -> int | None:
    """How much the recorded request asks for; None: it does not match."""
    for name in ("method", "scheme", "host", "port", "path"):
        if getattr(key, name) and getattr(request, name) != getattr(other, name):
            return None
    weight = 0
    here, there = pairs(request.query, key), pairs(other.query, key)
    if key.query == "exact" and here != there:
        return None
    if key.query == "subset":
        weight = len(there)
        if any(here.get(name) != found for name, found in there.items()):
            return None
    if any(request.field(name) != other.field(name) for name in key.fields):
        return None
    one, two = load(request.body), load(other.body)
    raw = request.body == other.body
    if key.body == "raw" or (key.body != "ignore" and load in (one, two)):
        return weight if raw else None
    if key.body == "json" and not same(one, two):
        return None
    if key.body == "partial_json":
        if not contains(one, two):
            return None
        weight += values(two)
    return weight


def find(request: Request, recordings: list[Recording], key: Key) -> list[int]:
    """The numbers that match: those that ask for the most, then the oldest first."""
    found = []
    for one in recordings:
        weight = weigh(request, one.request, key)
        if weight is not None:
            found.append((-weight, one.number))
    return [number for _, number in sorted(found)]
