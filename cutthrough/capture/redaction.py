"""Removes secrets from heads and bodies before they are written (R59).

The values of credentials' fields go always, unless the configuration keeps them.
Fields, keys of URLs and forms, and paths in JSON go as configured. A body in which such
a value could not be found, because it is cut, encoded or malformed, goes as a whole.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote_plus

from cutthrough.capture.heads import Names
from cutthrough.capture.settings import Settings

CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "set-cookie",
               "x-api-key", "api-key", "x-auth-token", "x-goog-api-key",
               "x-amz-security-token")
REDACTED = "[redacted]"

# A key and its value in a URL, in a form, or in a text that contains URLs
_PAIR = re.compile(r"([?&;]|^)([^\s=&?;#\"'<>]{1,256})=([^\s&;#\"'<>]*)")
# Types of JSON; bodies of other types may have it too
_JSON = re.compile(r"[/+]json\b", re.I)


class Redactor:
    """Redacts by these settings."""

    def __init__(self, settings: Settings) -> None:
        names = {*settings.fields, *(() if settings.credentials else CREDENTIALS)}
        self.names = Names(names, f" {REDACTED}")
        self._keys = frozenset(settings.query)
        self._paths = [split_path(text) for text in settings.json]

    @property
    def reads_urls(self) -> bool:
        return bool(self._keys)

    @property
    def reads_bodies(self) -> bool:
        return bool(self._keys or self._paths)

    def head(self, text: str) -> str:
        """A head, start line included."""
        text = self.names.replace(text)
        return self.pairs(text) if self._keys else text

    def pairs(self, text: str) -> str:
        """Redacts the values of the configured keys in a text."""
        return _PAIR.sub(self._pair, text)

    def _pair(self, match: re.Match[str]) -> str:
        if unquote_plus(match[2]).lower() not in self._keys:
            return match[0]
        return f"{match[1]}{match[2]}={REDACTED}"

    def body(self, text: str, kind: str, whole: bool) -> str | None:
        """A body as text, of media type `kind`; None: it cannot be kept."""
        looks_so = text.lstrip()[:1] in ("{", "[")
        if self._paths and (looks_so or _JSON.search(kind)):
            try:
                found = json.loads(text) if whole else None
            except (ValueError, RecursionError):
                found = None
            if found is None:
                return None
            if redact(found, self._paths):
                text = json.dumps(found, ensure_ascii=False)
        if not self._keys:
            return text
        return None if kind.startswith("multipart/") else self.pairs(text)


def split_path(text: str) -> tuple[str, ...]:
    """The steps of `$.user.token`, `items.*.key` or `$..password`; `..` stands for any
    depth. The configuration has validated the text."""
    path = text.removeprefix("$")
    if not path.startswith("."):
        path = f".{path}"
    steps: list[str] = []
    for dots, name in re.findall(r"(\.{1,2})([^.]+)", path):
        steps += ["..", name] if dots == ".." else [name]
    return tuple(steps)


def redact(value: Any, paths: Iterable[Sequence[str]]) -> bool:
    """Replaces the values at these paths, in place. Returns whether there were any."""
    found = False
    for path in paths:
        found |= _redact(value, path)
    return found


def _redact(value: Any, path: Sequence[str]) -> bool:
    found = False
    if path[0] == "..":
        found = _redact(value, path[1:])
        for _, inner in _items(value):
            found |= _redact(inner, path)
        return found
    for key, inner in _items(value):
        if path[0] not in ("*", str(key)):
            continue
        if len(path) == 1:
            value[key] = REDACTED
            found = True
        else:
            found |= _redact(inner, path[1:])
    return found


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []
