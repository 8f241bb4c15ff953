"""The slow, obvious twin: HTTP/1.1 as RFC 9110 and RFC 9112 write it down.

Written from the grammar, one rule a function, without a look at how the wire room does
it; tests/wire/test_twin.py and the fuzz targets hold the two against each other. Where
we are stricter than the RFC the rule stands here in words, so that this file is also
the list of what we refuse although the RFC would let it pass.

Every reader answers None for "more bytes, please", a refusal's label, or what it read.
"""

import re
import socket
from typing import NamedTuple

TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789"
                  b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGIT = frozenset(b"0123456789")
HEXDIG = frozenset(b"0123456789abcdefABCDEF")
# field-vchar, SP, HTAB, obs-text: all but the controls (RFC 9110 section 5.5).
VALUE = frozenset(range(256)) - frozenset(range(32)) - {127} | {9}
# RFC 3986 has fewer; browsers send the rest raw in queries, and all but these three are
# in some client's habit. None of them can end a request line.
TARGET = frozenset(range(33, 127)) - frozenset(b'"<>')

MOST_FIELDS = 128
MOST_NAME = 0xFFFF
MOST_CHUNK_DIGITS = 15
MOST_CHUNK_LINE = 4096
MOST_CHUNK_EXCESS = 16384
MOST_TRAILERS = 8192
LONGEST_BODY = 2**63 - 1

# RFC 9110 section 6.5.1: fields that frame, route or authenticate are no trailers.
NOT_IN_TRAILERS = frozenset((
    b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive",
    b"proxy-connection", b"te", b"trailer", b"upgrade", b"via", b"proxy-authorization",
    b"proxy-authenticate", b"proxy-authentication-info", b"authorization", b"expect",
    b"max-forwards"))


class Head(NamedTuple):
    """A head: (method, target) or (status, reason) is its `first`."""

    first: tuple[bytes, bytes] | tuple[int, bytes]
    minor: int
    fields: list[tuple[bytes, bytes]]
    length: int

    def values(self, *names: bytes) -> list[bytes]:
        return [value for name, value in self.fields if name.lower() in names]

    def members(self, *names: bytes) -> list[bytes]:
        """Of the comma list that all fields of these names make (section 5.6.1.2)."""
        found = b",".join(self.values(*names)).split(b",")
        return [member.strip(b" \t") for member in found if member.strip(b" \t")]


class Framing(NamedTuple):
    kind: str                       # none, length, chunked, until-close
    length: int
    persistent: bool


class Target(NamedTuple):
    form: str                       # origin, absolute, authority, asterisk
    host: str
    kind: str                       # name, ipv4, ipv6
    port: int
    path: bytes


class More(Exception):
    """The bytes end before the rule does."""


class Refused(Exception):
    """The byte at hand must not stand here; its argument is the label."""


class Text:
    """Bytes read one by one.

    `limits`: what has not ended so many bytes in is refused by that label, the nearer
    limit first. `last`: the byte at this offset is one too many.
    """

    def __init__(self, data: bytes, bad: str) -> None:
        self.data, self.bad = data, bad
        self.limits: list[tuple[int, str]] = []
        self.last = -1
        self.at = 0

    def peek(self) -> int:
        passed = [pair for pair in reversed(self.limits) if self.at >= pair[0]]
        if passed:
            raise Refused(min(passed, key=lambda pair: pair[0])[1])
        if self.at >= len(self.data):
            raise More
        if self.at == self.last:
            raise Refused(self.bad)
        return self.data[self.at]

    def one(self, allowed: frozenset[int] | bytes) -> int:
        octet = self.peek()
        if octet not in allowed:
            raise Refused(self.bad)
        self.at += 1
        return octet

    def all_of(self, allowed: frozenset[int] | bytes) -> bytes:
        start = self.at
        while self.peek() in allowed:
            self.at += 1
        return self.data[start:self.at]

    def exactly(self, text: bytes) -> None:
        for octet in text:
            self.one(bytes([octet]))

    def at_most(self, n: int, allowed: frozenset[int]) -> bytes:
        """Like all_of; the first octet above so many is refused."""
        start = self.at
        while self.peek() in allowed:
            self.at += 1
            if self.at - start > n:
                raise Refused(self.bad)
        return self.data[start:self.at]

    def some_of(self, allowed: frozenset[int]) -> bytes:
        first = self.one(allowed)
        return bytes([first]) + self.all_of(allowed)

    def skip(self, n: int) -> None:
        for _ in range(n):
            self.peek()
            self.at += 1


