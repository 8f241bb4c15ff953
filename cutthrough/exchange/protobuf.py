"""Messages of protobuf without their definition: fields by number and wire type.

https://protobuf.dev/programming-guides/encoding/ has the format. A length-delimited
field is shown as text if it can be read as text, else as a message if it is one, else
in hex, which is a guess. Depth and number of fields are bounded.
"""

import struct

MOST_FIELDS, MOST_DEPTH = 10_000, 20
# Characters of a text, and bytes in hex, of one field
MOST_TEXT, MOST_BYTES = 4000, 64


class Malformed(ValueError):
    """The data is not in the expected form, with the reason."""


def show_message(data: bytes) -> list[str]:
    """One line for each field; inner messages are indented. Raises Malformed."""
    return _Reader(data).message(0, len(data), 0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields = 0

    def message(self, at: int, end: int, depth: int) -> list[str]:
        if depth > MOST_DEPTH:
            raise Malformed(f"it is more than {MOST_DEPTH} deep")
        lines: list[str] = []
        groups: list[int] = []
        while at < end:
            key, at = self._varint(at, end)
            number, wire = key >> 3, key & 7
            self._fields += 1
            if not 1 <= number < 1 << 29:
                raise Malformed(f"{number} is no field's number")
            if self._fields > MOST_FIELDS or len(groups) > MOST_DEPTH:
                raise Malformed("it has too many fields")
            pad = "  " * (depth + len(groups))
            match wire:
                case 0:
                    value, at = self._varint(at, end)
                    lines.append(f"{pad}{number}: {value}")
                case 1 | 5:
                    size = 8 if wire == 1 else 4
                    piece = self._piece(at, at + size, end)
                    at += size
                    (real,) = struct.unpack("<d" if wire == 1 else "<f", piece)
                    lines.append(f"{pad}{number}: {int.from_bytes(piece, 'little')} "
                                 f"(or {real:.9g})")
                case 2:
                    size, at = self._varint(at, end)
                    self._piece(at, at + size, end)
                    lines += self._inner(at, at + size, depth + len(groups), number)
                    at += size
                case 3:                      # groups, which are deprecated
                    lines.append(f"{pad}{number} {{")
                    groups.append(number)
                case 4 if groups and groups[-1] == number:
                    groups.pop()
                    lines.append(f"{pad[2:]}}}")
                case _:
                    raise Malformed(f"field {number} has wire type {wire}")
        if groups:
            raise Malformed("a group has no end")
        return lines

    def _inner(self, begin: int, end: int, depth: int, number: int) -> list[str]:
        pad = "  " * depth
        piece = self._data[begin:end]
        text = as_text(piece)
        if text is not None and text.isprintable():
            return [f"{pad}{number}: {quote(text)}"]
        try:
            inner = self.message(begin, end, depth + 1)
            return [f"{pad}{number} {{", *inner, f"{pad}}}"]
        except Malformed:
            if self._fields > MOST_FIELDS:
                raise                        # tries in vain count, too
        if text is not None:
            return [f"{pad}{number}: {quote(text)}"]
        shown = piece[:MOST_BYTES].hex(" ")
        more = f" and {len(piece) - MOST_BYTES} more" if len(piece) > MOST_BYTES else ""
        return [f"{pad}{number}: bytes {shown}{more}"]

    def _piece(self, begin: int, last: int, end: int) -> bytes:
        if last > end:
            raise Malformed("it ends within a field")
        return self._data[begin:last]

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            if byte < 0x80:
                return value & (1 << 64) - 1, at
            shift += 7
        raise Malformed("a number has no end")


def as_text(data: bytes) -> str | None:
    """The text, if it is UTF-8 without control characters other than white space."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    is_readable = all(character.isprintable() or character in "\r\n\t"
                      for character in text)
    return text if is_readable else None


def quote(text: str) -> str:
    shown = text[:MOST_TEXT].replace("\\", "\\\\").replace("\r", "\\r").replace(
        "\n", "\\n").replace("\t", "\\t").replace('"', '\\"')
    return f'"{shown}"' + (" …" if len(text) > MOST_TEXT else "")
