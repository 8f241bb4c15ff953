"""Parts of bodies to compare: forms, operations of GraphQL, groups of expressions.

If a body is not of the kind expected by a key, it is compared as bytes, and never
equals a body of this kind. Documents themselves, their paths and bounds:
exchange.documents.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.documents import (
    canonical,
    compile_path,
    flatten,
    read_json,
    remove,
    select,
    show_path,
    tidy,
)
from cutthrough.exchange.expressions import compile_expression
from cutthrough.recording.model.recording import Pairs, Request, split_pairs

__all__ = ["KeyMistake", "as_text", "canonical", "captured", "compile_finder",
           "compile_path", "compile_regex", "digest", "flatten", "read_form",
           "read_json", "read_operations", "remove", "select", "show_path", "tidy"]

_OPERATION = re.compile(r"\b(?:query|mutation|subscription)\s++([_A-Za-z]\w*)")
_BOUNDARY = re.compile(r'boundary="?([^";\s]{1,70})', re.I)


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def compile_regex(text: str) -> Callable[[str], Any]:
    """A search: returns a match or None, and may raise TooMuch. Raises KeyMistake."""
    return compile_expression(text).search


def compile_finder(text: str) -> Callable[[str], Iterator[Any]]:
    """All matches; they may raise TooMuch. Raises KeyMistake."""
    return compile_expression(text).finditer


def captured(body: bytes, pattern: str) -> tuple[str | None, ...] | None:
    """The groups of the first match, or the match if it has no group; None if there
    is no match. Raises KeyMistake and TooMuch."""
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
    An empty body of any type has no pairs, because the request is looked up without
    its fields."""
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
    Raises ValueError if there is no operation."""
    kind = request.field("content-type").partition(";")[0].strip().lower()
    if request.method == "GET":
        parameters = dict(split_pairs(request.query))
        for name in ("variables", "extensions"):
            if name in parameters:
                parameters[name] = read_json(parameters[name].encode())
        items: Any = [parameters]
    elif kind == "application/graphql" and request.body:
        items = [{"query": request.body.decode()}]
    else:
        document = read_json(request.body)
        items = document if isinstance(document, list) else [document]
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