def answer(rule, *args):
    """What the rule reads, or why not."""
    try:
        return rule(*args)
    except More:
        return None
    except Refused as refusal:
        return refusal.args[0]


# --- heads: RFC 9112 sections 2.1, 3, 4 and 5 ----------------------------------------


def read_request(data: bytes, line_bytes: int = 8192, head_bytes: int = 16384,
                 n_fields: int = MOST_FIELDS) -> Head | str | None:
    text = Text(data, "bad_request")
    text.limits.append((head_bytes, "head_too_large"))
    return answer(request, text, line_bytes, n_fields)


def read_response(data: bytes, line_bytes: int = 8192, head_bytes: int = 16384,
                  n_fields: int = MOST_FIELDS) -> Head | str | None:
    text = Text(data, "bad_response")
    text.limits.append((head_bytes, "response_head_too_large"))
    return answer(response, text, line_bytes, n_fields)


def request(text: Text, line_bytes: int, n_fields: int) -> Head:
    if text.peek() == 13:           # section 2.2: one empty line before it is ignored
        text.exactly(b"\r\n")
    text.limits.append((text.at + line_bytes + 2, "uri_too_long"))
    method = text.some_of(TOKEN)
    text.exactly(b" ")
    target = text.some_of(TARGET)
    text.exactly(b" HTTP/")
    major = text.one(DIGIT)
    text.exactly(b".")
    minor = text.one(DIGIT)
    text.exactly(b"\r\n")
    if major != ord("1") or minor not in b"01":
        raise Refused("unsupported_version")
    text.limits.pop()
    fields = field_lines(text, n_fields, "head_too_large")
    return Head((method, target), minor - ord("0"), fields, text.at)


def response(text: Text, line_bytes: int, n_fields: int) -> Head:
    text.limits.append((line_bytes + 2, "response_head_too_large"))
    text.exactly(b"HTTP/")
    major = text.one(DIGIT)
    text.exactly(b".")
    minor = text.one(DIGIT)
    if major != ord("1") or minor not in b"01":
        raise Refused(text.bad)
    text.exactly(b" ")
    status = int(bytes(text.one(DIGIT) for _ in range(3)))
    if status < 100:
        raise Refused(text.bad)
    reason = b""
    if text.peek() != 13:           # the SP before no reason is often left out
        text.exactly(b" ")
        reason = text.all_of(VALUE)
    text.exactly(b"\r\n")
    text.limits.pop()
    fields = field_lines(text, n_fields, "response_head_too_large")
    return Head((status, reason), minor - ord("0"), fields, text.at)


def field_lines(text: Text, n_fields: int, too_many: str) -> list[tuple[bytes, bytes]]:
    """*( field-name ":" OWS field-value OWS CRLF ) CRLF; never folded (section 5.2)."""
    fields: list[tuple[bytes, bytes]] = []
    while text.peek() != 13:
        if len(fields) == min(n_fields, MOST_FIELDS):
            raise Refused(too_many)
        name = text.some_of(TOKEN)
        if text.peek() == ord(":") and len(name) > MOST_NAME:
            raise Refused(too_many)
        text.exactly(b":")
        fields.append((name, text.all_of(VALUE).strip(b" \t")))
        text.exactly(b"\r\n")
    text.exactly(b"\r\n")
    return fields


# --- how long the body is: RFC 9112 section 6.3 ---------------------------------------


def read_request_framing(head: Head) -> Framing | str:
    kind = length_fields(head)
    if isinstance(kind, str):
        return kind
    if head.first[0] in (b"CONNECT", b"TRACE") and kind[0] != "none":
        return "bad_framing"        # RFC 9110 sections 9.3.6 and 9.3.8: without content
    return Framing(*kind, persists(head))


