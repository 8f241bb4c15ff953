"""Targets of requests in one spelling, so that equal ones are equal texts.

Clients write an address in their own ways: `|` or `%7C`, `~` or `%7E`, `%c3` or `%C3`,
octets beyond ASCII as they are or as %XX. Files have addresses as people write them, in
Unicode (IRIs, RFC 3987).
"""

import re
from urllib.parse import quote, unquote

_PRINTABLE = "".join(map(chr, range(0x21, 0x7f)))
_UNRESERVED = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Of a path as RFC 3986 has it, and all others
_PATH = re.compile(r"[A-Za-z0-9/._~!$&'()*+,;=:@-]*+")
_ODD = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9/._~!$&'()*+,;=:@-]")
_BEYOND = re.compile(r"[^\x00-\x7f]")
_ESCAPED = re.compile("[\udc80-\udcff]")
# Go leaves these as they are in a path: url.URL.EscapedPath
_OF_GO = "$&+,/:;=@"


def spell_iri(text: str) -> str:
    """In ASCII, and without blanks. Raises UnicodeError for halves of characters."""
    return quote(text, _PRINTABLE)


def spell_octets(text: str) -> str:
    """Octets beyond ASCII, which a target has as Latin-1, as %XX."""
    return text if text.isascii() else _BEYOND.sub(_escape, text)


def spell_escaped(text: str) -> str:
    """Octets that Python has read as halves of characters (PEP 383), as %XX."""
    return text if text.isascii() else _ESCAPED.sub(
        lambda match: f"%{ord(match[0]) & 0xFF:02X}", text)


def spell_path(path: str) -> str:
    """Returns one spelling for all paths that mean the same (RFC 3986 section 6.2.2).
    """
    return path if _PATH.fullmatch(path) else _ODD.sub(_spell, path)


def _spell(match: re.Match[str]) -> str:
    text = match[0]
    if len(text) == 1:
        return _escape(match)
    char = chr(int(text[1:], 16))
    return char if char in _UNRESERVED else text.upper()


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return f"%{ord(char):02X}" if char <= "\xff" else quote(char, errors="replace")


def path_of_go(path: str) -> str:
    """As programs in Go have it: decoded, unless another spelling of the decoded path
    was sent (url.URL has it in RawPath then)."""
    if "%" not in path:
        return path
    decoded = unquote(path, errors="surrogateescape")
    again = quote(decoded, _OF_GO, errors="surrogateescape")
    return decoded if again == path else path
