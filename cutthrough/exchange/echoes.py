"""Secrets of a request in its answer: an origin may repeat them (R59, R82).

They are searched for as octets: as they are, and as JSON, URLs and HTML spell them, and
with the zeros of UTF-16 between them. So they are not found if they are encoded further
(base64), nor in pieces.

Answers and secrets are hostile, so all searches of an exchange together have a bound:
what remains beyond it is removed as a whole.
"""

import base64
import binascii
import functools
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from urllib.parse import quote, quote_plus

from cutthrough.exchange.search import Words, has_any

# Octets of a secret; shorter ones are parts of other words
LEAST = 6
# Characters of a cookie's value, with a digit: shorter ones are words as "default" is
LEAST_COOKIE = 16
# Octets that memmem passes: some 0.2 s
MOST_WORK = 1 << 30
# In the same unit: a call, a stand-in that is put in, and an octet of a secret that is
# spelled in all ways
OF_CALL, OF_ECHO, OF_SPELLED = 128, 8192, 4096

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*[ \t]+(?=\S)")
# Other parameters (realm, uri, nonce) are no secrets, and answers repeat them
_PARAMETER = re.compile(
    r"(?:^|[\s,;])[\w-]{0,40}(?:token|key|secret|password|signature|assertion|mac|auth)"
    r"[ \t]{0,9}=[ \t]{0,9}(?:\"([^\"]+)\"|([^\s,;\"]+))", re.I)
# Characters that each spelling keeps
_PLAIN = re.compile(r"[A-Za-z0-9._~-]*")
_HEX = re.compile(r"%[0-9A-F]{2}")
# Octets that were no UTF-8 (PEP 383)
_OCTET = re.compile("[\udc80-\udcff]")
_STAND_IN = re.compile(rb"\[redacted(?::[0-9a-f]{16})?\]")
# Parts for each of which memmem passes the text; more are searched for together
MOST_APART = 8
# Parts that are compared with each other, so that none is a part of another
_MOST_COMPARED = 64


def secrets_of(name: str, value: str) -> Iterator[str]:
    """Yields the secrets of a credential's field, its name in lower case: the whole
    value, the part behind the scheme, parameters that are secrets (`Token token="…"`),
    the decoded part of Basic, and a cookie's value if it cannot be a word."""
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
    elif "=" in rest.rstrip("="):
        yield from (match[1] or match[2] for match in _PARAMETER.finditer(rest))


def secrets_in(head: str, names: Container[str]) -> Iterator[str]:
    """Yields the secrets in the fields of these names, in a head behind a first line.
    """
    for line in head.replace("\r", "").replace("\n ", " ").replace("\n\t", " ").split(
            "\n")[1:]:
        name, _, value = line.partition(":")
        if (kind := name.strip().lower()) in names:
            yield from secrets_of(kind, value.strip())


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


def octets_of(text: str) -> bytes:
    """UTF-8, or the octets that were none. Halves of characters are kept (JSON)."""
    if text.isascii():
        return text.encode()
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeError:
        return b"".join(character.encode(
            "utf-8", "surrogateescape" if _OCTET.match(character) else "surrogatepass")
            for character in text)


def readings(text: str) -> Iterator[str]:
    """The same octets in the charsets of another reader: a head is read as ISO-8859-1,
    whatever it is, and an answer may be in another charset than its request."""
    yield text
    if text.isascii():
        return
    if _OCTET.search(text):
        octets = octets_of(text)
        yield octets.decode("latin-1")
        yield octets.decode("cp1252", "replace")
    elif max(text) < "\u0100":
        yield text.encode("latin-1").decode("utf-8", "surrogateescape")


def spellings(text: str) -> Iterator[str]:
    yield text
    if _PLAIN.fullmatch(text):
        return
    for json_text in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        yield json_text[1:-1]
        yield json_text[1:-1].replace("/", r"\/")
    octets = octets_of(text)
    for quoted in (quote(octets, safe=""), quote(octets), quote_plus(octets)):
        yield quoted
        yield _HEX.sub(lambda match: match[0].lower(), quoted)
    import html  # 1 ms, which few workers need

    escaped = html.escape(text)
    yield escaped
    yield escaped.replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    if len(bare := text.rstrip("=")) >= LEAST:
        yield bare                           # base64 may come without its end