def read_response_framing(head: Head, method: bytes) -> Framing | str:
    status = head.first[0]
    persistent = persists(head)
    if method == b"CONNECT" and 200 <= status < 300:
        return Framing("none", 0, persistent)
    kind = length_fields(head)
    if isinstance(kind, str):
        return "bad_response_framing"
    if status < 200 or status == 204:
        # RFC 9112 section 6.1 and RFC 9110 section 8.6 forbid both fields here. We let
        # a zero length pass, which says the same; any other says something else.
        if kind[0] != "none":
            return "bad_response_framing"
        return Framing("none", 0, persistent)
    if status == 304 or method == b"HEAD":
        return Framing("none", 0, persistent)
    if not head.values(b"content-length", b"transfer-encoding"):
        return Framing("until-close", 0, False)
    return Framing(*kind, persistent)


def length_fields(head: Head) -> tuple[str, int] | str:
    lengths = head.values(b"content-length")
    codings = head.values(b"transfer-encoding")
    if codings:
        # HTTP/1.0 has no transfer codings; two kinds of length are two readings.
        if head.minor == 0 or lengths:
            return "bad_framing"
        if len(codings) == 1 and codings[0].lower() == b"chunked":
            return "chunked", 0
        names = [name.lower() for name in head.members(b"transfer-encoding")]
        if (all(is_token(name) for name in names) and len(names) > 1
                and names.count(b"chunked") == 1 and names[-1] == b"chunked"):
            return "unsupported_coding"
        return "bad_framing"        # a "chunked" in an odd dress, too: ", chunked"
    if not lengths:
        return "none", 0
    # Not even two equal ones, although section 6.3 would let us: the next reader may
    # not. At most 19 digits: what has more is either too large or oddly dressed.
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,19}", lengths[0]):
        return "bad_framing"
    length = int(lengths[0])
    if length > LONGEST_BODY:
        return "bad_framing"
    return ("length" if length else "none"), length


def is_token(text: bytes) -> bool:
    return text != b"" and all(octet in TOKEN for octet in text)


def persists(head: Head) -> bool:
    """Section 9.3; a 1.0 peer's keep-alive is not honoured by a proxy."""
    said = [one.lower() for one in head.members(b"connection", b"proxy-connection")]
    return head.minor == 1 and b"close" not in said


# --- chunks: RFC 9112 section 7.1 -----------------------------------------------------


class Chunked(NamedTuple):
    data: bytes
    frame: bytes                    # what goes on: the same without extensions
    bare: bytes                     # and without trailers too
    length: int


def passes_trailers(head: Head) -> bool:
    """RFC 9110 section 7.6.1: not those that Connection names. If it names any that
    could be there, we drop them all."""
    named = {one.lower() for one in head.members(b"connection", b"proxy-connection")}
    return not named - {b"close"} - NOT_IN_TRAILERS


def read_chunks(data: bytes) -> Chunked | str | None:
    return answer(chunked_body, Text(data, "bad_framing"))


def chunked_body(text: Text) -> Chunked:
    content = frame = b""
    size, excess = -1, 0
    while size:
        line = text.at
        digits = chunk_size(text)
        size = int(digits, 16)
        # The framing must not be much more than the data, over the whole message.
        excess = max(0, excess + length_of(text.data[line:text.at]) - 16 - 2 * size)
        if excess > MOST_CHUNK_EXCESS:
            raise Refused(text.bad)
        frame += digits + b"\r\n"
        if size:
            text.skip(size)
            content += text.data[text.at - size:text.at]
            frame += text.data[text.at - size:text.at] + b"\r\n"
            text.exactly(b"\r\n")
    start = text.at
    trailer_section(text)
    return Chunked(content, frame + text.data[start:text.at], frame + b"\r\n", text.at)


def length_of(line: bytes) -> int:
    """Of a size line, the ";" not counted."""
    return len(line) - (b";" in line)


def chunk_size(text: Text) -> bytes:
    """1*HEXDIG [ ";" anything ] CRLF; no white space before the ";", which is BWS."""
    digits = text.at_most(MOST_CHUNK_DIGITS, HEXDIG)
    if not digits:
        raise Refused(text.bad)
    if text.peek() == ord(";"):
        text.exactly(b";")
        text.at_most(MOST_CHUNK_LINE - len(digits), VALUE)
    text.exactly(b"\r\n")
    return digits


