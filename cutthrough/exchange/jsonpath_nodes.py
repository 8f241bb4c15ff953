"""Selections and comparisons of a JSONPath (see jsonpath), as closures over nodes, in
counted steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from cutthrough.exchange.bounds import KeyMistake, Steps
from cutthrough.exchange.expressions import Expression, compile_expression

# Characters of texts, compared in one step
_CHARACTERS = 256
# The range of exact integers (section 2.1)
MOST_INDEX = (1 << 53) - 1

Part = str | int


class Node(NamedTuple):
    value: Any
    parent: "Node | None" = None
    key: Part = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The node's path from the root."""
        keys, node = list[Part](), self
        while node.parent is not None:
            keys.append(node.key)
            node = node.parent
        return tuple(reversed(keys))


class Asking(NamedTuple):
    """One evaluation: the root of the document, and the remaining steps."""

    root: Node
    steps: Steps


class Nothing:
    """The value of an absent node (section 2.4.1)."""


NOTHING = Nothing()

Selector = Callable[[Node, Asking], Sequence[Node]]
Value = Callable[[Any, Asking], Any]
Test = Callable[[Any, Asking], bool]
Nodes = Callable[[Any, Asking], list[Node]]



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


def by_name(name: str) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        value = node.value
        if isinstance(value, dict) and name in value:
            return (Node(value[name], node, name),)
        return ()

    return select


def by_index(index: int) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        value = node.value
        if isinstance(value, list) and -len(value) <= index < len(value):
            return (Node(value[index], node, index % len(value)),)
        return ()

    return select


def by_slice(begin: int | None, end: int | None, step: int | None) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        value = node.value
        if not isinstance(value, list) or step == 0:
            return ()
        return [Node(value[at], node, at)
                for at in range(*slice(begin, end, step).indices(len(value)))]

    return select


def every_child(node: Node, asking: Asking) -> Sequence[Node]:
    return _children(node)


def by_test(test: Test) -> Selector:
    def select(node: Node, asking: Asking) -> Sequence[Node]:
        children = _children(node)
        asking.steps.take(len(children))
        return [child for child in children if test(child.value, asking)]

    return select


def make_segment(selectors: list[Selector], *, deep: bool
             ) -> Callable[[list[Node], Asking], list[Node]]:
    def follow(nodes: list[Node], asking: Asking) -> list[Node]:
        selection: list[Node] = []
        for node in nodes:
            for descendant in _descend(node, asking) if deep else (node,):
                for select in selectors:
                    selected = select(descendant, asking)
                    asking.steps.take(1 + len(selected))
                    selection += selected
        return selection

    return follow


def make_query(segments: list[Callable[[list[Node], Asking], list[Node]]], *,
               is_root: bool) -> Nodes:
    def find(current: Any, asking: Asking) -> list[Node]:
        nodes = [asking.root if is_root else Node(current)]
        for follow in segments:
            nodes = follow(nodes, asking)
        return nodes

    return find


# --- filters -----------------------------------------------------------------------

def is_same(left: Any, right: Any, steps: Steps) -> bool:
    """Whether two values are equal. True is not 1. Raises TooMuch."""
    steps.take()
    if isinstance(left, str):
        steps.take(len(left) // _CHARACTERS)
        return isinstance(right, str) and left == right
    if isinstance(left, dict):
        return isinstance(right, dict) and len(left) == len(right) and all(
            key in right and is_same(value, right[key], steps)
            for key, value in left.items())
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(
            is_same(*pair, steps) for pair in zip(left, right, strict=True))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def is_less(left: Any, right: Any, steps: Steps) -> bool:
    steps.take()
    if isinstance(left, str) and isinstance(right, str):
        steps.take(len(left) // _CHARACTERS)
        return left < right
    return is_number(left) and is_number(right) and bool(left < right)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


COMPARE: dict[str, Callable[[Any, Any, Steps], bool]] = {
    "==": is_same,
    "!=": lambda left, right, steps: not is_same(left, right, steps),
    "<": is_less,
    ">": lambda left, right, steps: is_less(right, left, steps),
    "<=": lambda left, right, steps: (
        is_less(left, right, steps) or is_same(left, right, steps)),
    ">=": lambda left, right, steps: (
        is_less(right, left, steps) or is_same(left, right, steps))}


def length_of(value: Any) -> Any:
    return len(value) if isinstance(value, str | dict | list) else NOTHING


def matches_of(text: Value, pattern: Value, *, whole: bool) -> Test:
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