def parts_of(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """Returns, for each secret, a part that all its spellings have."""
    parts = {max(_PLAIN.findall(secret), key=len).encode() for secret in secrets}
    if len(parts) > _MOST_COMPARED:
        return tuple(parts)
    return tuple(part for part in parts if not any(
        other in part for other in parts if other != part))


class Work:
    """The searches of an exchange, in octets that memmem passes."""

    def __init__(self, most: int = MOST_WORK) -> None:
        self.left = most
        self._spelled = False

    def take(self, work: int) -> bool:
        """False: it is too much."""
        self.left -= work
        return self.left >= 0

    def spell(self, work: int) -> bool:
        """As `take`, but once: spellings are kept."""
        if self._spelled:
            return self.left >= 0
        self._spelled = True
        return self.take(work)


class Echoes:
    """The stand-in for each secret. `value` makes it; None: as many asterisks, because
    lengths must stay. Each search is a part of the Work of its exchange; None: it is
    alone."""

    def __init__(self, secrets: Iterable[str], value: Callable[[str], str] | None,
                 most_work: int = MOST_WORK) -> None:
        self._value, self._most_work = value, most_work
        self._secrets = [
            secret for secret in dict.fromkeys(secrets)
            if len(octets_of(secret)) >= LEAST
            and not _STAND_IN.fullmatch(octets_of(secret))]
        self.parts = parts_of(self._secrets)
        self._many: dict[bool, Words] = {}   # the parts, and whether in UTF-16
        self._spelling = 0 if value is None else OF_SPELLED * sum(
            len(secret) for secret in self._secrets if not _PLAIN.fullmatch(secret))

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def work(self) -> Work:
        """For the searches of an exchange."""
        return Work(self._most_work)

    @functools.cached_property
    def _stand_ins(self) -> dict[bytes, bytes]:
        """The replacement of each spelling."""
        stand_ins: dict[bytes, bytes] = {}
        for secret in self._secrets:
            stand_in = None if self._value is None else self._value(secret).encode()
            for text in (text for reading in readings(secret)
                         for text in spellings(reading)):
                for octets in _encoded(text):
                    stand_ins.setdefault(
                        octets, b"*" * len(octets) if stand_in is None else stand_in)
        return stand_ins

    @functools.cached_property
    def _words(self) -> Words:
        return Words(self._stand_ins)

    @functools.cached_property
    def _wide(self) -> tuple[bytes, ...]:
        """The parts in UTF-16 and UTF-32, without the zeros around them."""
        return tuple(zeros.join(part[i:i + 1] for i in range(len(part)))
                     for part in self.parts for zeros in (b"\0", b"\0\0\0"))

    def _may_have(self, data: bytes, work: Work, *, wide: bool = False) -> bool:
        """Yes, too, if to look would be too much work."""
        parts = self._wide if wide else self.parts
        if len(parts) <= MOST_APART:
            return not work.take(len(parts) * (len(data) + OF_CALL)) or has_any(
                parts, data)
        words = self._many.get(wide)
        if words is None:
            words = self._many[wide] = Words(parts)
        begin, _, taken = words.find(data, 0, work.left)
        return not work.take(taken + OF_CALL) or begin != -1 or b"" in parts

    def has(self, data: bytes) -> bool:
        """Yes, too, if to look would be too much work."""
        places = self.places(data, self.work())
        return places is None or places != []

    def has_wide(self, data: bytes, work: Work | None = None) -> bool:
        """Is one there in UTF-16 or UTF-32? It cannot be cut out. Yes, too, if to look
        would be too much work."""
        if b"\0" not in data:
            return False
        work = work or self.work()
        if not self._may_have(data, work, wide=True):
            return False
        places = self.places(data.replace(b"\0", b""), work)
        return places is None or places != []

    def places(self, data: bytes, work: Work) -> list[tuple[int, int, bytes]] | None:
        """Begin and end of each that is there, and the stand-in; None: it is too much
        work."""
        if not self._may_have(data, work):
            return []
        if not work.spell(self._spelling):
            return None
        places: list[tuple[int, int, bytes]] = []
        begin, end, at, done = -1, -1, 0, _STAND_IN.search(data)
        while True:
            if begin < at:
                begin, end, taken = self._words.find(data, at, work.left)
                if not work.take(taken + OF_CALL):
                    return None
                if begin < 0:
                    return places
            # A secret may be a part of the stand-in for others
            if done is not None and done.start() <= begin:
                at = done.end()
                done = _STAND_IN.search(data, at)
            else:
                places.append((begin, end, self._stand_ins[data[begin:end]]))
                at = end
                if done is not None and done.start() < at:
                    done = _STAND_IN.search(data, at)
            if not work.take(OF_ECHO):
                return None

    def cut_within(self, data: bytes, work: Work) -> bytes | None:
        """The same object if none is there; None: it is too much work."""
        places = self.places(data, work)
        if not places:
            return data if places is not None else None
        pieces, at = [], 0
        for begin, end, stand_in in places:
            pieces += [data[at:begin], stand_in]
            at = end
        return b"".join([*pieces, data[at:]])

    def cut(self, data: bytes, work: Work | None = None) -> bytes:
        """Returns the same object if it has no secret. Data that would take too much
        work is cut whole."""
        result = self.cut_within(data, work or self.work())
        return self._whole(data) if result is None else result

    def _whole(self, data: bytes) -> bytes:
        return b"*" * len(data) if self._value is None else (
            self._value(data.decode("latin-1")).encode())

    def begun(self, data: bytes, work: Work | None = None) -> int:
        """Number of octets at the end, if they may be the start of a secret. All of
        them, if to look would be too much work."""
        work = work or self.work()
        if not work.spell(self._spelling):
            return len(data)
        most, taken = self._words.begun(data, work.left)
        return most if work.take(taken + OF_CALL) else len(data)

    def text(self, text: str, work: Work | None = None) -> str:
        """Returns the text of a head without echoes."""
        try:
            data, charset = text.encode("latin-1"), "latin-1"
        except UnicodeError:
            data, charset = text.encode(errors="surrogatepass"), "utf-8"
        result = self.cut(data, work)
        return text if result is data else result.decode(charset, "replace")


def _encoded(text: str) -> Iterator[bytes]:
    yield octets_of(text)
    if not text.isascii() and max(text) < "\u0100":
        yield text.encode("latin-1")
