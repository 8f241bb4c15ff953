"""JSONPath (RFC 9535): an expression -> a path; a path and a document -> values.

    Path(text).find(document)  ─>  nodes: value, parent, key

Each visit or comparison of a node is a step, and their number is bounded by the
number of the document's values (R67). Expressions in `match` and `search` run on RE2.
The parser reads each character once; it is separate from the evaluation, a tree
of closures: the nodes of a selector, the answer of a filter
(jsonpath_nodes).
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from cutthrough.exchange.bounds import KeyMistake, Steps
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.jsonpath_nodes import (
    COMPARE,
    MOST_INDEX,
    NOTHING,
    Asking,
    Node,
    Nodes,
    Selector,
    Test,
    Value,
    by_index,
    by_name,
    by_slice,
    by_test,
    every_child,
    length_of,
    make_query,
    make_segment,
    matches_of,
)
from cutthrough.exchange.scan import count_parsed

# Characters of a path; levels in it
MOST_PATH, MOST_NESTED = 4096, 16


_SPACE = re.compile(r"[ \t\n\r]*+")
_WORD = re.compile(r"[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*+")
_INT = re.compile(r"(?:0|-?[1-9][0-9]{0,15})(?![0-9])")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,308}+)(?:\.[0-9]{1,308}+)?"
                     r"(?:[eE][+-]?[0-9]{1,4}+)?(?![0-9])")
_TEXTS = {mark: re.compile(rf"{mark}((?:[^{mark}\\\x00-\x1f]|\\[^\x00-\x1f])*+){mark}")
          for mark in "\"'"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/",
            "\\": "\\"}
_WORDS = {"true": True, "false": False, "null": None}
_OPERATOR = re.compile(r"[=!<>]=|[<>]")
_FUNCTION = re.compile(r"([a-z][a-z_0-9]*)\(")


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > MOST_PATH:
            raise KeyMistake(f"a path is longer than {MOST_PATH} characters")
        self._text = text
        self._at = 0
        self._depth = 0

    def _mistake(self, wanted: str) -> KeyMistake:
        return KeyMistake(f"{self._text!r:.100} is no JSONPath: at {self._at + 1} "
                           f"there is no {wanted}")

    def _take(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise self._mistake(repr(mark))

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _skip(self) -> None:
        self._match(_SPACE)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise KeyMistake(f"{self._text!r:.100} is nested more than {MOST_NESTED} "
                              "times")

    def read_path(self) -> Nodes:
        self._need("$")
        find, _ = self._segments(is_root=True)
        if self._at < len(self._text):
            raise self._mistake("segment")
        return find

    def _segments(self, *, is_root: bool) -> tuple[Nodes, bool]:
        """Reads the segments behind $ or @. The second result: they select one node at
        most."""
        segments: list[Callable[[list[Node], Asking], list[Node]]] = []
        is_single = True
        while True:
            at = self._at
            self._skip()
            if deep := self._take(".."):
                is_single = False
            elif not self._text.startswith((".", "["), self._at):
                self._at = at
                return make_query(segments, is_root=is_root), is_single
            if self._take("["):
                selectors, is_singular = self._selectors()
            else:
                if not deep:
                    self._need(".")
                selectors, is_singular = self._shorthand()
            is_single &= is_singular
            segments.append(make_segment(selectors, deep=deep))

    def _shorthand(self) -> tuple[list[Selector], bool]:
        if self._take("*"):
            return [every_child], False
        name = self._match(_WORD)
        if name is None:
            raise self._mistake("name")
        return [by_name(name[0])], True

    def _selectors(self) -> tuple[list[Selector], bool]:
        selectors, is_singular = [], True
        while True:
            self._skip()
            selector, is_single = self._selector()
            selectors.append(selector)
            is_singular &= is_single
            self._skip()
            if self._take("]"):
                return selectors, is_singular and len(selectors) == 1
            self._need(",")

    def _selector(self) -> tuple[Selector, bool]:
        if self._take("*"):
            return every_child, False
        if self._take("?"):
            self._enter()
            self._skip()
            test = self._any_of()
            self._depth -= 1
            return by_test(test), False
        if self._text.startswith(("'", '"'), self._at):
            return by_name(self._string()), True
        begin = self._integer()
        self._skip()
        if begin is not None and not self._text.startswith(":", self._at):
            return by_index(begin), True
        self._need(":")
        self._skip()
        end, step = self._integer(), None
        self._skip()
        if self._take(":"):
            self._skip()
            step = self._integer()
        return by_slice(begin, end, step), False

    def _integer(self) -> int | None:
        match = self._match(_INT)
        if match is None:
            return None
        value = int(match[0])
        if abs(value) > MOST_INDEX:
            raise self._mistake("index of less than 2^53")
        return value

    def _string(self) -> str:
        quote = self._text[self._at]
        match = self._match(_TEXTS[quote])
        if match is None:
            raise self._mistake("text")

        def unescape(escape: re.Match[str]) -> str:
            if escape[1]:
                return chr(int(escape[1], 16))
            if escape[2] != quote and escape[2] not in _ESCAPES:
                raise self._mistake("escape that is known")
            return _ESCAPES.get(escape[2], quote)

        text = _ESCAPE.sub(unescape, match[1])
        try:                                 # two halves become one character
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeError:
            raise self._mistake("whole character") from None

    def _any_of(self) -> Test:
        return self._chain("||", self._all_of, any)

    def _all_of(self) -> Test:
        return self._chain("&&", self._basic, all)

    def _chain(self, mark: str, read: Callable[[], Test],
               join: Callable[[Iterable[bool]], bool]) -> Test:
        tests = [read()]
        self._skip()
        while self._take(mark):
            self._skip()
            tests.append(read())
            self._skip()
        if len(tests) == 1:
            return tests[0]
        return lambda current, asking: join(test(current, asking) for test in tests)

    def _basic(self) -> Test:
        if self._take("!"):
            self._skip()
            if self._text.startswith("(", self._at):
                inner = self._group()
            else:
                _, test, _ = self._operand()
                if test is None:
                    raise self._mistake("test")
                inner = test
            return lambda current, asking: not inner(current, asking)
        if self._text.startswith("(", self._at):
            return self._group()
        operand, test, at = self._operand()
        self._skip()
        operator = self._match(_OPERATOR)
        if operator is None:
            if test is None:
                raise self._mistake("comparison")
            return test
        self._skip()
        other, _, _ = self._operand()
        if operand is None or other is None:
            self._at = at
            raise self._mistake("single value, which can be compared")
        compare, left, right = COMPARE[operator[0]], operand, other
        return lambda current, asking: compare(
            left(current, asking), right(current, asking), asking.steps)

    def _group(self) -> Test:
        self._enter()
        self._need("(")
        self._skip()
        test = self._any_of()
        self._skip()
        self._need(")")
        self._depth -= 1
        return test

    def _operand(self) -> tuple[Value | None, Test | None, int]:
        """The operand as a value and as a test, each None if it is none; and the place
        where it begins."""
        at = self._at
        if (self._text[at:at + 1] or " ") in "@$":
            nodes, is_single = self._inner_query()
            return (_value_of(nodes) if is_single else None,
                    lambda current, asking: bool(nodes(current, asking)), at)
        if (function := self._match(_FUNCTION)) is not None:
            self._enter()
            value, test = self._call(function[1])
            self._depth -= 1
            return value, test, at
        return self._literal(), None, at

    def _inner_query(self) -> tuple[Nodes, bool]:
        is_root = self._take("$")
        if not is_root:
            self._need("@")
        return self._segments(is_root=is_root)

    def _literal(self) -> Value:
        if self._text.startswith(("'", '"'), self._at):
            value: Any = self._string()
        elif (number := self._match(_NUMBER)) is not None:
            value = float(number[0])
            if number[0].lstrip("-").isdigit():
                value = int(number[0])
        else:
            word = next((word for word in _WORDS if self._take(word)), None)
            if word is None:
                raise self._mistake("value")
            value = _WORDS[word]
        return lambda current, asking: value

    def _call(self, name: str) -> tuple[Value | None, Test | None]:
        if name in ("count", "value"):
            self._skip()
            nodes, _ = self._inner_query()
            self._close()
            if name == "count":
                return lambda current, asking: len(nodes(current, asking)), None
            return _value_of(nodes), None
        if name not in ("length", "match", "search"):
            raise self._mistake(f"function {name!r:.40}")
        first = self._argument()
        if name == "length":
            self._close()
            return lambda current, asking: length_of(first(current, asking)), None
        self._skip()
        self._need(",")
        second = self._argument()
        self._close()
        compile_expression("")               # is the library there?
        return None, matches_of(first, second, whole=name == "match")

    def _argument(self) -> Value:
        self._skip()
        value, _, at = self._operand()
        if value is None:
            self._at = at
            raise self._mistake("single value")
        return value

    def _close(self) -> None:
        self._skip()
        self._need(")")


def _value_of(nodes: Nodes) -> Value:
    """The value of the only node; NOTHING: there is none, or more."""
    def value(current: Any, asking: Asking) -> Any:
        selection = nodes(current, asking)
        return selection[0].value if len(selection) == 1 else NOTHING

    return value


class Path:
    def __init__(self, text: str) -> None:
        """Raises KeyMistake."""
        parser = _Parser(text)
        self._find = parser.read_path()

    def find(self, document: Any) -> list[Node]:
        """In order. Raises TooMuch."""
        root = Node(document)
        return self._find(document, Asking(root, Steps(count_parsed(document))))
