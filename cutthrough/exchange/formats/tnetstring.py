"""Typed netstrings, the format of mitmproxy's dumps: `LENGTH:DATA` and a tag.

    5:hello,   bytes       5:hello;   text (mitmproxy's own tag)    0:~  null
    2:42#      integer     3:1.5^     float                         4:true!
    8:1:a,1:b,]            list       8:1:k,1:v,}                   dictionary

https://tnetstrings.info describes it. A dump is a sequence of dictionaries. The input
is hostile: an item, its depth and the number of its values are bounded, and ambiguous
data (a leading zero, a key twice) is refused.
"""

import re
from typing import Any, Protocol

# Bytes of one item, values in it, and how deep they lie: a flow has some 150, 5 deep
MOST_BYTES, MOST_VALUES, MOST_DEPTH = 64 << 20, 200_000, 16
# Digits of a length: below 10 GB
_MOST_DIGITS = 10

_LENGTH = re.compile(rb"(0|[1-9][0-9]{0,9}):")
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_FLOAT = re.compile(rb"-?[0-9]{1,20}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?")


class Readable(Protocol):
    """A file, or a pipe: fewer than `size` bytes are its end."""

    def read(self, size: int, /) -> bytes: ...


class TnetstringError(ValueError):
    """The data is no typed netstring, or beyond a bound."""


def begins_with_item(front: bytes) -> bool:
    """`front`: a file's first twelve bytes."""
    return _LENGTH.match(front) is not None


def read_item(file: Readable) -> Any:
    """The next item of a file; EOFError: there is none. An item beyond MOST_BYTES is
    skipped and given as None. Raises TnetstringError."""
    head = file.read(1)
    if not head:
        raise EOFError
    while not head.endswith(b":"):
        byte = file.read(1)
        if not byte or len(head) > _MOST_DIGITS:
            raise TnetstringError("has no length")
        head += byte
    if _LENGTH.fullmatch(head) is None:
        raise TnetstringError("has no length")
    size = int(head[:-1])
    if size > MOST_BYTES:
        skip(file, size + 1)
        return None
    data = file.read(size + 1)
    if len(data) <= size:
        raise TnetstringError("ends within an item")
    return _Reader(data).value(0, size, data[size], 0)


def skip(file: Readable, size: int) -> None:
    """Reads over `size` bytes: the file may be a pipe."""
    while size > 0:
        data = file.read(min(size, 1 << 20))
        if not data:
            raise TnetstringError("ends within an item")
        size -= len(data)


def parse(data: bytes) -> Any:
    """The one item in `data`. Raises TnetstringError."""
    reader = _Reader(data)
    value, end = reader.item(0, len(data), 0)
    if end != len(data):
        raise TnetstringError(f"has {len(data) - end} bytes behind its end")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._values = 0

    def item(self, at: int, end: int, depth: int) -> tuple[Any, int]:
        """The value that begins at `at`, and the start of the next one."""
        match = _LENGTH.match(self._data, at, end)
        if match is None:
            raise TnetstringError(f"has no length at byte {at}")
        begin = match.end()
        last = begin + int(match[1])
        if last >= end:
            raise TnetstringError(f"ends within the item at byte {at}")
        return self.value(begin, last, self._data[last], depth), last + 1

    def value(self, begin: int, end: int, tag: int, depth: int) -> Any:
        self._values += 1
        if self._values > MOST_VALUES:
            raise TnetstringError(f"has more than {MOST_VALUES} values")
        match chr(tag):
            case "]":
                return self._list(begin, end, depth + 1)
            case "}":
                return self._dictionary(begin, end, depth + 1)
        data = self._data[begin:end]
        try:
            return _scalar(chr(tag), data)
        except ValueError:
            raise TnetstringError(
                f"has {data[:20]!r} with tag {chr(tag)!r} at byte {begin}") from None

    def _list(self, at: int, end: int, depth: int) -> list[Any]:
        if depth > MOST_DEPTH:
            raise TnetstringError(f"is more than {MOST_DEPTH} deep")
        values = []
        while at < end:
            value, at = self.item(at, end, depth)
            values.append(value)
        return values

    def _dictionary(self, at: int, end: int, depth: int) -> dict[str, Any]:
        items = self._list(at, end, depth)
        table: dict[str, Any] = {}
        if len(items) % 2:
            raise TnetstringError(f"has a key without a value at byte {end}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if isinstance(key, bytes):       # of programs for Python 2
                key = key.decode("latin-1")
            if not isinstance(key, str) or key in table:
                raise TnetstringError(f"has a key twice, or one of bytes: {key!r:.40}")
            table[key] = value
        return table


def _scalar(tag: str, data: bytes) -> Any:
    """Raises ValueError."""
    match tag:
        case ",":
            return data
        case ";":
            return data.decode()
        case "#" if _INTEGER.fullmatch(data):
            return int(data)
        case "^" if _FLOAT.fullmatch(data):
            return float(data)
        case "!" if data in (b"true", b"false"):
            return data == b"true"
        case "~" if not data:
            return None
    raise ValueError
