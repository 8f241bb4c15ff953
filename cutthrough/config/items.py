"""Mistakes in items of a list, each with its own place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ItemsError(ValueError):
    """Items of a list, with the reason by the number of each. `placed`: the numbers are
    those of the list that was given."""

    def __init__(self, reasons: Mapping[int, str], placed: bool) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons, self.placed = reasons, placed


def reasons_of(error: Exception) -> list[tuple[tuple[int, ...], str]]:
    """The reasons of an error of parse_value, each with the path of its item."""
    if isinstance(error, ItemsError):
        return [((number,) if error.placed else (), reason)
                for number, reason in error.reasons.items()]
    return [((), str(error))]


def parse_items(parse: Callable[[str], Any], items: Sequence[str], placed: bool
                ) -> tuple[Any, ...]:
    """Raises ItemsError with the reasons of all items that `parse` refuses."""
    values, reasons = [], dict[int, str]()
    for number, item in enumerate(items):
        try:
            values.append(parse(item))
        except ValueError as error:
            reasons[number] = str(error)
    if reasons:
        raise ItemsError(reasons, placed)
    return tuple(values)
