"""JSON as lines for a person. It is not parsed but indented, token by token, because
numbers, repeated keys and a cut end must be shown as they came."""

import re
from collections.abc import Iterator

MOST_INDENT = 100                            # levels

_JSON = re.compile(r'\s*("(?:[^"\\]|\\.)*"?|[][{},:]|[^\s][^\s\][{},:"]*)', re.S)


def indent_json(text: str) -> Iterator[str]:
    """Yields the lines of JSON, indented. If there are several values, one after
    another, each begins a line."""
    depth = 0
    line = ""
    opened = ended = False                   # the last token opened or ended a value
    for match in _JSON.finditer(text):
        token = match[1]
        if token in ("}", "]"):
            depth = max(0, depth - 1)
            if not opened:
                yield line
                line = indent(depth)
            line += token
            opened, ended = False, True
            continue
        if opened or (ended and token not in (",", ":")):
            yield line
            line = indent(depth)
        opened, ended = token in ("{", "["), token not in ("{", "[", ",", ":")
        depth += opened
        line += ": " if token == ":" else token
        if token == ",":
            yield line
            line = indent(depth)
    if line.strip():
        yield line


def indent(depth: int) -> str:
    return "  " * min(depth, MOST_INDENT)
