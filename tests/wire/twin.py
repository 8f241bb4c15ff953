"""The slow, obvious twin: HTTP/1.1 as RFC 9110 and RFC 9112 write it down.

Written from the grammar, one rule a function, without a look at how the wire room does
it; tests/wire/test_twin.py and the fuzz targets hold the two against each other. If we
are stricter than the RFC, the rule stands here in words, so that this file is also the
list of messages that we refuse although the RFC would let them pass.

Every reader answers None for "more bytes, please", a refusal's label, or its result.
"""

import re
from typing import NamedTuple

from tests.wire.twin_target import Target as Target
from tests.wire.twin_target import read_authority as read_authority
from tests.wire.twin_target import read_target as read_target

TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789"
                  b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGIT = frozenset(b"0123456789")
HEXDIG = frozenset(b"0123456789abcdefABCDEF")
# field-vchar, SP, HTAB, obs-text: all but the controls (RFC 9110 section 5.5).
VALUE = frozenset(range(256)) - frozenset(range(32)) - {127} | {9}
# RFC 3986 has fewer; browsers and curl send the rest raw, and other proxies pass it.
# None of them can end a request line.
TARGET = frozenset(range(33, 256)) - {127}
# Of a response: octets that other proxies pass, and no reader takes for a line's end.
VALUE_OF_RESPONSE = frozenset(range(256)) - frozenset(b"\0\r\n")

MOST_FIELDS = 1024
MOST_BEFORE_COLON = 8
MOST_NAME = 0xFFFF
MOST_CHUNK_DIGITS = 15
MOST_CHUNK_LINE = 4096
MOST_CHUNK_EXCESS = 16384
MOST_TRAILERS = 8192
MOST_RESPONSE_TRAILERS = 65536
LONGEST_BODY = 2**63 - 1

# RFC 9110 section 6.5.1: fields that frame, route or authenticate are no trailers: they
# are dropped.
NOT_IN_TRAILERS = frozenset((
    b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive",
    b"proxy-connection", b"te", b"trailer", b"upgrade", b"via", b"proxy-authorization",
    b"proxy-authenticate", b"proxy-authentication-info", b"authorization", b"expect",
    b"max-forwards", b"http2-settings"))


class Head(NamedTuple):
    """A head: (method, target) or (status, reason) is its `first`."""

    first: tuple[bytes, bytes] | tuple[int, bytes]
    minor: int
    fields: list[tuple[bytes, bytes]]
    length: int
    lenient: bool = False           # read, though the grammar has it otherwise

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


class More(Exception):
    """The bytes end before the rule does."""


class Refused(Exception):
    """The byte at hand must not stand here; its argument is the label."""


