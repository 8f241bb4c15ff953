"""How much an XPath 1.0 may cost, before it is evaluated (R67).

libxml2 cannot be stopped, and `//*[count(//*[count(//*) > 1]) > 1]` takes the cube of
the number of nodes. So an expression is read here into its steps at worst, a number
for a document of so many nodes and characters; one that may take too many for any
document is refused when it is read, and one that may for this document has no match.

Counted are the nodes that each axis may visit from each context, times what its
predicates cost; nodes that libxml2 compares with all that it has already, if two
contexts may have them in common; pairs of nodes; characters of texts.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cutthrough.exchange.bounds import KeyMistake

# Characters of an expression; its nested levels
MOST_TEXT, MOST_NESTED = 2048, 8
# Steps of some 30 ns that any document may take, and those for each node of it
LEAST_STEPS, STEPS_A_NODE = 200_000, 256
# Characters, and comparisons of two nodes, that take as long as a step
_CHARACTERS, _COMPARISONS = 256, 32
_SCALE = 1 << 60

_TOKEN = re.compile(
    r"""\s*+(::|//|\.\.|!=|<=|>=|[()\[\]@,|/.*=<>+\-$]|"[^"]*+"|'[^']*+'|"""
    r"""[0-9]++(?:\.[0-9]*+)?|[^\W\d][\w.-]*+(?::(?:\*|[^\W\d][\w.-]*+))?)""")
_WIDE = {"descendant", "descendant-or-self"}
_SIDE_AXES = {"following", "preceding", "following-sibling", "preceding-sibling"}
_UP = {"ancestor", "ancestor-or-self"}
_OF_TYPE = {"text", "node", "comment", "processing-instruction"}
_OPERATORS = ("or", "and", "=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "div", "mod",
              "|")
# Functions that look for one text in another, octet by octet
_SEARCHES = {"contains", "substring-before", "substring-after", "translate"}


class Size(NamedTuple):
    """The size of a document. `names`: how many elements have a local name. `of_each`:
    the cost is an average, for an expression that is evaluated at each node."""

    nodes: int
    characters: int
    depth: int
    names: Mapping[str, int] | None = None
    of_each: bool = False

    def most(self, axis: str, name: str) -> int:
        """Nodes that a step may select."""
        if name == "*" or axis == "attribute" or self.names is None:
            return self.nodes
        return self.names.get(name.rpartition(":")[2], 0)


# A document that each expression must be able to read
SMALL = Size(100, 10_000, 8)


class Axis(NamedTuple):
    """A step of a path. `name`: *: any."""

    axis: str
    name: str
    predicates: "list[Read]"


class Cost(NamedTuple):
    """The cost of one evaluation, at worst."""

    steps: int
    nodes: int = 0                           # of the result; 0: it is no set of nodes
    text: int = 1                            # characters of the result as a text


Read = Callable[[Size], Cost]


@functools.lru_cache(256)
def read_cost(text: str) -> Callable[[Size], int]:
    """The steps by the size of the document. Raises KeyMistake."""
    parser = _Parser(text)
    read = parser.read_whole()
    if read(SMALL).steps > most_steps(SMALL.nodes):
        raise KeyMistake(f"{text!r:.100} may take too many steps")
    return lambda size: read(size).steps


def most_steps(nodes: int) -> int:
    return LEAST_STEPS + STEPS_A_NODE * nodes


def _whole(size: Size) -> Cost:
    """The set of the root alone."""
    return Cost(1, 1, size.characters)


def _path(first: Read, axes: list[Axis], *, is_relative: bool) -> Read:
    """All nodes of a document together have no more children than it has nodes, so each
    has one, on average; likewise they have its descendants, once for each level, and
    its characters. That holds as long as a relative path goes down."""
    def read(size: Size) -> Cost:
        steps, nodes, text = first(size)
        nodes, each = max(1, nodes), is_relative and size.of_each
        for axis, name, predicates in axes:
            most = size.most(axis, name)
            times = 1                        # that a node may be visited
            if axis in _SIDE_AXES:
                visited, times = nodes * size.nodes, nodes
            elif axis in _UP:
                visited, times = nodes * size.depth, nodes
            elif axis in _WIDE:
                times = size.depth if each else min(nodes, size.depth)
                visited = times * (nodes if each else size.nodes)
            elif axis == "parent":
                visited, times = nodes, nodes
            else:
                visited = nodes if each or axis == "self" else size.nodes
            each = each and axis not in _SIDE_AXES and (
                axis not in _UP and axis != "parent")
            selected = min(visited, times * most)
            steps += visited
            if times > 1:
                steps += selected * min(selected, most) // _COMPARISONS
            for predicate in predicates:
                steps += min(
                    selected * (1 + predicate(size._replace(of_each=False)).steps),
                    max(selected, size.nodes) * (
                        1 + predicate(size._replace(of_each=True)).steps))
            nodes = min(most, selected)
            steps = min(_SCALE, steps)
        if each:
            text = 1 + size.depth * size.characters // max(1, size.nodes)
        return Cost(steps, nodes, text)

    return read


