"""Requests of GraphQL as lines for a person: each operation with its name, its document
indented, and its variables.

    {"query": "query Item($id: ID!) { item(id: $id) { name } }",
     "operationName": "Item", "variables": {"id": 7}}

Also a list of such requests, one whose document the server knows by its hash, and a
body that is a document alone (application/graphql). A document is not parsed but
indented, token by token: nothing of it is repaired or left out but white space. Source:
GraphQL's specification of October 2021, section 2; "GraphQL over HTTP", section 5.
"""

import re
from collections.abc import Iterator

import msgspec

from cutthrough.capture.indented import indent_json

MEDIA = re.compile(r"application/graphql$", re.I)
# Characters of a body that is looked at, and operations of a list that are shown
MOST_BODY, MOST_OPERATIONS = 1 << 20, 100
MOST_INDENT = 60                             # levels

# Words of a body that may be such a request, before it is parsed
_HINTS = ('"query"', '"persistedQuery"')
_DOCUMENT = re.compile(r"(?:\s|#[^\n]*+\n|,)*+"
                       r"(?:\{|(?:query|mutation|subscription|fragment)\b)")
_OPERATION = re.compile(r"\b(query|mutation|subscription)\b\s*+([_A-Za-z]\w*+)?")
_TOKEN = re.compile(r'''
    (?P<text>"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?|"(?:[^"\\\n]|\\.)*+"?)
  | (?P<comment>\#[^\n]*+)
  | (?P<spread>\.\.\.)
  | (?P<word>[\w$@.+-]++)
  | (?P<mark>[^\s\w])
''', re.X | re.S)


# Values stay text: nothing but the names of a request is parsed, and numbers are shown
# as they came
Table = dict[str, msgspec.Raw]
_BODY = msgspec.json.Decoder(Table | list[Table])
_TABLE, _TEXT = msgspec.json.Decoder(Table), msgspec.json.Decoder(str)


def read_requests(text: str, kind: str = "") -> list[Table]:
    """The requests in a body; [] if it is none of GraphQL. `kind`: the media type."""
    if len(text) > MOST_BODY:
        return []
    if MEDIA.search(kind):
        return [{"query": msgspec.Raw(msgspec.json.encode(text))}]
    if not any(hint in text for hint in _HINTS):
        return []
    try:
        body = _BODY.decode(text)
        requests = body if isinstance(body, list) else [body]
        return requests if requests and all(map(is_request, requests)) else []
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def is_request(request: Table) -> bool:
    """Raises DecodeError if it is none."""
    if "query" in request:
        return _DOCUMENT.match(_TEXT.decode(request["query"])) is not None
    extensions = _TABLE.decode(request["extensions"]) if (
        "extensions" in request) else {}
    return "persistedQuery" in extensions and (
        _TABLE.decode(extensions["persistedQuery"]) != {})


def show_graphql(text: str, kind: str = "") -> Iterator[str]:
    requests = read_requests(text, kind)
    if not requests:
        yield "(is no request of GraphQL)"
        yield from text.splitlines()
        return
    for number, request in enumerate(requests[:MOST_OPERATIONS]):
        if len(requests) > 1:
            yield f"# request {number + 1} of {len(requests)}"
        yield f"# {title(request)}"
        if "query" in request:
            yield from indent_document(_TEXT.decode(request["query"]))
        for name, value in request.items():
            if name not in ("query", "operationName"):
                yield f"# {name}"
                yield from indent_json(bytes(value).decode())
    if len(requests) > MOST_OPERATIONS:
        yield f"(more are not shown: {len(requests) - MOST_OPERATIONS})"


def title(request: Table) -> str:
    """Returns a title of the operation: its kind and its name."""
    query = _TEXT.decode(request["query"]) if "query" in request else ""
    operations = _OPERATION.findall(query)
    try:
        name = _TEXT.decode(request["operationName"])
    except (KeyError, msgspec.DecodeError):  # absent, or null
        name = ""
    if name:
        kind = next((kind for kind, other in operations if other == name), "operation")
        return f"{kind} {name}"
    if not query:
        return "a document that the server knows by its hash"
    kind, other = operations[0] if operations else ("query", "")
    return f"{kind} {other}" if other else f"{kind} without a name"


def indent_document(text: str) -> Iterator[str]:
    """Each selection is a line."""
    line, before, again = "", "", ""         # the last two tokens
    depth = parens = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith('"""') and "\n" in token:
            if line:
                yield pad(depth) + line
            yield from (pad(depth) + part.strip() for part in token.splitlines())
            line = ""
        elif match.lastgroup == "comment":
            if line:
                yield pad(depth) + line
            yield pad(depth) + token
            line = ""
        elif parens == 0 and token == "{":
            yield pad(depth) + f"{line} {{".lstrip()
            line, depth = "", depth + 1
        elif parens == 0 and token == "}":
            if line:
                yield pad(depth) + line
            depth = max(0, depth - 1)
            yield pad(depth) + "}"
            line = ""
        else:
            if parens == 0 and line and begins(token, before, again, depth):
                yield pad(depth) + line
                line = ""
            line += f" {token}" if line and is_apart(token, before) else token
            parens += (token in ("(", "[")) - (token in (")", "]") and parens > 0)
        again, before = before, token
    if line:
        yield pad(depth) + line


def begins(token: str, before: str, again: str, depth: int) -> bool:
    """Whether a selection begins with a token, outside of brackets."""
    if not depth or before in (":", "...", "=", "|", "&") or (
            before == "on" and again == "..."):
        return False
    return token == "..." or (token[0] not in "@$" and (
        token[0].isalnum() or token[0] == "_"))


def is_apart(token: str, before: str) -> bool:
    """Whether there is a blank between two tokens of a line."""
    if token in (":", ",", ")", "]", "!", "(") or before in ("(", "[", "..."):
        return before == "..." and token == "on"
    return True


def pad(depth: int) -> str:
    return "  " * min(depth, MOST_INDENT)
