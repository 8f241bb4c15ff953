"""The filter language: mitmproxy's operators, and ours for decisions, TLS and program.

    ~d REGEX  host            ~m REGEX  method         ~u REGEX  URL
    ~c CODE   status          ~t REGEX  content type   ~h REGEX  a field, "name: value"
    ~b REGEX  body, message   ~q        no response    ~s        has a response
    ~websocket  is a WebSocket                         ~program REGEX  its program
    ~tag ~comment REGEX  of the operator       ~user ~rule ~reason REGEX  the decision
    ~src ~dst REGEX  addresses, "1.2.3.4:80"   ~sni ~ja4 REGEX  of a tunnel inside
    ~client_ja4 ~http2_fingerprint REGEX  of the client itself, as ~client_ja3
    ~e        ended by a fault ~time ~dur ~size         compared: see measures.py
    ~tq ~ts ~hq ~hs ~bq ~bs   the same of the request (q) or of the response (s) alone
    !  &  |  ( )              not, and, or; two terms side by side mean and

A word without an operator is a regular expression for the URL. Letters match in either
case. Expressions are RE2's; of a text as many characters are searched as RE2 may read:
4 million with an expression of 30 instructions. An argument with spaces, parentheses
or & | is quoted: "…" or '…'.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from cutthrough.capture.measures import compare
from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.expressions import NoRE2, compile_expression
from cutthrough.exchange.flow import Fields, Flow

Test = Callable[[Flow], bool]


class FilterError(ValueError):
    """A filter that cannot be read, with the reason."""


class _Token(NamedTuple):
    text: str
    quoted: bool
    at: int


# Each is a call within another one, when a filter is read and for each flow
MOST_DEPTH = 100

_BODIES = ("~b", "~bq", "~bs")
# A character by its number, as Python and JSON spell it, or another escape
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.S)
# Signs of repetition, groups or choices in an expression
_REPEATS = re.compile(r"[*+?{(|]")
_TOKEN = re.compile(r"""\s*(?:
    (?P<mark>[()!&|])
    | "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>(?:\\.|[^'\\])*)'
    | (?P<word>[^\s()&|"']+) )""", re.X)


def _escape_of_re2(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else f"\\x{{{match[1]}}}"


def _show(fields: Fields) -> str:
    return "\n".join(f"{name}: {value}" for name, value in fields)


def _bodies(flow: Flow, *sides: str) -> Iterable[str]:
    for side in sides:
        body = getattr(flow, f"{side}_body")
        yield body.decode("latin-1") if isinstance(body, bytes) else body or ""
        if flow.kind == "tunnel":            # events are in the body
            yield from (message.get("text", "") for message in flow.messages
                        if message["side"] == side)


def address_of(host: str | None, port: int | None) -> str:
    """"": none was kept, or none was dialled."""
    if not host:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _column(name: str) -> Callable[[Flow], Iterable[str]]:
    return lambda flow: [getattr(flow, name, None) or ""]


# The texts that each operator searches
_TEXTS: dict[str, Callable[[Flow], Iterable[str]]] = {
    "~d": lambda flow: [flow.host],
    "~m": lambda flow: [flow.method],
    "~u": lambda flow: [flow.url],
    "~t": lambda flow: [flow.request_type, flow.response_type],
    "~tq": lambda flow: [flow.request_type],
    "~ts": lambda flow: [flow.response_type],
    "~h": lambda flow: [_show(flow.request_fields), _show(flow.response_fields)],
    "~hq": lambda flow: [_show(flow.request_fields)],
    "~hs": lambda flow: [_show(flow.response_fields)],
    "~b": lambda flow: _bodies(flow, "request", "response"),
    "~bq": lambda flow: _bodies(flow, "request"),
    "~bs": lambda flow: _bodies(flow, "response"),
    **{f"~{name}": _column(name) for name in (
        "tag", "comment", "user", "rule", "reason", "sni", "ja4", "client_ja4",
        "client_ja3", "http2_fingerprint")},
    "~src": lambda flow: [address_of(flow.client, flow.client_port)],
    "~dst": lambda flow: [address_of(flow.peer, flow.peer_port)],
    # A column of a shared database alone; empty if the flow was imported
    "~program": _column("program"),
}
_BARE: dict[str, Test] = {
    "~q": lambda flow: not flow.has_response,
    "~s": lambda flow: flow.has_response,
    "~websocket": lambda flow: flow.is_websocket,
    "~e": lambda flow: bool(flow.fault),
}
_COMPARED = ("~time", "~dur", "~size")


# Columns that these look at. Of the others, whole rows are read
_COLUMNS = {
    "~d": ("host",), "~m": ("method",), "~u": ("url",), "~c": ("status",),
    "~e": ("reason",), "~src": ("client", "client_port"),
    "~dst": ("peer", "peer_port"),
    **{f"~{name}": (name,) for name in ("user", "rule", "reason", "sni", "ja4")}}
# Those with few values, whose results are kept, and how many are
_REPEATED, MOST_KNOWN = ("~d", "~m", "~user", "~rule", "~reason", "~sni"), 4096


def parse_filter(text: str) -> Test:
    """The test that `text` describes; "": every flow passes. Raises FilterError."""
    return read_filter(text)[0]


def read_filter(text: str) -> tuple[Test, tuple[str, ...]]:
    """As parse_filter, and the columns that are enough for it; (): it needs a whole
    row."""
    tokens = _split(text)
    if not tokens:
        return lambda flow: True, ()
    parser = _Parser(tokens)
    test = parser.read_or()
    if (left := parser.peek()) is not None:
        raise FilterError(f"{left.text!r} at {left.at + 1} has no place")
    if not parser.operators <= _COLUMNS.keys():
        return test, ()
    return test, tuple(dict.fromkeys(
        name for operator in sorted(parser.operators) for name in _COLUMNS[operator]))


def _split(text: str) -> list[_Token]:
    tokens = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise FilterError(f"cannot be read from {text[at:].strip()!r} on")
        kind = match.lastgroup or ""
        value = match[kind]
        start = match.start(kind)
        if kind == "word":
            while value.startswith("!"):
                tokens.append(_Token("!", False, start))
                value, start = value[1:], start + 1
        elif kind in ("double", "single"):
            value = re.sub(r"\\([\"'])", r"\1", value)
        if value or kind != "word":
            tokens.append(_Token(value, kind in ("double", "single"), start))
        at = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = self._depth = 0
        self.operators: set[str] = set()     # that have been read

    def peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _is_mark(self, mark: str) -> bool:
        token = self.peek()
        return token is not None and not token.quoted and token.text == mark

    def _take(self, mark: str) -> bool:
        is_match = self._is_mark(mark)
        self._at += is_match
        return is_match

    def read_or(self) -> Test:
        tests = [self.read_and()]
        while self._take("|"):
            tests.append(self.read_and())
        return tests[0] if len(tests) == 1 else (
            lambda flow: any(test(flow) for test in tests))

    def read_and(self) -> Test:
        tests = [self.read_not()]
        while self._take("&") or (self.peek() is not None and not (
                self._is_mark("|") or self._is_mark(")"))):
            tests.append(self.read_not())
        return tests[0] if len(tests) == 1 else (
            lambda flow: all(test(flow) for test in tests))

    def read_not(self) -> Test:
        if self._depth == MOST_DEPTH:
            raise FilterError(f"has more than {MOST_DEPTH} marks ! and parentheses "
                              "within each other")
        self._depth += 1
        test = self._read_not()
        self._depth -= 1
        return test

    def _read_not(self) -> Test:
        if self._take("!"):
            inner = self.read_not()
            return lambda flow: not inner(flow)
        if self._take("("):
            inner = self.read_or()
            if not self._take(")"):
                raise FilterError("a parenthesis is not closed")
            return inner
        return self.read_term()

    def read_term(self) -> Test:
        token = self.peek()
        if token is None:
            raise FilterError("ends where a term is expected")
        if not token.quoted and token.text in ("&", "|", ")"):
            raise FilterError(f"{token.text!r} at {token.at + 1} has no term before it")
        self._at += 1
        if token.quoted or not token.text.startswith("~"):
            self.operators.add("~u")
            return _search("~u", token.text)
        self.operators.add(token.text)
        if token.text in _BARE:
            return _BARE[token.text]
        if token.text not in ("~c", *_COMPARED) and token.text not in _TEXTS:
            known = " ".join(["~c", *_TEXTS, *_COMPARED, *_BARE])
            raise FilterError(f"{token.text!r} is none of {known}")
        value = self.peek()
        if value is None or (not value.quoted and value.text in tuple("()!&|")):
            raise FilterError(f"{token.text} takes an argument")
        self._at += 1
        if token.text in _COMPARED:
            try:
                return compare(token.text, value.text)
            except ValueError as error:
                raise FilterError(str(error)) from None
        if token.text != "~c":
            return _search(token.text, value.text)
        if re.fullmatch("[1-5]xx", value.text, re.I):
            hundreds = int(value.text[0])
            return lambda flow: (flow.status or 0) // 100 == hundreds
        if re.fullmatch("[0-9]{1,3}", value.text) is None:
            raise FilterError(f"~c takes a status, as 404 or 4xx, not {value.text!r}")
        status = int(value.text)
        return lambda flow: flow.status == status


def _search(operator: str, pattern: str) -> Test:
    texts, search = _TEXTS[operator], _compile(pattern, crosses=operator in _BODIES)
    if operator not in _REPEATED:
        return lambda flow: any(search(text) for text in texts(flow))
    (column,) = _COLUMNS[operator]
    known: dict[str, bool] = {}

    def test(flow: Flow) -> bool:
        text = getattr(flow, column, None) or ""
        passes = known.get(text)
        if passes is None:
            if len(known) == MOST_KNOWN:
                known.clear()
            passes = known[text] = bool(search(text))
        return passes

    return test


def _compile(pattern: str, *, crosses: bool) -> Callable[[str], object]:
    """Compiles an expression by RE2, in time that is linear in the text (R66). Without
    RE2, `re` compiles expressions that repeat nothing, because these have the same
    meaning there, and are linear. `crosses`: a dot is a line end, too."""
    flags = "(?ms)" if crosses else "(?m)"
    try:
        expression = compile_expression(
            flags + _ESCAPE.sub(_escape_of_re2, pattern), ignore_case=True)
    except NoRE2 as error:
        if _REPEATS.search(pattern):
            raise FilterError(f"{pattern!r:.100}: {error}") from None
        try:
            return re.compile(pattern, re.I | re.M | (re.S if crosses else 0)).search
        except re.error as mistake:
            raise FilterError(
                f"{pattern!r:.100} is no regular expression: {mistake}") from None
    except KeyMistake as error:
        raise FilterError(str(error).replace(flags, "", 1)) from None

    def search(text: str) -> object:
        text = text[:expression.most]
        try:
            return expression.search(text)
        except UnicodeError:                 # halves of characters
            return expression.search(text.encode(errors="replace").decode())

    return search
