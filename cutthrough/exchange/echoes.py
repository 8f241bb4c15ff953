"""Secrets of a request in its answer: an origin may repeat them (R59, R82).

They are searched for as octets: as they are, and as JSON, URLs and HTML spell them, and
with the zeros of UTF-16 between them. So they are not found if they are encoded further
(base64), nor in pieces.
"""

import base64
import binascii
import functools
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote, quote_plus

from cutthrough.exchange.search import has_any

# Octets of a secret; shorter ones are parts of other words
LEAST = 6
# Characters of a cookie's value, with a digit: shorter ones are words as "default" is
LEAST_COOKIE = 16
# Octets of an answer times the number of secrets: some 0.3 s
MOST_WORK = 1 << 30

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*[ \t]+(?=\S)")
# Characters that each spelling keeps
_PLAIN = re.compile(r"[A-Za-z0-9._~-]*")
_HEX = re.compile(r"%[0-9A-F]{2}")
_STAND_IN = rb"\[redacted(?::[0-9a-f]{16})?\]"
# Parts that are compared with each other, so that none is a part of another
_MOST_COMPARED = 64


def secrets_of(name: str, value: str) -> Iterator[str]:
    """Of a credential's field, its name in lower case: all of it, the part behind the
    scheme, the decoded part of Basic, and a cookie's value if it cannot be a word."""
    yield value
    if name == "cookie":
        for pair in value.split(";"):
            text = pair.partition("=")[2].strip(' \t"')
            if len(text) >= LEAST_COOKIE and any(map(str.isdigit, text)):
                yield text
        return
    scheme = _SCHEME.match(value)
    if scheme is None:
        return
    rest = value[scheme.end():].strip()
    yield rest
    if scheme[0].strip().lower() == "basic":
        yield from _of_basic(rest)


def _of_basic(text: str) -> Iterator[str]:
    """The name alone is no secret, unless it is a token without a password."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return
    try:
        pair = data.decode()
    except UnicodeError:
        pair = data.decode("latin-1")
    yield pair
    user, _, password = pair.partition(":")
    yield password
    if len(password) < LEAST or password == "x-oauth-basic":
        yield user


def spellings(text: str) -> Iterator[str]:
    yield text
    if _PLAIN.fullmatch(text):
        return
    for json_text in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        yield json_text[1:-1]
        yield json_text[1:-1].replace("/", r"\/")
    for quoted in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield quoted
        yield _HEX.sub(lambda match: match[0].lower(), quoted)
    escaped = html.escape(text)
    yield escaped
    yield escaped.replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    yield text.rstrip("=")                   # base64 may come without its end


def parts_of(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """Of each secret a part that all its spellings have."""
    parts = {max(_PLAIN.findall(secret), key=len).encode() for secret in secrets}
    if len(parts) > _MOST_COMPARED:
        return tuple(parts)
    return tuple(part for part in parts if not any(
        other in part for other in parts if other != part))


class Echoes:
    """The stand-in for each secret. `value` makes it; None: as many asterisks, because
    lengths must stay."""

    def __init__(self, secrets: Iterable[str], value: Callable[[str], str] | None
                 ) -> None:
        self._value = value
        self._secrets = [
            secret for secret in dict.fromkeys(secrets)
            if len(secret.encode(errors="surrogatepass")) >= LEAST
            and not re.fullmatch(_STAND_IN.decode(), secret)]
        self.parts = parts_of(self._secrets)

    @functools.cached_property
    def _stand_ins(self) -> dict[bytes, bytes]:
        """The replacement of each spelling."""
        stand_ins: dict[bytes, bytes] = {}
        for secret in self._secrets:
            stand_in = None if self._value is None else self._value(secret).encode()
            for text in spellings(secret):
                for charset in ("utf-8", "latin-1"):
                    try:
                        octets = text.encode(charset)
                    except UnicodeError:
                        continue
                    stand_ins.setdefault(
                        octets, b"*" * len(octets) if stand_in is None else stand_in)
        return stand_ins

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def has(self, data: bytes) -> bool:
        return has_any(self.parts, data) and (
            len(data) * len(self._stand_ins) > MOST_WORK or any(
                spelling in data for spelling in self._stand_ins))

    @functools.cached_property
    def _wide(self) -> tuple[bytes, ...]:
        """The parts in UTF-16 and UTF-32, without the zeros around them."""
        return tuple(zeros.join(part[i:i + 1] for i in range(len(part)))
                     for part in self.parts for zeros in (b"\0", b"\0\0\0"))

    def has_wide(self, data: bytes) -> bool:
        """Is one there in UTF-16 or UTF-32? It cannot be cut out."""
        return b"\0" in data and has_any(self._wide, data) and self.has(
            data.replace(b"\0", b""))

    def cut(self, data: bytes) -> bytes:
        """The same object if none is there. A text that is too long goes as a whole."""
        if not has_any(self.parts, data):
            return data
        if len(data) * len(self._stand_ins) > MOST_WORK:
            return b"*" * len(data) if self._value is None else (
                self._value(data.decode("latin-1")).encode())
        pieces = [data[begin:end] if stand_in is None else stand_in
                  for begin, end, stand_in in self._pieces(data)]
        return b"".join(pieces) if len(pieces) > 1 or pieces[:1] != [data] else data

    def _pieces(self, data: bytes) -> Iterator[tuple[int, int, bytes | None]]:
        """Begin, end, and the stand-in; None: it stays."""
        here = [spelling for spelling in self._stand_ins if spelling in data]
        at = 0
        if here:
            here.sort(key=len, reverse=True)
            # A secret may be a part of the stand-in for others
            for match in re.finditer(b"|".join((_STAND_IN, *map(re.escape, here))),
                                     data):
                stand_in = self._stand_ins.get(match[0])
                if stand_in is not None:
                    yield at, match.start(), None
                    yield *match.span(), stand_in
                    at = match.end()
        yield at, len(data), None

    def begun(self, data: bytes) -> int:
        """Number of octets at the end, if they may be the begin of a secret."""
        most = 0
        for spelling in self._stand_ins:
            tail = data[max(0, len(data) - len(spelling) + 1):]
            at = tail.find(spelling[:1])
            while at >= 0:
                if spelling.startswith(tail[at:]):
                    most = max(most, len(tail) - at)
                    break
                at = tail.find(spelling[:1], at + 1)
        return most

    def text(self, text: str) -> str:
        """Of a head."""
        try:
            data, charset = text.encode("latin-1"), "latin-1"
        except UnicodeError:
            data, charset = text.encode(errors="surrogatepass"), "utf-8"
        result = self.cut(data)
        return text if result is data else result.decode(charset, "replace")
