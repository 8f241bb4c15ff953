"""A recording: a request, the answer it got, and replay's facts about both.

Times of an answer count from the end of its request, those of a WebSocket's messages
from the end of its handshake. Bodies are bytes of the content as it was transferred:
chunks are joined, codings are not undone. All of it is immutable; a change makes
another recording with the same number.
"""

from typing import Literal
from urllib.parse import unquote_plus

import msgspec

from cutthrough.exchange.targets import spell_octets

Fields = tuple[tuple[str, str], ...]
Pairs = list[tuple[str, str]]
Kind = Literal["text", "binary", "close", "ping", "pong", "event"]
# A pattern's part, and how it looks. Documents are JSON, unless a name has XML in it.
# "authority": host and port, or the host alone if the port is the scheme's; "url": that
# and the path; "form": a field of a form in the body
Part = Literal["method", "scheme", "host", "port", "authority", "path", "url", "query",
               "field", "form", "body"]
How = Literal["exact", "negate", "glob", "regex", "array", "json", "partial_json",
              "jsonpath", "form", "jwt", "jwt_jsonpath", "xml", "xml_templated",
              "xpath"]

# Patterns of these kinds look at a request with its secrets: what a token says is in
# it, and not in the hash that stands for it
OF_TOKENS = ("jwt", "jwt_jsonpath")
JWT = "jwt"                                  # a step
OF_XML = ("xml", "xml_templated", "xpath")

DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """`path` and `query` are as sent, without the question mark between them."""

    method: str
    scheme: str
    host: str                                # lower case; IPv6 without brackets
    port: int
    path: str
    query: str = ""
    fields: Fields = ()
    body: bytes = b""
    protocol: str = "HTTP/1.1"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if DEFAULT_PORTS.get(self.scheme) == self.port else
                f"{host}:{self.port}")

    @property
    def ascii_url(self) -> str:
        """For files of other programs: their URLs are text."""
        return spell_octets(self.url)

    @property
    def url(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.authority}{self.path}{query}"

    def field(self, name: str) -> str:
        return find(self.fields, name)


class Chunk(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Bytes of a body that came together. `asked`: bytes of the request's body that had
    come before, if the answer began before its end; -1: all, and its end."""

    at_us: int
    data: bytes
    asked: int = -1


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A whole message of a WebSocket, or one server-sent event. A close has its code.
    """

    at_us: int
    is_up: bool
    kind: Kind
    data: bytes = b""
    code: int | None = None
    event: str = ""                          # of an event: its type and id
    id: str = ""


class Response(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    status: int                              # 0: no answer came, to a call that was cut
    reason: str = ""
    fields: Fields = ()
    head_us: int = 0                         # when the head came
    chunks: tuple[Chunk, ...] = ()
    trailers: Fields = ()
    head_asked: int = -1                     # as of a chunk
    end_asked: int = -1                      # … of the trailers
    messages: tuple[Message, ...] = ()       # of a WebSocket
    protocol: str = "HTTP/1.1"
    is_cut: bool = False                     # a stream that was left before its end
    cut_by_client: bool = False              # …, of a call: a replay waits for that

    @property
    def body(self) -> bytes:
        return b"".join([chunk.data for chunk in self.chunks])

    @property
    def is_early(self) -> bool:
        """Whether it began before the end of its request."""
        return self.head_asked >= 0

    def field(self, name: str) -> str:
        return find(self.fields, name)


class Pattern(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A condition for requests, in place of the recorded value. `key`: of a query
    or a form, the name of a field, a JSONPath; "": the whole part. `steps`: what is
    taken of it first, in order: the value at a JSONPath, or with "jwt" the header and
    the payload of a token."""

    part: Part
    how: How = "exact"
    value: str = ""
    key: str = ""
    steps: tuple[str, ...] = ()

    @property
    def is_of_token(self) -> bool:
        return self.how in OF_TOKENS or JWT in self.steps


class Recording(msgspec.Struct, frozen=True, gc=False, kw_only=True,
                omit_defaults=True):
    """`patterns`: they alone decide which requests it answers, and the route's key does
    not apply. `requires`: values that the state must have; `sets` and `removes` change
    it behind the answer."""

    request: Request
    response: Response
    number: int = 0                          # of its session; 0: none yet
    created_us: int = 0                      # Unix time
    hits: int = 0
    owner: str = ""                          # see sharing; "": everybody's
    tags: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    requires: dict[str, str] = {}
    sets: dict[str, str] = {}
    removes: tuple[str, ...] = ()
    delay_us: int = 0                        # added before the answer
    template: bool = False                   # the answer's body and fields: templates


def find(fields: Fields, name: str) -> str:
    """The values of this name (lower case), joined as in RFC 9110 section 5.3."""
    size = len(name)
    values = [value for key, value in fields
              if len(key) == size and key.lower() == name]
    return values[0] if len(values) == 1 else ", ".join(values)


def split_pairs(text: str) -> Pairs:
    """The keys and values of a query or a form, decoded, in order."""
    pairs = []
    for part in spell_octets(text).split("&"):
        if part:
            key, _, value = part.partition("=")
            if "%" in part or "+" in part:
                key, value = unquote_plus(key), unquote_plus(value)
            pairs.append((key, value))
    return pairs