def trailer_section(text: Text) -> None:
    text.last = text.at + MOST_TRAILERS
    while text.peek() != 13:
        name = text.some_of(TOKEN)
        if text.peek() == ord(":") and name.lower() in NOT_IN_TRAILERS:
            raise Refused(text.bad)
        text.exactly(b":")
        text.all_of(VALUE)
        text.exactly(b"\r\n")
    text.exactly(b"\r")
    text.last = -1                  # the last LF is not counted
    text.exactly(b"\n")


# --- targets: RFC 9112 section 3.2, RFC 3986 section 3.2 ------------------------------


def read_target(head: Head) -> Target | str:
    method, target = head.first
    hosts = head.values(b"host")
    if len(hosts) > 1 or (not hosts and head.minor == 1):
        return "bad_request"        # section 3.2: exactly one; HTTP/1.0 may have none
    if b"#" in target:
        return "bad_target"         # RFC 9110 section 7.1: a fragment is not sent
    if target == b"*" and method == b"OPTIONS" and not hosts:
        return "bad_target"         # HTTP/1.0, and nothing says of which server
    host = read_authority(hosts[0], 80) if hosts else ("", "name", 80)
    absolute = re.fullmatch(rb"(?i:http)://([^/?]*)(.*)", target)
    if method == b"CONNECT":
        form, place, path = "authority", read_authority(target), b""
    elif absolute:
        form, place, path = "absolute", read_authority(absolute[1], 80), absolute[2]
    elif target[:1] == b"/" or (target == b"*" and method == b"OPTIONS"):
        form, place = "origin" if target[:1] == b"/" else "asterisk", host
        path = target
    else:
        return "bad_target"         # another scheme, or no form at all
    if form in ("authority", "absolute") and place is None:
        return "bad_target"
    # The target wins (section 3.2.2), but what it overrides must be readable too.
    if host is None:
        return "bad_request"
    return Target(form, *place, path)


def read_authority(text: bytes, port: int = 0) -> tuple[str, str, int] | None:
    """uri-host [ ":" port ] without userinfo, as (host, kind, port)."""
    found = re.fullmatch(rb"(\[[^]]*\]|[^:]*)(?::([0-9]{1,5}))?", text, re.S)
    if not found or not (found[2] or port):
        return None
    host = read_host(found[1])
    port = int(found[2] or port)
    return (*host, port) if host and 1 <= port <= 65535 else None


def read_host(text: bytes) -> tuple[str, str] | None:
    if text[:1] == b"[":
        inside = text[1:-1]
        if not re.fullmatch(rb"[0-9a-fA-F:.]*", inside):
            return None             # no zone, no IPvFuture
        try:
            packed = socket.inet_pton(socket.AF_INET6, inside.decode())
        except OSError:
            return None
        return socket.inet_ntop(socket.AF_INET6, packed), "ipv6"
    name = text.lower().removesuffix(b".")
    labels = name.split(b".")
    if len(name) > 253 or not all(
            re.fullmatch(rb"[a-z0-9_-]{1,63}", label) for label in labels):
        return None
    # As in the URL standard: if the last label is a number, all of it is an address.
    if not re.fullmatch(rb"[0-9]+|0x[0-9a-f]*", labels[-1]):
        return name.decode(), "name"
    numbers = [read_number(label) for label in labels]
    if None in numbers or len(numbers) > 4:
        return None
    *octets, last = numbers
    if any(octet > 255 for octet in octets) or last >= 256 ** (4 - len(octets)):
        return None
    packed = bytes(octets) + last.to_bytes(4 - len(octets), "big")
    return socket.inet_ntop(socket.AF_INET, packed), "ipv4"


def read_number(label: bytes) -> int | None:
    """Decimal, 0octal or 0xhex, as inet_aton reads it."""
    for form, base in ((rb"0x[0-9a-f]+", 16), (rb"0[0-7]*", 8), (rb"[1-9][0-9]*", 10)):
        if re.fullmatch(form, label):
            return int(label, base)
    return None
