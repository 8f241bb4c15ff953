"""The argument of a filter: a request and its response, as fields that may change.

Framing (Content-Length, Transfer-Encoding), Connection, Via and Host are the proxy's:
the first two are shown, and edits of them are ignored. Everything that a filter sets is
checked when it is set, so that no field can end a line (R5).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from cutthrough.exchange.content import is_digest

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")         # RFC 9110 5.6.2
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")
_BAD_PATH = re.compile(r"[\x00-\x20\x7f]|[^\x00-\xff]")
_HOST = re.compile(r"[0-9A-Za-z._-]+|[0-9A-Fa-f:.]+")
FRAMING = ("content-length", "transfer-encoding", "trailer")
# A response's fields about the bytes of its body; for other bytes they are wrong.
# ETag: a strong validator changes with every byte (RFC 9110 section 8.8.1)
_ABOUT_BODY = ("content-encoding", "etag", "accept-ranges", "last-modified")

HeaderItems = Mapping[str, str] | Iterable[tuple[str, str]]


def about_body(headers: "Headers") -> list[str]:
    """The names of fields that a changed body makes wrong, digests of it among them."""
    return [name for name, _ in headers if is_about_body(name)]


def is_about_body(name: str) -> bool:
    return name.lower() in _ABOUT_BODY or is_digest(name)


class Headers:
    """Header fields in their order. Names are compared without regard to case."""

    __slots__ = ("_items",)

    def __init__(self, items: HeaderItems = ()) -> None:
        self._items: list[tuple[str, str]] = []
        for name, value in (items.items() if isinstance(items, Mapping) else items):
            self.add(name, value)

    def __getitem__(self, name: str) -> str:
        """The first value. Raises KeyError."""
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    @classmethod
    def as_they_came(cls, items: list[tuple[str, str]]) -> "Headers":
        """Without a check: an origin may send what a filter may not set."""
        headers = cls()
        headers._items = items
        return headers

    def __setitem__(self, name: str, value: str) -> None:
        """Replaces all fields of this name by one, in the place of the first."""
        check_field(name, value)
        lower, is_replaced = name.lower(), False
        items = []
        for item in self._items:
            if item[0].lower() != lower:
                items.append(item)
            elif not is_replaced:
                items.append((name, value))
                is_replaced = True
        self._items = items if is_replaced else [*items, (name, value)]

    def __delitem__(self, name: str) -> None:
        """Removes all fields of this name, if there are any."""
        lower = name.lower()
        self._items = [item for item in self._items if item[0].lower() != lower]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self._items == other._items

    def __repr__(self) -> str:
        """Names alone: a repr ends up in logs, and values may be secrets (R37)."""
        return f"Headers({[name for name, _ in self._items]})"

    def get(self, name: str, default: str | None = None) -> str | None:
        lower = name.lower()
        for item, value in self._items:
            if item.lower() == lower:
                return value
        return default

    def get_all(self, name: str) -> list[str]:
        lower = name.lower()
        return [value for item, value in self._items if item.lower() == lower]

    def add(self, name: str, value: str) -> None:
        check_field(name, value)
        self._items.append((name, value))

    def copy(self) -> "Headers":
        return Headers.as_they_came(list(self._items))


def check_field(name: str, value: str) -> None:
    """Raises ValueError or TypeError for a field that cannot be sent."""
    if _TOKEN.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not the name of a header field")
    if _BAD_VALUE.search(value):
        raise ValueError(f"the value of {name} has a control character, or one beyond "
                         "Latin-1")


class Request:
    """A request on its way to the origin."""

    __slots__ = (
        "_changed",
        "_fixed",
        "_headers",
        "_host",
        "_lines",
        "_method",
        "_path",
        "_port",
        "_scheme",
        "_version",
    )

    def __init__(self, method: str, host: str, port: int, path: str,
                 headers: Headers | str = "", version: str = "1.1",
                 scheme: str = "http") -> None:
        """`headers`: as text they are lines as they were read, split when they are
        needed first."""
        self._method, self._host, self._port, self._path = method, host, port, path
        self._headers: Headers | None = None if isinstance(headers, str) else headers
        self._lines = headers if isinstance(headers, str) else ""
        self._changed = False
        self._fixed = ""
        self._version, self._scheme = version, scheme

    @property
    def version(self) -> str:
        """The client's."""
        return self._version

    @property
    def scheme(self) -> str:
        """`https`: inside an interception; "": of a CONNECT."""
        return self._scheme

    @property
    def headers(self) -> Headers:
        if self._headers is None:
            self._headers = headers_of(self._lines)
        return self._headers

    def replace_headers(self, headers: Headers) -> None:
        self._headers = headers

    @property
    def method(self) -> str:
        return self._method

    @method.setter
    def method(self, method: str) -> None:
        if method == self._method:
            return
        if _TOKEN.fullmatch(method) is None:
            raise ValueError(f"{method!r} is not a method")
        if "HEAD" in (method, self._method) or method == "CONNECT":
            raise ValueError(f"{self._method} cannot become {method}: their responses "
                             "end in different ways")
        self._method, self._changed = method, True

    @property
    def host(self) -> str:
        """In canonical spelling; an IPv6 address without brackets."""
        return self._host

    @host.setter
    def host(self, host: str) -> None:
        if _HOST.fullmatch(host) is None:
            raise ValueError(f"{host!r} is not a host: a name in A-labels, or an "
                             "address")
        if host.lower().removesuffix(".") != self._host:
            self._check_may_move()
        self._host, self._changed = host, True

    @property
    def port(self) -> int:
        return self._port

    @port.setter
    def port(self, port: int) -> None:
        if not 1 <= port <= 65535:
            raise ValueError(f"{port} is not a port")
        if port != self._port:
            self._check_may_move()
        self._port, self._changed = port, True

    @property
    def path(self) -> str:
        """And query: `/a?b=c`; or `*`."""
        return self._path

    @path.setter
    def path(self, path: str) -> None:
        if path == self._path:          # as it came: it may be *
            return
        if not path.startswith("/") or _BAD_PATH.search(path):
            raise ValueError(f"{path!r} is not a path with its query")
        self._path, self._changed = path, True

    def fix(self, place: str) -> None:
        """The target cannot change there; "": it can."""
        self._fixed = place

    def _check_may_move(self) -> None:
        if self._fixed:
            raise ValueError(f"the target cannot change {self._fixed}")

    @property
    def authority(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def url(self) -> str:
        path = "" if self._path == "*" else self._path
        return f"{self._scheme}://{self.authority}{path}" if self._scheme else (
            self.authority)

    def copy(self) -> "Request":
        request = Request(self._method, self._host, self._port, self._path,
                          self._lines if self._headers is None else
                          self._headers.copy(), version=self._version,
                          scheme=self._scheme)
        request.fix(self._fixed)
        request._changed = self._changed
        return request


class Response:
    """A response on its way to the client."""

    __slots__ = ("_body", "_changed", "_headers", "_lines", "_reason", "_status")

    def __init__(self, status: int, headers: Headers | None = None, reason: str = "",
                 lines: str = "", body: bytes | None = None) -> None:
        """`body`: of an answer of the filter's own; None: the origin's."""
        self._status, self._headers, self._lines = status, headers, lines
        self._changed = False
        self._reason, self._body = reason, body

    @property
    def headers(self) -> Headers:
        if self._headers is None:
            self._headers = headers_of(self._lines)
        return self._headers

    def replace_headers(self, headers: Headers) -> None:
        self._headers = headers

    @property
    def reason(self) -> str:
        """The reason phrase of the first line; "" for the phrase that belongs to the
        status."""
        return self._reason

    @reason.setter
    def reason(self, reason: str) -> None:
        if reason == self._reason:      # as it came
            return
        if _BAD_VALUE.search(reason):
            raise ValueError("the reason has a control character, or one beyond "
                             "Latin-1")
        self._reason, self._changed = reason, True

    @property
    def body(self) -> bytes | None:
        """The body of an answer that the filter made; None if it is the origin's: see
        docs/filters.md."""
        return self._body

    @property
    def status(self) -> int:
        return self._status

    @status.setter
    def status(self, status: int) -> None:
        if status == self._status:      # as it came: it may be 999
            return
        if not 200 <= status <= 599:
            raise ValueError(f"{status} is not a final status")
        if has_no_body(status) != has_no_body(self._status):
            raise ValueError(f"{self._status} cannot become {status}: one of them has "
                             "no body; use respond()")
        self._status, self._reason, self._changed = status, "", True

    def copy(self) -> "Response":
        response = Response(self._status, None if self._headers is None
                            else self._headers.copy(), reason=self._reason,
                            lines=self._lines, body=self._body)
        response._changed = self._changed
        return response


class WebSocketMessage:
    """A message on its way to the other side."""

    __slots__ = ("_content", "from_client", "is_dropped", "is_text")

    def __init__(self, from_client: bool, is_text: bool, content: bytes) -> None:
        self.from_client, self.is_text = from_client, is_text
        self._content = content
        self.is_dropped = False

    @property
    def content(self) -> bytes:
        """The content; that of a text is UTF-8."""
        return self._content

    @content.setter
    def content(self, content: bytes) -> None:
        if not isinstance(content, bytes):
            raise TypeError(f"content is {type(content).__name__}, not bytes")
        self._content = content

    @property
    def text(self) -> str:
        """Raises UnicodeDecodeError."""
        return self._content.decode()

    @text.setter
    def text(self, text: str) -> None:
        self._content = text.encode()

    def drop(self) -> None:
        """Drops the message: it does not go on."""
        self.is_dropped = True


class Facts(NamedTuple):
    """The facts of a request that are known before it is read."""

    user: str = ""
    groups: tuple[str, ...] = ()
    client: str = ""                        # address, without port
    id: str = ""                            # as the access log has it
    rule: str = ""                          # name or place of the rule
    fingerprints: Mapping[str, str] = MappingProxyType({})  # by the log's names


UNKNOWN = Facts()


class Flow:
    """One request and its response, as filters see them."""

    __slots__ = (
        "_answered",
        "_has_body",
        "_label",
        "_refusal",
        "_request",
        "_response",
        "client",
        "fingerprints",
        "groups",
        "id",
        "metadata",
        "outcome",
        "rule",
        "user",
    )

    def __init__(self, request: Request, facts: Facts = UNKNOWN) -> None:
        """`facts`: or a tuple like it."""
        self._request = request
        self._response: Response | None = None
        (self.user, self.groups, self.client, self.id, self.rule,
         self.fingerprints) = facts
        self.metadata: dict[str, Any] = {}          # the filters' own
        self.outcome = ""                           # in on_end: the log's reason
        self._refusal: str | None = None
        self._label = "filter_refused"              # the outcome of a refusal
        self._has_body = False                      # of the response
        self._answered = False

    @property
    def request(self) -> Request:
        return self._request

    @property
    def response(self) -> Response | None:
        """None: it has not come yet."""
        return self._response

    def respond(self, status: int, body: bytes = b"",
                headers: HeaderItems = ()) -> None:
        """Answers at once. The origin is not asked, or its response is dropped."""
        if not 200 <= status <= 599:
            raise ValueError(f"{status} is not a final status")
        if body and has_no_body(status):
            raise ValueError(f"a response {status} has no body")
        if status < 300 and self.request.method == "CONNECT":
            raise ValueError(f"{status} opens a tunnel: change flow.response")
        self._response = Response(status, Headers(headers), body=bytes(body))
        self._answered = True

    def refuse(self, reason: str) -> None:
        """Refuses the request with 403, `filter_refused`. The reason is sent and
        logged."""
        if not isinstance(reason, str):
            raise TypeError("the reason is a text")
        self._refusal = reason


def has_no_body(status: int) -> bool:
    return status in (204, 304)


def headers_of(lines: str) -> Headers:
    """From lines that the proxy has checked; no CRLF is behind the last."""
    headers = Headers()
    if lines:
        headers._items = [(name, value.strip(" \t")) for name, _, value in (
            line.partition(":") for line in lines.split("\r\n"))]
    return headers
