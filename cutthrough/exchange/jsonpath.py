"""JSONPath (RFC 9535): an expression -> a path that selects values of a document.

    Path(text).find(document)  ─>  nodes: value, parent, key

Each node that is visited or compared is a step, and their number is bounded by the
number of the document's values (R67). Expressions in `match` and `search` run on RE2.
The parser reads each character once; it is separate from the evaluation, which is made
of closures: what a selector selects of one node, what a filter says of one.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cutthrough.exchange.bounds import KeyMistake, Steps
from cutthrough.exchange.expressions import Expression, compile_expression
from cutthrough.exchange.scan import count_parsed

# Characters of a path; what is nested in it
MOST_PATH, MOST_NESTED = 4096, 16
# Characters of texts that are compared in one step
_CHARACTERS = 256
# The range of exact integers (section 2.1)
_MOST_INDEX = (1 << 53) - 1

Part = str | int


class Node(NamedTuple):
    value: Any
    parent: "Node | None" = None
    key: Part = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Where it is, from the root."""
        found, node = list[Part](), self
        while node.parent is not None:
            found.append(node.key)
            node = node.parent
        return tuple(reversed(found))


class Asking(NamedTuple):
    """One evaluation: the root of the document, and the steps that are left."""

    root: Node
    steps: Steps


class Nothing:
    """The value of what is absent (section 2.4.1)."""


NOTHING = Nothing()

Selector = Callable[[Node, Asking], Sequence[Node]]
Value = Callable[[Any, Asking], Any]
Test = Callable[[Any, Asking], bool]
Nodes = Callable[[Any, Asking], list[Node]]


class Path:
    def __init__(self, text: str) -> None:
        """Raises KeyMistake."""
        parser = _Parser(text)
        self._find = parser.read_path()

    def find(self, document: Any) -> list[Node]:
        """In order. Raises TooMuch."""
        root = Node(document)
        return self._find(document, Asking(root, Steps(count_parsed(document))))


# --- selectors ---------------------------------------------------------------------

def _children(node: Node) -> Sequence[Node]:
    value = node.value
    if isinstance(value, dict):
        return [Node(inner, node, key) for key, inner in value.items()]
    if isinstance(value, list):
        return [Node(inner, node, key) for key, inner in enumerate(value)]
    return ()


def _descend(node: Node, asking: Asking) -> Iterator[Node]:
    """The node and all in it, a parent before its children."""
    left = [node]
    while left:
        node = left.pop()
        asking.steps.take()
        yield node
        if isinstance(node.value, dict | list):
            left += reversed(_children(node))


def _name(name: str) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        value = node.value
        if isinstance(value, dict) and name in value:
            return (Node(value[name], node, name),)
        return ()

    return select


def _index(index: int) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        value = node.value
        if isinstance(value, list) and -len(value) <= index < len(value):
            return (Node(value[index], node, index % len(value)),)
        return ()

    return select


def _slice(begin: int | None, end: int | None, step: int | None) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        value = node.value
        if not isinstance(value, list) or step == 0:
            return ()
        return [Node(value[at], node, at)
                for at in range(*slice(begin, end, step).indices(len(value)))]

    return select


def _every(node: Node, asking: Asking) -> Sequence[Node]:
    return _children(node)


def _filter(test: Test) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        children = _children(node)
        asking.steps.take(len(children))
        return [one for one in children if test(one.value, asking)]

    return select


def _segment(selectors: list[Selector], *, deep: bool
             ) -> Callable[[list[Node], Asking], list[Node]]:
    def follow(nodes: list[Node], asking: Asking) -> list[Node]:
        made: list[Node] = []
        for node in nodes:
            for one in _descend(node, asking) if deep else (node,):
                for select in selectors:
                    selected = select(one, asking)
                    asking.steps.take(1 + len(selected))
                    made += selected
        return made

    return follow


def _query(segments: list[Callable[[list[Node], Asking], list[Node]]], *, is_root: bool
           ) -> Nodes:
    def find(current: Any, asking: Asking) -> list[Node]:
        nodes = [asking.root if is_root else Node(current)]
        for follow in segments:
            nodes = follow(nodes, asking)
        return nodes

    return find


# --- filters -----------------------------------------------------------------------

