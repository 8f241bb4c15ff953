"""A template's tools for values: its filters, tests, functions and operators.

All are ours. None makes a text that is longer than its input by more than a factor, and
none takes a number as the size of its result (R68). What Jinja2 has under the same
names is the same but for these bounds.
"""

import html
import json
import math
import re
import secrets
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import IPv4Address, IPv6Address
from string import ascii_letters
from typing import Any
from urllib.parse import quote

# Digits of `round`; characters of a format, and of those that are trimmed
MOST_DIGITS, MOST_FORMAT, MOST_TRIMMED = 15, 100, 16
# Characters of a random text
MOST_RANDOM = 1000

_NAMED = {"": "%Y-%m-%dT%H:%M:%SZ", "iso": "%Y-%m-%dT%H:%M:%SZ"}
# No width: `%9999999Y` is one
_FORMAT = re.compile(r"(?:[^%]|%-?[A-Za-z%])*+")
_WORDS = re.compile(r"([-\s({\[<]+)")
_IN_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&'"}


class TemplateMistake(ValueError):
    """A template that cannot be used, or not for this request, with the reason."""


class Undefined:
    """An absent value. It can be asked for and replaced, and nothing else."""

    __slots__ = ("name",)

    def __init__(self, name: object) -> None:
        self.name = str(name)[:100]


def need(value: Any) -> Any:
    """The same. Raises TemplateMistake if it is absent."""
    if isinstance(value, Undefined):
        raise TemplateMistake(f"there is no {value.name!r}")
    return value


def look_up(holder: Any, key: Any) -> Any:
    """Returns the item of a table, a list or a text; Undefined if there is none."""
    need(holder), need(key)
    if isinstance(holder, dict):
        if isinstance(key, str) and key in holder:
            return holder[key]
    elif isinstance(holder, list | str) and isinstance(key, int) and (
            -len(holder) <= key < len(holder)):
        return holder[key]
    return Undefined(key)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise TemplateMistake("that is for numbers")
    return value


# --- filters -----------------------------------------------------------------------

def _default(value: Any, other: Any = "", boolean: Any = False) -> Any:
    return other if isinstance(value, Undefined) or (boolean and not value) else value


def _first(value: Any) -> Any:
    return next(iter(value), Undefined("first"))


def _last(value: Any) -> Any:
    return look_up([*value], -1) if isinstance(value, dict) else look_up(value, -1)


def _float(value: Any, default: Any = 0.0) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _int(value: Any, default: Any = 0) -> Any:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        try:
            return int(float(value))
        except (TypeError, ValueError, OverflowError):
            return default


def _round(value: Any, precision: Any = 0, method: Any = "common") -> Any:
    if not isinstance(precision, int) or abs(precision) > MOST_DIGITS:
        raise TemplateMistake(f"round() has at most {MOST_DIGITS} digits")
    if method == "common":
        return round(float(number(value)), precision)
    if method not in ("ceil", "floor"):
        raise TemplateMistake("round() is common, ceil or floor")
    factor = 10.0 ** precision
    return getattr(math, method)(float(number(value)) * factor) / factor


def _title(value: Any) -> str:
    return "".join([word[:1].upper() + word[1:].lower()
                    for word in _WORDS.split(str(value)) if word])


def _trim(value: Any, characters: Any = None) -> str:
    if characters is not None and len(str(characters)) > MOST_TRIMMED:
        raise TemplateMistake(f"trim() takes at most {MOST_TRIMMED} characters")
    return str(value).strip(characters)


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True).translate(_IN_HTML)


def _url_encode(value: Any) -> str:
    if not isinstance(value, dict):
        return quote(str(value), safe="/", errors="replace")
    return "&".join([
        "=".join([quote(str(text), safe="", errors="replace").replace("%20", "+")
                  for text in pair]) for pair in value.items()])


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(number(value)), "default": _default, "d": _default,
    "escape": lambda value: html.escape(str(value)), "first": _first, "float": _float,
    "int": _int, "last": _last, "length": len,
    "lower": lambda value: str(value).lower(),
    "round": _round, "title": _title, "tojson": _to_json, "trim": _trim,
    "upper": lambda value: str(value).upper(), "urlencode": _url_encode}
# Of these alone a value may be absent
OF_ABSENT = {"default", "d", "defined", "undefined"}


# --- tests and operators -----------------------------------------------------------

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda left, right: bool(left == right),
    "ne": lambda left, right: bool(left != right),
    "lt": lambda left, right: bool(left < right),
    "lteq": lambda left, right: bool(left <= right),
    "gt": lambda left, right: bool(left > right),
    "gteq": lambda left, right: bool(left >= right),
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right}

TESTS: dict[str, Callable[..., bool]] = {
    "defined": lambda value: not isinstance(value, Undefined),
    "undefined": lambda value: isinstance(value, Undefined),
    "divisibleby": lambda value, by: number(value) % number(by) == 0,
    "even": lambda value: number(value) % 2 == 0,
    "odd": lambda value: number(value) % 2 == 1,
    "none": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float),
    "string": lambda value: isinstance(value, str),
    "le": OPERATORS["lteq"], "ge": OPERATORS["gteq"],
    **{name: OPERATORS[name] for name in ("eq", "ne", "lt", "gt", "in")}}


# --- functions ---------------------------------------------------------------------

def _now(form: str = "", *, days: float = 0, hours: float = 0, minutes: float = 0,
         seconds: float = 0) -> str:
    at = datetime.now(UTC) + timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds)
    if form == "http":
        return format_datetime(at, usegmt=True)
    if form in ("unix", "unix_ms"):
        return str(int(at.timestamp() * (1000 if form == "unix_ms" else 1)))
    if len(form) > MOST_FORMAT or _FORMAT.fullmatch(form) is None:
        raise TemplateMistake(
            f"a format is longer than {MOST_FORMAT} characters, or has a width")
    return at.strftime(_NAMED.get(form, form))


def _uuid() -> str:
    return str(uuid.uuid4())


def _random_int(low: int, high: int) -> int:
    return low + secrets.randbelow(high - low + 1)


def _random_float(low: float, high: float) -> float:
    return low + (high - low) * secrets.randbelow(1 << 53) / (1 << 53)


def _random_text(length: int) -> str:
    if not 0 <= length <= MOST_RANDOM:
        raise TemplateMistake(f"random_text() has at most {MOST_RANDOM} characters")
    return "".join([secrets.choice(ascii_letters) for _ in range(length)])


def _random_email() -> str:
    return f"{_random_text(8)}@{_random_text(8)}.example".lower()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "now": _now, "uuid": _uuid, "random_int": _random_int,
    "random_float": _random_float, "random_text": _random_text,
    "random_boolean": lambda: secrets.choice(("true", "false")),
    "random_email": _random_email,
    "random_ipv4": lambda: str(IPv4Address(secrets.randbits(32))),
    "random_ipv6": lambda: str(IPv6Address(secrets.randbits(128)))}