def _binary(operator: str, left: Read, right: Read) -> Read:
    def read(size: Size) -> Cost:
        a, b = left(size), right(size)
        steps = a.steps + b.steps + 1
        if operator == "|":                  # duplicates are looked for
            return Cost(min(_SCALE, steps + a.nodes * b.nodes // _COMPARISONS),
                        a.nodes + b.nodes, max(a.text, b.text))
        if operator not in ("and", "or"):    # each node's text
            steps += sum(max(1, c.nodes) * (1 + c.text // _CHARACTERS) for c in (a, b))
            steps += a.nodes * b.nodes
        return Cost(min(_SCALE, steps))

    return read


def _call(name: str, arguments: list[Read]) -> Read:
    def read(size: Size) -> Cost:
        costs = [argument(size) for argument in arguments]
        text = sum(cost.text for cost in costs)
        steps = 1 + sum(cost.steps for cost in costs)
        if name in _SEARCHES and len(costs) > 1:
            steps += costs[0].text * costs[1].text // _CHARACTERS
        if name in ("sum", "id"):
            steps += sum(cost.nodes * (1 + cost.text // _CHARACTERS) for cost in costs)
            return Cost(min(_SCALE, steps), size.nodes if name == "id" else 0, text)
        if name not in ("count", "position", "last", "not", "boolean", "true", "false",
                        "name", "local-name", "namespace-uri"):
            steps += (1 + len(costs)) * (1 + text // _CHARACTERS)
            if not costs:                    # of the context
                steps += size.characters // _CHARACTERS
                text = size.characters
        return Cost(min(_SCALE, steps), 0, max(1, text))

    return read


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > MOST_TEXT:
            raise KeyMistake(f"an XPath is longer than {MOST_TEXT} characters")
        self._text = text
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._mistake()
            self._tokens.append(match[1])
            at = match.end()
        self._tokens.append("")
        self._at = 0
        self._depth = 0

    def _mistake(self) -> KeyMistake:
        return KeyMistake(f"{self._text!r:.100} is no XPath that is read here")

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self, *tokens: str) -> str:
        token = self._next
        if not token or token not in tokens:
            return ""
        self._at += 1
        return token

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._mistake()

    def read_whole(self) -> Read:
        expression = self._expression()
        if self._next:
            raise self._mistake()
        return expression

    def _expression(self) -> Read:
        """Operators without their precedence: costs are sums, whatever comes first."""
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise KeyMistake(f"{self._text!r:.100} is nested more than {MOST_NESTED} "
                             "times")
        expression = self._operand()
        while operator := self._take(*_OPERATORS):
            expression = _binary(operator, expression, self._operand())
        self._depth -= 1
        return expression

    def _operand(self) -> Read:
        while self._take("-"):
            pass
        token, behind = self._next, self._tokens[self._at + 1:self._at + 2]
        first: Read | None = None
        if token == "(":
            self._at += 1
            first = self._expression()
            self._need(")")
        elif token[:1] in ("'", '"') or token[:1].isdigit():
            self._at += 1
            cost = Cost(1, 0, len(token))
            return lambda size: cost
        elif behind == ["("] and token not in _OF_TYPE:
            self._at += 2
            first = self._call(token)
        if first is None:
            return self._location()
        predicates = self._predicates()
        if predicates or self._next in ("/", "//"):
            axes = [Axis("self", "*", predicates), *self._steps()]
            return _path(first, axes, is_relative=False)
        return first

    def _call(self, name: str) -> Read:
        arguments = []
        if not self._take(")"):
            arguments.append(self._expression())
            while self._take(","):
                arguments.append(self._expression())
            self._need(")")
        return _call(name, arguments)

    def _location(self) -> Read:
        if self._next in ("/", "//"):
            axes = self._steps()
            return _path(_whole, axes, is_relative=False)
        return _path(_whole, [self._step(), *self._steps()], is_relative=True)

    def _steps(self) -> list[Axis]:
        """Reads the steps behind a node."""
        axes: list[Axis] = []
        while mark := self._take("/", "//"):
            if mark == "/" and not axes and not self._begins_step():
                break                        # the root itself
            step = self._step()
            if mark == "//":                 # of two steps libxml2 makes one, or not
                if step.axis == "child" and not step.predicates:
                    step = Axis("descendant", step.name, [])
                else:
                    axes.append(Axis("descendant-or-self", "*", []))
            axes.append(step)
        return axes

    def _begins_step(self) -> bool:
        token = self._next
        return token in (".", "..", "@", "*") or token[:1].isalpha() or (
            token[:1] == "_")

    def _step(self) -> Axis:
        if token := self._take(".", ".."):
            return Axis("self" if token == "." else "parent", "*", [])
        axis = "child"
        if self._take("@"):
            axis = "attribute"
        elif self._tokens[self._at + 1:self._at + 2] == ["::"]:
            axis = self._next
            self._at += 2
        if not self._begins_step() or self._next in (".", "..", "@"):
            raise self._mistake()
        name = self._next
        self._at += 1
        if name in _OF_TYPE and self._take("("):
            if self._next[:1] in ("'", '"') and self._next:
                self._at += 1
            self._need(")")
            name = "*"
        return Axis(axis, name, self._predicates())

    def _predicates(self) -> list[Read]:
        predicates = []
        while self._take("["):
            predicates.append(self._expression())
            self._need("]")
        return predicates
