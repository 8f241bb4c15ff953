"""Documents of JSON and GraphQL in forms that can be compared, and their bounds.

Two documents of JSON are equal if their values are: the order of keys, white space and
the spelling of numbers do not count, and true is not 1. Values and depth are counted
before a text is parsed, because a parsed document takes up to 90 times its text (R63).
Work on documents takes time that is linear in their values (R67).
"""

import functools
import json
import re
from typing import Any

import msgspec

from cutthrough.exchange.bounds import Steps, TooMuch
from cutthrough.exchange.jsonpath import Path
from cutthrough.exchange.jsonpath_nodes import Part, is_same
from cutthrough.exchange.scan import count_parsed, count_values

# Values and keys of a document, and how deep they lie: parsed in some 6 ms
MOST_VALUES, MOST_DEPTH = 100_000, 128
# Values and keys of a file that is imported: as many, and one in so many bytes.
# Archives of short fields have a value in 5 bytes
MOST_FILE_VALUES, BYTES_A_VALUE, MOST_FILE_DEPTH = 1 << 20, 4, 500
# Values of a document that are compared one by one; a larger one is compared whole
MOST_PARTS = 10_000

Place = tuple[Part, ...]

# Section 2.1 of GraphQL's specification. Each alternative takes all that it has looked
# at, so a text is read once; a string without an end is one up to there
_BLANK = re.compile(r'"""(?:[^"\\]++|\\"""|\\|"(?!""))*+(?:"""|\Z)|'
                    r'"(?:[^"\\\n\r]++|\\[^\n\r])*+"?|'
                    r"(?:#[^\n\r]*+|[\s,\ufeff]++)++")
_WORD = re.compile(r"\w+")


def _number(text: str) -> int | float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return int(value) if value.is_integer() else value


_DECODER = msgspec.json.Decoder(float_hook=_number)
_ENCODE = msgspec.json.Encoder(order="deterministic").encode


def read_json(text: bytes, most_values: int = MOST_VALUES) -> Any:
    """The document. Raises ValueError if it is none, and TooMuch."""
    # Most are short, and have few brackets: no scan, which takes 25 us for 4.6 KB
    count = 0 if len(text) <= most_values and (
        text.count(b"[") + text.count(b"{") <= MOST_DEPTH) else count_values(
            text, most_values, MOST_DEPTH)
    if count < 0:
        raise TooMuch(f"has more than {most_values} values" if count == -1 else
                      f"is more than {MOST_DEPTH} deep")
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def read_file(text: bytes, *, constants: bool = False) -> Any:
    """The document of a file that is imported. It becomes no more than some 20 times
    its length, or 100 MB (R70). Halves of characters are read, which
    msgspec refuses. `constants`: NaN and Infinity, which Python writes, are read as
    null. Raises ValueError, TooMuch and RecursionError."""
    encoding = json.detect_encoding(text)    # one of UTF-8, UTF-16 and UTF-32
    if encoding != "utf-8":
        text = text.decode(encoding, "surrogatepass").encode(errors="surrogatepass")
    most = max(MOST_FILE_VALUES, len(text) // BYTES_A_VALUE)
    if count_values(text, most, MOST_FILE_DEPTH) < 0:
        raise TooMuch(f"has more than {most} values, which is too many for its length, "
                      f"or is more than {MOST_FILE_DEPTH} deep")
    return json.loads(text, parse_constant=_null if constants else _refuse_constant)


def _null(name: str) -> None:
    """Reads NaN and Infinity as null."""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def canonical(value: Any) -> str:
    """One spelling of each value. Raises ValueError."""
    try:
        return _ENCODE(value).decode()
    except (OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def flatten(value: Any, *, whole: bool) -> dict[Place, str]:
    """The values of a document by their places. A list has its length too, so that
    lists of one length are compared value by value; an object is only named if it is
    empty, or with `whole`. Raises ValueError."""
    parts: dict[Place, str] = {}

    def add(at: Place, value: Any) -> None:
        if len(parts) >= MOST_PARTS:
            raise TooMuch(f"has more than {MOST_PARTS} values")
        if isinstance(value, dict):
            if whole or not value:
                parts[at] = "{}"
            for key, inner in value.items():
                add((*at, key), inner)
        elif isinstance(value, list):
            parts[at] = f"[{len(value)}]"
            for number, inner in enumerate(value):
                add((*at, number), inner)
        else:
            parts[at] = canonical(value)

    try:
        add((), value)
    except RecursionError:
        raise TooMuch("is too deep") from None
    return parts


def show_path(place: Place) -> str:
    """As JSONPath: $.messages[0].content."""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" if _WORD.fullmatch(part)
        else f"[{part!r}]" for part in place)


@functools.lru_cache(256)
def compile_path(text: str) -> Path:
    """A JSONPath (RFC 9535). Raises KeyMistake."""
    return Path(text)


def select(document: Any, path: str) -> list[Any]:
    """The values at a JSONPath, in order. Raises KeyMistake and TooMuch."""
    return [node.value for node in compile_path(path).find(document)]


def remove(document: Any, path: str) -> None:
    """Removes the values at a JSONPath, in place; the document itself stays. Raises
    KeyMistake and TooMuch."""
    holders: dict[int, tuple[Any, set[Part]]] = {}
    for node in compile_path(path).find(document):
        if node.parent is not None:
            holder = node.parent.value
            holders.setdefault(id(holder), (holder, set()))[1].add(node.key)
    for holder, keys in holders.values():
        if isinstance(holder, list):
            holder[:] = [value for at, value in enumerate(holder) if at not in keys]
        else:
            for key in keys:
                del holder[key]


def contains(document: Any, wanted: Any) -> bool:
    """Whether `wanted` is anywhere in the document, as hoverfly has it: of an object
    its keys, and of a list its values in any order. Raises TooMuch."""
    steps = Steps(count_parsed(document) + count_parsed(wanted))
    left = [document]
    while left:
        value = left.pop()
        if _is_in(wanted, value, steps):
            return True
        left += (value.values() if isinstance(value, dict) else
                 value if isinstance(value, list) else ())
    return False


def _is_in(wanted: Any, value: Any, steps: Steps) -> bool:
    steps.take()
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            key in value and _is_in(inner, value[key], steps)
            for key, inner in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and _are_in(wanted, value, steps)
    return not isinstance(value, dict | list) and is_same(wanted, value, steps)


def _are_in(wanted: list[Any], values: list[Any], steps: Steps) -> bool:
    """Each search begins behind the last match, because most are in order."""
    at = 0
    for element in wanted:
        for tried in range(len(values)):
            here = (at + tried) % len(values)
            if _is_in(element, values[here], steps):
                at = here + 1
                break
        else:
            return False
    return True


def tidy(document: str) -> str:
    """A document of GraphQL without its parts of no meaning: comments, commas, and
    white space beyond one blank."""
    return _BLANK.sub(
        lambda match: match[0] if match[0][0] == '"' else " ", document).strip()
