"""Bodies in forms that can be compared: JSON, forms, GraphQL; and regular expressions.

Two documents of JSON are equal if their values are: the order of keys, white space and
the spelling of numbers do not count, and true is not 1. A body that is not what a key
expects is compared as bytes, and never equals one that is.

JSONPath and RE2 come from the extra `recording`. Without RE2, which is linear in the
text, Python's `re` searches at most MOST_SEARCHED characters.
"""

import functools
import hashlib
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from cutthrough.recording.model import Pairs, Request, split_pairs

MOST_SEARCHED = 64 << 10
# Values of a document that are compared one by one; a larger one is compared whole
MOST_PARTS = 10_000

Part = str | int
Path = tuple[Part, ...]

_BLANK = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|'
                    r'(?:#[^\n\r]*|[\s,]+)+')
_OPERATION = re.compile(r"\b(?:query|mutation|subscription)\s+([_A-Za-z]\w*)")
_BOUNDARY = re.compile(r'boundary="?([^";\s]{1,70})', re.I)


class KeyMistake(ValueError):
    """A key that cannot be used, with the reason."""


def _number(text: str) -> int | float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return int(value) if value.is_integer() else value


_DECODER = msgspec.json.Decoder(float_hook=_number)
_ENCODE = msgspec.json.Encoder(order="deterministic").encode