class Text:
    """Bytes read one by one.

    `limits`: if the text has not ended so many bytes in, it is refused by that label,
    the nearer limit first. `last`: the byte at this offset is one too many.
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
    """The rule's result, or the refusal's label."""
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
    # One empty line before it, which many recipients skip.
    ends = [line_end(text)] if text.peek() in b"\r\n" else []
    lenient = bool(ends)
    text.limits.append((text.at + line_bytes + 2, "response_head_too_large"))
    text.exactly(b"HTTP/")
    major = text.one(DIGIT)
    text.exactly(b".")
    minor = text.one(DIGIT)
    if (major, minor) < (ord("1"), ord("0")):
        raise Refused(text.bad)
    if (major, minor) > (ord("1"), ord("1")):       # RFC 9110 section 2.5
        minor = ord("1")
        lenient = True
    text.exactly(b" ")
    status = int(bytes(text.one(DIGIT) for _ in range(3)))
    if status < 100:
        raise Refused(text.bad)
    reason = b""
    if text.peek() not in b"\r\n":  # the SP before no reason is often left out
        text.exactly(b" ")
        reason = text.all_of(VALUE_OF_RESPONSE)
    ends.append(line_end(text))
    text.limits.pop()
    lines: list[list[bytes]] = []
    while text.peek() not in b"\r\n":
        if text.peek() in b" \t" and lines:      # section 5.2: obs-fold becomes spaces
            lines[-1][1] += len(ends[-1]) * b" " + text.all_of(VALUE_OF_RESPONSE)
            lenient = True
        else:
            if len(lines) == min(n_fields, MOST_FIELDS):
                raise Refused("response_head_too_large")
            name = text.some_of(TOKEN)
            # A proxy removes white space before the colon (RFC 9112 section 5.1)
            lenient |= text.at_most(MOST_BEFORE_COLON, frozenset(b" \t")) != b""
            lines.append(rest_of_line(text, name, VALUE_OF_RESPONSE,
                                      "response_head_too_large"))
        ends.append(line_end(text))
    ends.append(line_end(text))
    fields = [(name, value.strip(b" \t")) for name, value in lines]
    return Head((status, reason), minor - ord("0"), fields, text.at,
                lenient or b"\n" in ends)


def line_end(text: Text) -> bytes:
    """CRLF, or the LF alone that section 2.2 lets a recipient take for one."""
    end = b"\r\n" if text.peek() == 13 else b"\n"
    text.exactly(end)
    return end


def field_lines(text: Text, n_fields: int, too_many: str) -> list[tuple[bytes, bytes]]:
    """*( field-name ":" OWS field-value OWS CRLF ) CRLF; never folded (section 5.2)."""
    fields: list[tuple[bytes, bytes]] = []
    while text.peek() != 13:
        if len(fields) == min(n_fields, MOST_FIELDS):
            raise Refused(too_many)
        name, value = field_line(text, too_many)
        fields.append((name, value.strip(b" \t")))
        text.exactly(b"\r\n")
    text.exactly(b"\r\n")
    return fields


def field_line(text: Text, too_long: str) -> list[bytes]:
    return rest_of_line(text, text.some_of(TOKEN), VALUE, too_long)


def rest_of_line(text: Text, name: bytes, value: frozenset[int],
                 too_long: str) -> list[bytes]:
    if text.peek() == ord(":") and len(name) > MOST_NAME:
        raise Refused(too_long)
    text.exactly(b":")
    return [name, text.all_of(value)]


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
    lengths = head.values(b"content-length")
    codings = head.values(b"transfer-encoding")
    kind = length_fields(head)
    if status < 200 or status in (204, 304) or method == b"HEAD":
        # Rule 1: no content, whatever the fields say. If no sender can mean them,
        # content may follow all the same.
        if isinstance(kind, str):
            meant = False
        elif status < 200 or status == 204:
            meant = kind[0] == "none"
        else:
            meant = not codings or (status != 304 and is_clear(head))
        return Framing("none", 0, persistent and meant)
    if isinstance(kind, str):
        return "bad_response_framing"
    if not lengths and not codings:
        return Framing("until-close", 0, False)
    return Framing(*kind, persistent and is_clear(head))


def is_clear(head: Head) -> bool:
    """Chunks alone, and in HTTP/1.1: rule 3 and section 6.1 doubt the rest."""
    return not head.values(b"transfer-encoding") or (
        head.minor == 1 and not head.values(b"content-length"))


def length_fields(head: Head) -> tuple[str, int] | str:
    lengths = head.values(b"content-length")
    codings = head.values(b"transfer-encoding")
    if codings:
        # HTTP/1.0 has no transfer codings; two kinds of length are two readings.
        if isinstance(head.first[0], bytes) and not is_clear(head):
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
    # Of a request not even two equal ones, although section 6.3 would let us: the next
    # reader may not.
    if isinstance(head.first[0], int):
        if any(not one or one[:1] == b"," or one[-1:] == b"," for one in lengths):
            return "bad_framing"
        lengths = head.members(b"content-length")
    elif len(lengths) > 1:
        return "bad_framing"
    if not all(re.fullmatch(rb"[0-9]+", one) for one in lengths):
        return "bad_framing"
    length = int(lengths[0])
    if length > LONGEST_BODY or any(int(one) != length for one in lengths):
        return "bad_framing"
    return ("length" if length else "none"), length


def is_token(text: bytes) -> bool:
    return text != b"" and all(octet in TOKEN for octet in text)


def persists(head: Head) -> bool:
    """Section 9.3; a 1.0 peer's keep-alive is not honoured by a proxy."""
    said = [one.lower() for one in head.members(b"connection", b"proxy-connection")]
    return head.minor == 1 and b"close" not in said and not head.lenient