def is_same(one: Any, other: Any, steps: Steps) -> bool:
    """Whether two values are equal. True is not 1. Raises TooMuch."""
    steps.take()
    if isinstance(one, str):
        steps.take(len(one) // _CHARACTERS)
        return isinstance(other, str) and one == other
    if isinstance(one, dict):
        return isinstance(other, dict) and len(one) == len(other) and all(
            key in other and is_same(value, other[key], steps)
            for key, value in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(
            is_same(*pair, steps) for pair in zip(one, other, strict=True))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _is_less(one: Any, other: Any, steps: Steps) -> bool:
    steps.take()
    if isinstance(one, str) and isinstance(other, str):
        steps.take(len(one) // _CHARACTERS)
        return one < other
    return _is_number(one) and _is_number(other) and bool(one < other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_COMPARE: dict[str, Callable[[Any, Any, Steps], bool]] = {
    "==": is_same,
    "!=": lambda one, other, steps: not is_same(one, other, steps),
    "<": _is_less,
    ">": lambda one, other, steps: _is_less(other, one, steps),
    "<=": lambda one, other, steps: (
        _is_less(one, other, steps) or is_same(one, other, steps)),
    ">=": lambda one, other, steps: (
        _is_less(other, one, steps) or is_same(one, other, steps))}


def _length(value: Any) -> Any:
    return len(value) if isinstance(value, str | dict | list) else NOTHING


def _matches(text: Value, pattern: Value, *, whole: bool) -> Test:
    def matches(current: Any, asking: Asking) -> bool:
        subject, wanted = text(current, asking), pattern(current, asking)
        if not isinstance(subject, str) or not isinstance(wanted, str):
            return False
        asking.steps.take(1 + (len(subject) + len(wanted)) // 16)
        try:
            compiled: Expression = compile_expression(wanted)
        except KeyMistake:
            return False
        asking.steps.take(compiled.cost(subject))
        # Half of a character is in no text of UTF-8
        subject = subject.encode(errors="replace").decode()
        return (compiled.fullmatch(subject) if whole else
                compiled.search(subject)) is not None

    return matches


# --- the parser --------------------------------------------------------------------

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
        """Behind $ or @. The second: it selects one node at most."""
        segments: list[Callable[[list[Node], Asking], list[Node]]] = []
        is_single = True
        while True:
            at = self._at
            self._skip()
            if deep := self._take(".."):
                is_single = False
            elif not self._text.startswith((".", "["), self._at):
                self._at = at
                return _query(segments, is_root=is_root), is_single
            if self._take("["):
                selectors, is_one = self._selectors()
            else:
                if not deep:
                    self._need(".")
                selectors, is_one = self._shorthand()
            is_single &= is_one
            segments.append(_segment(selectors, deep=deep))

    def _shorthand(self) -> tuple[list[Selector], bool]:
        if self._take("*"):
            return [_every], False
        name = self._match(_WORD)
        if name is None:
            raise self._mistake("name")
        return [_name(name[0])], True

    def _selectors(self) -> tuple[list[Selector], bool]:
        found, is_one = [], True
        while True:
            self._skip()
            selector, is_single = self._selector()
            found.append(selector)
            is_one &= is_single
            self._skip()
            if self._take("]"):
                return found, is_one and len(found) == 1
            self._need(",")

    def _selector(self) -> tuple[Selector, bool]:
        if self._take("*"):
            return _every, False
        if self._take("?"):
            self._enter()
            self._skip()
            test = self._any_of()
            self._depth -= 1
            return _filter(test), False
        if self._text.startswith(("'", '"'), self._at):
            return _name(self._string()), True
        begin = self._integer()
        self._skip()
        if begin is not None and not self._text.startswith(":", self._at):
            return _index(begin), True
        self._need(":")
        self._skip()
        end, step = self._integer(), None
        self._skip()
        if self._take(":"):
            self._skip()
            step = self._integer()
        return _slice(begin, end, step), False

    def _integer(self) -> int | None:
        match = self._match(_INT)
        if match is None:
            return None
        value = int(match[0])
        if abs(value) > _MOST_INDEX:
            raise self._mistake("index of less than 2^53")
        return value

    def _string(self) -> str:
        quote = self._text[self._at]
        match = self._match(_TEXTS[quote])
        if match is None:
            raise self._mistake("text")

        def unescape(found: re.Match[str]) -> str:
            if found[1]:
                return chr(int(found[1], 16))
            if found[2] != quote and found[2] not in _ESCAPES:
                raise self._mistake("escape that is known")
            return _ESCAPES.get(found[2], quote)

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
        one, test, at = self._operand()
        self._skip()
        operator = self._match(_OPERATOR)
        if operator is None:
            if test is None:
                raise self._mistake("comparison")
            return test
        self._skip()
        other, _, _ = self._operand()
        if one is None or other is None:
            self._at = at
            raise self._mistake("single value, which can be compared")
        compare, left, right = _COMPARE[operator[0]], one, other
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
        """What it is as a value, and as a test; None: it is none. Where it begins."""
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
            return lambda current, asking: _length(first(current, asking)), None
        self._skip()
        self._need(",")
        second = self._argument()
        self._close()
        compile_expression("")               # is the library there?
        return None, _matches(first, second, whole=name == "match")

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
        found = nodes(current, asking)
        return found[0].value if len(found) == 1 else NOTHING

    return value
