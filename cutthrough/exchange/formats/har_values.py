"""Values of an archive as its structs have them: sound ones are kept, odd ones named.

Programs write odd values for unimportant facts: a list in place of a text, a number in
quotes, null. Such a value costs itself alone. If a required value is odd, the entry
cannot be read.
"""

from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

T = TypeVar("T")

# Named odd values of an entry
MOST_NOTES = 20


class Notes:
    """The changes against the file: a line each, and the number beyond a bound."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0

    def add(self, line: str) -> None:
        if len(self._lines) < MOST_NOTES:
            self._lines.append(line)
        else:
            self._more += 1

    def lines(self) -> list[str]:
        return [*self._lines, *([f"and {self._more} more"] if self._more else ())]


def read_struct(table: Any, kind: type[T], notes: Notes) -> T:
    """Raises ValidationError of msgspec: a required value is absent, or odd."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError:
        sound: T = _sound(table, kind, "", notes)
        return sound


def _sound(value: Any, kind: Any, place: str, notes: Notes) -> Any:
    """Numbers may be in quotes, and texts may be numbers."""
    kind = _present(kind)
    if isinstance(value, dict) and isinstance(kind, type) and (
            issubclass(kind, msgspec.Struct)):
        return _sound_struct(value, kind, place, notes)
    if isinstance(value, list) and get_origin(kind) is list:
        (inner,) = get_args(kind)
        return _sound_list(value, inner, place, notes)
    if kind is str and isinstance(value, int | float):
        return str(value)
    return msgspec.convert(value, kind, strict=False)


def _sound_struct(value: dict[Any, Any], kind: Any, place: str, notes: Notes) -> Any:
    values = {}
    for field in msgspec.structs.fields(kind):
        inner = value.get(field.encode_name)
        at = f"{place}.{field.encode_name}" if place else field.encode_name
        if inner is None and not field.required:
            continue
        try:
            values[field.name] = _sound(inner, field.type, at, notes)
        except msgspec.ValidationError as error:
            if not field.required:
                notes.add(f"without {at}: {error}")
            elif str(error).startswith(at):  # of a value inside
                raise
            else:
                raise msgspec.ValidationError(f"{at}: {error}") from None
    return kind(**values)


def _sound_list(value: list[Any], kind: Any, place: str, notes: Notes) -> list[Any]:
    items = []
    for number, inner in enumerate(value):
        at = f"{place}[{number}]"
        try:
            items.append(_sound(inner, kind, at, notes))
        except msgspec.ValidationError as error:
            notes.add(f"without {at}: {error}")
    return items


def _present(kind: Any) -> Any:
    """The type without None."""
    if get_origin(kind) in (Union, UnionType):
        left = [inner for inner in get_args(kind) if inner is not type(None)]
        return left[0] if len(left) == 1 else kind
    return kind
