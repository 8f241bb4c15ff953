"""Text of strangers for a terminal, a shell or another reader of text (R83).

Characters are escaped if a person would not see them, or if a terminal would obey them:
controls, C1, marks of direction, tags, variation selectors, fillers, odd spaces. The
reader gets the same octets.
"""

import os
import re
import unicodedata
from typing import Any, Final, TextIO

# Drawn as nothing (Default_Ignorable_Code_Point), or as a blank
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]")
_PLAIN: Final = re.compile(r"[ -~]*")
_FORMATS: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\", "%": "%%"}
_IN_FORMATS: Final = "\\%'!"


def is_visible(character: str) -> bool:
    """Is it drawn, and as itself? A space is; another blank is not."""
    if " " <= character <= "~":
        return True
    kind = unicodedata.category(character)
    return kind[0] not in "CZ" and _UNSEEN.match(character) is None


def visible(text: str, exceptions: str = "\n\t") -> str:
    """A text to be read: invisible characters are `\\u{…}`, but for these."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        character if character in exceptions or is_visible(character)
        else f"\\u{{{ord(character):x}}}" for character in text)


class Shown:
    """A stream on which all texts are visible."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def paint(self, text: str, code: str) -> None:
        """Writes a text, on a terminal in the colour of this SGR code, unless NO_COLOR
        (no-color.org) says that it should not."""
        if self._stream.isatty() and not os.environ.get("NO_COLOR") and (
                os.environ.get("TERM", "dumb") != "dumb"):
            self._stream.write(f"\x1b[{code}m{visible(text)}\x1b[0m")
        else:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def shell_word(octets: bytes) -> str:
    """A word of a POSIX shell for these octets: no NUL, and no line end at the end. It
    is on one line."""
    if (text := _all_visible(octets)) is not None:
        return "'" + text.replace("'", "'\\''") + "'"
    return f'"$(printf {shell_format(octets)})"'


def shell_format(octets: bytes) -> str:
    """The argument of a POSIX shell's `printf` that prints these octets, on one line.

    dash has no $'…'. A mark of history (`!`) counts between double quotes."""
    try:
        text, errors = octets.decode(), "strict"
    except UnicodeDecodeError:
        text, errors = octets.decode("ascii", "surrogateescape"), "surrogateescape"
    pieces = (
        character if is_visible(character) and character not in _IN_FORMATS else
        _FORMATS.get(character) or "".join(
            f"\\{octet:03o}" for octet in character.encode(errors=errors))
        for character in text)
    layout = "".join(pieces)
    return "'" + (f"\\055{layout[1:]}" if layout.startswith("-") else layout) + "'"


def _all_visible(octets: bytes) -> str | None:
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return None
    return text if all(map(is_visible, text)) else None