# --- chunks: RFC 9112 section 7.1 -----------------------------------------------------


class Chunked(NamedTuple):
    data: bytes
    frame: bytes                    # sent on: the same without extensions
    bare: bytes                     # and without trailers too
    length: int


def passes_trailers(head: Head) -> bool:
    """RFC 9110 section 7.6.1: not those that Connection names. If it names any that
    could be there, we drop them all."""
    named = {one.lower() for one in head.members(b"connection", b"proxy-connection")
             if is_token(one)}
    return not named - {b"close"} - NOT_IN_TRAILERS


def read_chunks(data: bytes, lenient: bool = False) -> Chunked | str | None:
    """`lenient`: of a response; white space alone may follow a size there."""
    return answer(chunked_body, Text(data, "bad_framing"), lenient)


def chunked_body(text: Text, lenient: bool) -> Chunked:
    content = frame = b""
    size, excess = -1, 0
    while size:
        line = text.at
        digits = chunk_size(text, lenient)
        size = int(digits, 16)
        # The framing must not be much more than the data, over the whole message.
        excess = max(0, excess + length_of(text.data[line:text.at]) - 16 - 2 * size)
        if excess > MOST_CHUNK_EXCESS:
            raise Refused(text.bad)
        # Of many zeros in front one goes on.
        frame += digits[:1] + digits[1:].lstrip(b"0" if digits[:1] == b"0" else b" ")
        frame += b"\r\n"
        if size:
            text.skip(size)
            content += text.data[text.at - size:text.at]
            frame += text.data[text.at - size:text.at] + b"\r\n"
            text.exactly(b"\r\n")
    trailers = trailer_section(text, lenient)
    return Chunked(content, frame + trailers + b"\r\n", frame + b"\r\n", text.at)


def length_of(line: bytes) -> int:
    """Of a size line, the ";" not counted."""
    return len(line) - (b";" in line)


def chunk_size(text: Text, lenient: bool) -> bytes:
    """1*HEXDIG [ BWS ";" anything ] CRLF (RFC 9112 section 7.1.1)."""
    digits = b""
    while text.peek() in HEXDIG:
        digits += bytes([text.one(HEXDIG)])
        significant = len(digits.lstrip(b"0"))
        if significant > MOST_CHUNK_DIGITS or len(digits) > MOST_CHUNK_LINE:
            raise Refused(text.bad)
    if not digits:
        raise Refused(text.bad)
    space = text.at_most(MOST_CHUNK_LINE - len(digits), frozenset(b" \t"))
    if text.peek() == ord(";"):
        text.exactly(b";")
        text.at_most(MOST_CHUNK_LINE - len(digits) - len(space), VALUE)
    elif space and not lenient:
        raise Refused(text.bad)
    text.exactly(b"\r\n")
    return digits


def trailer_section(text: Text, lenient: bool) -> bytes:
    """The field lines that go on."""
    kept = b""
    text.last = text.at + (MOST_RESPONSE_TRAILERS if lenient else MOST_TRAILERS)
    while text.peek() != 13:
        start = text.at
        name = text.some_of(TOKEN)
        text.exactly(b":")
        text.all_of(VALUE)
        text.exactly(b"\r\n")
        if name.lower() not in NOT_IN_TRAILERS:
            kept += text.data[start:text.at]
    text.exactly(b"\r")
    text.last = -1                  # the last LF is not counted
    text.exactly(b"\n")
    return kept
