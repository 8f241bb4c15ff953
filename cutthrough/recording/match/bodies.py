"""A request's body, by its type: forms, operations of GraphQL, and content codings.

If a body is not of the kind expected by a key, it is compared as bytes, and never
equals a body of this kind.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cutthrough.codings import CodingError
from cutthrough.exchange.content import inflate
from cutthrough.exchange.documents import canonical, read_json, tidy
from cutthrough.exchange.redaction.parts import MOST_PARTS, read_parts
from cutthrough.recording.model.recording import Pairs, Request, split_pairs

_OPERATION = re.compile(r"\b(?:query|mutation|subscription)\s++([_A-Za-z]\w*)")
_BOUNDARY = re.compile(r'boundary="?([^";\s]{1,70})', re.I)


def plain(request: Request) -> Request:
    """Without a Content-Encoding; the same if it has none. Raises ValueError if it
    cannot be undone."""
    coding = request.field("content-encoding").lower() if request.body else ""
    if coding in ("", "identity"):
        return request
    try:
        body = inflate(request.body, coding)
    except CodingError:
        raise ValueError("its coding cannot be undone") from None
    return msgspec.structs.replace(request, body=body, fields=tuple(
        pair for pair in request.fields if pair[0].lower() != "content-encoding"))


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


def read_parts_of(request: Request, ignored: frozenset[str]) -> bytes:
    """The fields of a multipart body but for these. Raises ValueError."""
    body, kind = request.body, request.field("content-type")
    parts = read_parts(body, kind, iter(range(MOST_PARTS)))
    pieces = [body[part.head:part.end] for part in parts
              if ignored.isdisjoint(part.names)]
    return b"".join(b"%d:%b" % (len(piece), piece) for piece in pieces)


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
