"""Text of strangers for a terminal, a shell or another reader of text (R83).

Characters are escaped if a person would not see them, or if a terminal would obey them:
controls, C1, marks of direction, tags, variation selectors, fillers, odd spaces. The
reader gets the same octets.
"""

import re
import unicodedata
from typing import Any, Final, TextIO

# Drawn as nothing (Default_Ignorable_Code_Point), or as a blank
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]")
_PLAIN: Final = re.compile(r"[ -~]*")
_ESCAPES: Final = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0a: "\\n", 0x0b: "\\v",
                   0x0c: "\\f", 0x0d: "\\r", 0x1b: "\\e", 0x27: "\\'", 0x5c: "\\\\"}


def is_visible(character: str) -> bool:
    """Is it drawn, and as itself? A space is; another blank is not."""
    if " " <= character <= "~":
        return True
    kind = unicodedata.category(character)
    return kind[0] not in "CZ" and _UNSEEN.match(character) is None


def visible(text: str, kept: str = "\n\t") -> str:
    """A text to be read: invisible characters are `\\u{…}`, but for these."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        character if character in kept or is_visible(character)
        else f"\\u{{{ord(character):x}}}" for character in text)


class Shown:
    """A stream on which all texts are visible."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def shell_word(octets: bytes) -> str:
    """A word of bash, zsh or ksh for these octets, none of them NUL. It is on one line,
    with any octets."""
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and all(map(is_visible, text)):
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(
        _ESCAPES.get(octet) or (chr(octet) if 32 <= octet < 127 else f"\\x{octet:02x}")
        for octet in octets) + "'"
