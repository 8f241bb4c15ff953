"""Values at paths in JSON, replaced in its text; also in JSON that is a string of it.

Octets around such a value stay as they came. A path is `$.user.token`, `items.*.key` or
`$..password`; `..` stands for any depth.
"""

import json
import re
from collections.abc import Callable, Iterable

from cutthrough.exchange.json_values import MOST_STEPS, Paths, find_values
from cutthrough.exchange.redaction.members import Members

# Secrets, and strings with documents, in a body: to replace each takes some µs
MOST_VALUES = 4096
MOST_IN_LINE = 256                           # secrets in a part of a head: some 1 ms
MOST_NESTED = 3                              # levels of strings with documents
# Octets of a value that is no string: read, so that equal values have equal stand-ins
MOST_READ = 16384
_BEGIN = re.compile(r"[\ufeff\s\x1e]*+[\[{\"]")


def split_path(text: str) -> tuple[str, ...]:
    """The steps of a path. The configuration has validated the text."""
    path = text.removeprefix("$")
    if not path.startswith("."):
        path = f".{path}"
    steps: list[str] = []
    for dots, name in re.findall(r"(\.{1,2})([^.]+)", path):
        steps += ["..", name] if dots == ".." else [name]
    return tuple(steps)


class JsonRedactor:
    """Puts a stand-in, made by `mask`, in place of each value at these paths. Raises
    ValueError if a path has more than 64 steps."""

    def __init__(self, paths: Iterable[str], mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._groups: list[Paths] = []
        group: list[tuple[str, ...]] = []
        split = [split_path(path) for path in paths]
        names = set(map(_name_of, split))
        self._key = _key_of(names)
        self._members = Members(names, mask)
        for path in split:
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
        reads_texts = self._members.are_in_strings(data)
        for paths in self._groups:
            pieces: list[bytes] = []
            at = 0
            for begin, end, is_secret in find_values(
                    data, paths, MOST_VALUES, reads_texts):
                old = data[begin:end]
                new = self._hide(old) if is_secret else self._inside(old, level)
                if new != old:
                    pieces += [data[at:begin], new]
                    at = end
            if pieces:
                data = b"".join([*pieces, data[at:]])
        return self._members.redact(data, MOST_VALUES, of_json=False)

    def within(self, data: bytes) -> bytes:
        """A text in UTF-8 that is no document, and may have some in it; the same object
        if no value is replaced. Raises ValueError if it has more than MOST_VALUES."""
        return self._members.redact(data, MOST_VALUES)

    def in_line(self, data: bytes) -> bytes:
        """As `within`, of a part of a head: if it has too many values, it goes whole,
        and nothing is raised. A worker may wait for it."""
        line = data.removesuffix(b"\r")
        try:
            redacted = self._members.redact(line, MOST_IN_LINE)
        except ValueError:
            redacted = self._mask(line.decode("utf-8", "surrogateescape")).encode()
        return redacted + data[len(line):]

    def in_head(self, data: bytes) -> bytes:
        """Redacts each word of the start line, and each other line."""
        if not self._members.may_be_in(data):
            return data
        first, end, lines = data.partition(b"\n")
        return (b" ".join(map(self.in_line, first.split(b" "))) + end
                + b"\n".join(map(self.in_line, lines.split(b"\n"))))

    def _hide(self, value: bytes) -> bytes:
        if len(value) > MOST_READ:
            text = value.decode("utf-8", "surrogateescape")
        else:
            read = json.loads(value.decode("utf-8", "surrogateescape"), strict=False)
            text = read if isinstance(read, str) else json.dumps(read, sort_keys=True)
        stand_in = self._mask(text)
        if stand_in == text and value[:1] == b'"':       # it stands in already
            return value
        return json.dumps(stand_in, ensure_ascii=False).encode(
            "utf-8", "surrogateescape")

    def _inside(self, string: bytes, level: int) -> bytes:
        """A string of JSON that may have a document in it. Octets that are not UTF-8
        stay as they came. Raises ValueError if it is no such string."""
        errors = "surrogatepass"             # escapes of JSON may be half a character
        try:
            spelled = string.decode("utf-8", errors)
        except UnicodeDecodeError:
            errors = "surrogateescape"
            spelled = string.decode("utf-8", errors)
        text = json.loads(spelled, strict=False)
        inner = text.encode("utf-8", errors)
        try:
            if level >= MOST_NESTED:
                raise ValueError("too deep")
            if _BEGIN.match(text) is None:
                raise ValueError("another text, perhaps a word before a document")
            redacted = self.redact(inner, level + 1)
        except ValueError:                   # it is another text, or cut or malformed
            if level >= MOST_NESTED or self._key.match(text):
                return json.dumps(self._mask(text)).encode()
            redacted = self.within(inner)
        if redacted == inner:
            return string
        return json.dumps(
            redacted.decode("utf-8", errors), ensure_ascii=errors == "surrogatepass"
            ).encode("utf-8", "surrogateescape")


def _name_of(path: tuple[str, ...]) -> str:
    """The last key of a path; "": it has none."""
    return next((step for step in reversed(path)
                 if step not in ("..", "*") and not step.isdigit()), "")


def _key_of(names: set[str]) -> re.Pattern[str]:
    """Matches a cut or malformed document that has a key of these. One of a path
    without keys is in each."""
    names = names | {json.dumps(name)[1:-1] for name in names}
    spelled = "|".join(map(re.escape, sorted(names)))
    return re.compile(r"[\ufeff\s]*+[\[{].*?" + (
        '"' if "" in names else rf"(?:{spelled})\\{{0,99}}[\"']?\s*+:"), re.S)