def read_json(body: bytes) -> Any:
    """The document. Raises ValueError if it is none."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def canonical(value: Any) -> str:
    """One spelling of each value. Raises ValueError."""
    try:
        return _ENCODE(value).decode()
    except (OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def flatten(value: Any, *, whole: bool) -> dict[Path, str]:
    """The values of a document by their paths. A list has its length too, so that lists
    of one length are compared value by value; an object is only named if it is empty,
    or with `whole`. Raises ValueError."""
    found: dict[Path, str] = {}

    def add(at: Path, value: Any) -> None:
        if len(found) >= MOST_PARTS:
            raise ValueError(f"has more than {MOST_PARTS} values")
        if isinstance(value, dict):
            if whole or not value:
                found[at] = "{}"
            for key, inner in value.items():
                add((*at, key), inner)
        elif isinstance(value, list):
            found[at] = f"[{len(value)}]"
            for number, inner in enumerate(value):
                add((*at, number), inner)
        else:
            found[at] = canonical(value)

    try:
        add((), value)
    except RecursionError:
        raise ValueError("is too deep") from None
    return found


def show_path(path: Path) -> str:
    """As JSONPath: $.messages[0].content."""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" if re.fullmatch(
            r"\w+", part) else f"[{part!r}]" for part in path)


@functools.lru_cache(256)
def compile_path(text: str) -> Any:
    """A JSONPath (RFC 9535). Raises KeyMistake."""
    try:
        library = importlib.import_module("jsonpath")
    except ImportError:
        raise KeyMistake("JSONPath needs python-jsonpath: pip install "
                         "'cutthrough[recording]'") from None
    try:
        return library.compile(text)
    except library.JSONPathError as error:
        raise KeyMistake(f"{text!r} is no JSONPath: {error}") from None


def select(document: Any, path: str) -> list[Any]:
    """The values at a JSONPath, in order; none if its filter cannot be evaluated."""
    try:
        return list(compile_path(path).findall(document))
    except KeyMistake:
        raise
    except Exception:                        # the library's, which depend on the value
        return []


def remove(document: Any, path: str) -> None:
    """Removes the values at a JSONPath, in place; the document itself stays."""
    places = [match.parts for match in compile_path(path).finditer(document)]
    # From the back, so that the places in a list stay what they are
    for parts in sorted((p for p in places if p), key=_backwards, reverse=True):
        holder = document
        for part in parts[:-1]:
            holder = holder[part]
        if isinstance(holder, list) or parts[-1] in holder:
            del holder[parts[-1]]


def _backwards(parts: tuple[Part, ...]) -> list[tuple[int, int, str]]:
    return [(1, part, "") if isinstance(part, int) else (0, 0, part) for part in parts]


def compile_any(text: str) -> tuple[Any, bool]:
    """The expression, and whether it is linear in the text. Raises KeyMistake."""
    library: Any = re
    try:
        library = importlib.import_module("re2")
    except ImportError:
        pass
    try:
        return library.compile(text), library is not re
    except library.error as error:
        raise KeyMistake(f"{text!r} is no regular expression: {error}") from None


@functools.lru_cache(256)
def compile_regex(text: str) -> Callable[[str], Any]:
    """A search that returns a match or None. Raises KeyMistake."""
    found, linear = compile_any(text)
    if linear:
        return lambda subject: found.search(subject)
    return lambda subject: found.search(subject[:MOST_SEARCHED])


@functools.lru_cache(256)
def compile_finder(text: str) -> Callable[[str], Iterator[Any]]:
    """All matches; ValueError if the text is too long for all. Raises KeyMistake."""
    found, linear = compile_any(text)

    def find(subject: str) -> Iterator[Any]:
        if len(subject) > MOST_SEARCHED and not linear:
            raise ValueError(f"has more than {MOST_SEARCHED} characters")
        return iter(found.finditer(subject))

    return find


def captured(body: bytes, pattern: str) -> tuple[str | None, ...] | None:
    """The groups of the first match, or the match if it has none; None: no match."""
    match = compile_regex(pattern)(body.decode(errors="replace"))
    if match is None:
        return None
    return tuple(match.groups()) or (match.group(),)


def as_text(pairs: Pairs) -> str:
    """Pairs sorted by key; the order of the values of one key stays."""
    return "&".join(f"{quote(key, safe='')}={quote(value, safe='')}"
                    for key, value in sorted(pairs, key=lambda pair: pair[0]))


def read_form(request: Request) -> bytes | Pairs:
    """The pairs of a form; of a multipart body its bytes, with one boundary for all.
    An empty body has no pairs, whatever its type: it is asked without its fields."""
    kind = request.field("content-type") if request.body else ""
    if kind.lower().startswith("multipart/"):
        match = _BOUNDARY.search(kind)
        if match is None:
            return request.body
        return request.body.replace(match[1].encode("latin-1", "replace"), b"boundary")
    return split_pairs(request.body.decode("latin-1"))


def read_operations(request: Request) -> list[tuple[str, str, str]]:
    """GraphQL over HTTP, by GET or POST, single or in a batch: name, variables and
    document of each operation; of a persisted one the hash in place of the document.
    Raises ValueError if there is none."""
    kind = request.field("content-type").partition(";")[0].strip().lower()
    if request.method == "GET":
        given = dict(split_pairs(request.query))
        for name in ("variables", "extensions"):
            if name in given:
                given[name] = read_json(given[name].encode())
        items: Any = [given]
    elif kind == "application/graphql" and request.body:
        items = [{"query": request.body.decode()}]
    else:
        found = read_json(request.body)
        items = found if isinstance(found, list) else [found]
    return list(_operations(items))


def _operations(items: list[Any]) -> Iterator[tuple[str, str, str]]:
    if not items:
        raise ValueError("has no operation")
    for item in items:
        if not isinstance(item, dict):
            raise ValueError("an operation is no object")
        text, extensions = item.get("query"), item.get("extensions")
        if isinstance(text, str):
            document = tidy(text)
        elif isinstance(extensions, dict) and "persistedQuery" in extensions:
            text, document = "", canonical(extensions["persistedQuery"])
        else:
            raise ValueError("an operation has no document")
        name = item.get("operationName")
        if not isinstance(name, str):
            match = _OPERATION.search(document)
            name = match[1] if match else ""
        yield name, canonical(item.get("variables") or {}), document


def tidy(document: str) -> str:
    """A document of GraphQL without what means nothing in it: comments, commas, and
    white space beyond one blank (section 2.1 of its specification)."""
    return _BLANK.sub(
        lambda match: match[0] if match[0][0] == '"' else " ", document).strip()
