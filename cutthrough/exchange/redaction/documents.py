"""Values at paths in JSON, replaced in its text; also in JSON that is a string of it.

Octets around such a value stay as they came. A path is `$.user.token`, `items.*.key` or
`$..password`; `..` stands for any depth.
"""

import json
import re
from collections.abc import Callable, Iterable

from cutthrough.exchange.json_values import MOST_STEPS, Paths, find_values

# Secrets, and strings with documents, in a body: to replace each takes some µs
MOST_VALUES = 4096
MOST_NESTED = 3                              # levels of strings with documents
# Octets of a value that is no string: read, so that equal values have equal stand-ins
MOST_READ = 16384


def split_path(text: str) -> tuple[str, ...]:
    """The steps of a path. The configuration has validated the text."""
    path = text.removeprefix("$")
    if not path.startswith("."):
        path = f".{path}"
    steps: list[str] = []
    for dots, name in re.findall(r"(\.{1,2})([^.]+)", path):
        steps += ["..", name] if dots == ".." else [name]
    return tuple(steps)


class Documents:
    """What stands in for each value at these paths is made by `mask`. Raises ValueError
    if a path has more than 64 steps."""

    def __init__(self, paths: Iterable[str], mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._groups: list[Paths] = []
        group: list[tuple[str, ...]] = []
        for path in map(split_path, paths):
            if sum(map(len, group)) + len(path) > MOST_STEPS:
                self._groups.append(Paths(tuple(group)))
                group = []
            group.append(path)
        if group:
            self._groups.append(Paths(tuple(group)))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def redact(self, data: bytes, level: int = 0) -> bytes:
        """One document or several, in UTF-8; the same object if no value is replaced.
        Raises ValueError if it is no JSON, or has more than MOST_VALUES such values."""
        for paths in self._groups:
            pieces: list[bytes] = []
            at = 0
            for begin, end, is_secret in find_values(data, paths, MOST_VALUES):
                old = data[begin:end]
                new = self._hide(old) if is_secret else self._inside(old, level)
                if new != old:
                    pieces += [data[at:begin], new]
                    at = end
            if pieces:
                data = b"".join([*pieces, data[at:]])
        return data

    def _hide(self, value: bytes) -> bytes:
        if len(value) > MOST_READ:
            text = value.decode("utf-8", "surrogateescape")
        else:
            read = json.loads(value.decode("utf-8", "surrogateescape"))
            text = read if isinstance(read, str) else json.dumps(read, sort_keys=True)
        stand_in = self._mask(text)
        if stand_in == text and value[:1] == b'"':       # it stands in already
            return value
        return json.dumps(stand_in, ensure_ascii=False).encode(
            "utf-8", "surrogateescape")

    def _inside(self, string: bytes, level: int) -> bytes:
        """A string of JSON that may have a document in it."""
        try:
            text = json.loads(string)
            inner = text.encode("utf-8", "surrogatepass")
            redacted = self.redact(inner, level + 1) if level < MOST_NESTED else None
        except ValueError:                   # it is another text
            return string
        if redacted is None:
            return json.dumps(self._mask(text)).encode()
        return string if redacted == inner else json.dumps(
            redacted.decode("utf-8", "surrogatepass")).encode()
