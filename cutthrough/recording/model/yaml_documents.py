"""YAML of a file that is imported: bounded in its result (R70).

An alias stands for a whole value, and a few of them for more than any memory has. So
the target of an alias is counted as if it were written out, and bounded by the length
of the file; and so is the number of nodes, which take some 500 bytes each.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import yaml

from cutthrough.exchange.documents import read_file
from cutthrough.exchange.formats.imported import NotImported

# The bound of aliases' values: bytes of their texts, and these for each value
MOST_MADE, MADE_A_BYTE, BYTES_A_NODE = 1 << 20, 4, 16
# Nodes of a file: a cassette of short fields has a node in 9 bytes
MOST_NODES, BYTES_OF_A_NODE = 1 << 16, 6


class Loader(yaml.SafeLoader):
    """Raises YAMLError, with the line, at the node that is too much."""

    may_alias = True

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._nodes_left = MOST_NODES + len(data) // BYTES_OF_A_NODE
        self._made_left = MOST_MADE + MADE_A_BYTE * len(data)
        self._size = 0                       # of the composed values, written out
        self._sizes: dict[int, int] = {}     # of nodes that have an anchor

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = cast("Any", self).peek_event()
        if isinstance(event, yaml.AliasEvent):
            return self._compose_alias(super().compose_node(parent, index), event)
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise _mistake("the file has too many values for its length", event)
        before = self._size
        self._size += BYTES_A_NODE
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            self._size += len(node.value)
        if event.anchor is not None:
            self._sizes[id(node)] = self._size - before
        return node

    def _compose_alias(self, node: Any, event: Any) -> Any:
        if not self.may_alias:
            raise _mistake("has an alias", event)
        size = self._sizes.get(id(node))
        if size is None:
            raise _mistake("an alias is in what it stands for", event)
        self._size += size
        self._made_left -= size
        if self._made_left < 0:
            raise _mistake("aliases stand for too much for the length of the file",
                           event)
        return node


class WithoutAliases(Loader):
    may_alias = False


def _mistake(text: str, event: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)


def load(data: bytes, loader: type[Loader]) -> Any:
    """The document. Raises YAMLError, RecursionError and ValueError."""
    # A mark quotes the text around it, and a message is one line
    try:
        return cast("Callable[..., Any]", yaml.load)(data, loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        if mark is None:
            raise
        raise yaml.YAMLError(f"line {mark.line + 1}, column {mark.column + 1}: "
                             f"{error.problem}") from None


def read_table(path: Path, most: int,
               prepare: Callable[[bytes], bytes] | None = None) -> dict[str, Any]:
    """The table of a file, JSON if its name says so, else YAML without aliases. `most`:
    bytes; `prepare`: of YAML. Raises NotImported and OSError."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise NotImported(f"{path.name} is longer than {most} bytes")
    try:
        table = read_file(data) if path.suffix == ".json" else (
            load(prepare(data) if prepare else data, WithoutAliases))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotImported(f"{path.name}: {error}") from None
    if not isinstance(table, dict):
        raise NotImported(f"{path.name} is no table")
    return table
