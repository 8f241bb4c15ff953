"""Tables of the configuration: rows with keys of their own, from values and back.

A table's keys are declared as Config's options are: the fields of a struct, each with
an Option. So a key has the same kinds, the same documentation and the same behaviour at
a reload. Tables come from the file or from Python; they have no flag and no variable.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from cutthrough.config.items import reasons_of
from cutthrough.config.mistake import Mistake, nearest, noting
from cutthrough.config.option import ConfigError, Option, RowPath, Table, defaults_of
from cutthrough.config.toml import Path
from cutthrough.config.values import (
    MOST_ITEMS,
    Kind,
    parse_row_name,
    parse_value,
    show_toml,
    show_value,
)


class Source(Protocol):
    """The file or table that rows come from."""

    def text_of(self, kind: Kind, value: Any, /) -> Any:
        """Returns a value's text. Raises ValueError or TypeError."""

    def blame(self, reason: str, path: RowPath, of_key: bool = False) -> ConfigError:
        """Makes the mistake about a row, a value or a key."""

    def read_secret(self, file: str, path: RowPath) -> str:
        """Reads the file that the key at `path` names. Raises ConfigError."""


class Change(NamedTuple):
    """A difference between two configurations, in words."""

    text: str
    swapped: bool                            # running workers can apply it


def read_rows(table: Table, name: str, value: Any, source: Source,
              mistakes: list[Mistake]) -> tuple[msgspec.Struct, ...]:
    """Returns the valid rows of `value`; appends the mistakes of the others."""
    if table.named and isinstance(value, Mapping):
        rows = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str) and (
            not table.named or all(isinstance(item, table.row) for item in value)):
        rows = dict(enumerate(value)).items()
    else:
        mistakes.append(source.blame(f"takes tables: {table.header(name)}", ()))
        return ()
    if len(rows) > MOST_ITEMS:
        mistakes.append(source.blame(f"there are more than {MOST_ITEMS}", ()))
        return ()
    structs = [keys if isinstance(keys, table.row)
               else _read_row(table, row, keys, source, mistakes) for row, keys in rows]
    return tuple(struct for struct in structs if struct is not None)


def _read_row(table: Table, row: str | int, keys: Any, source: Source,
              mistakes: list[Mistake]) -> msgspec.Struct | None:
    if not isinstance(keys, Mapping):
        mistakes.append(source.blame(f"takes a table{table.not_meant}", (row,)))
        return None
    options, values, own = table.options, dict[str, Any](), list[Mistake]()
    if table.named:
        try:
            values[table.identity] = parse_row_name(str(row))
        except ValueError as error:
            own.append(source.blame(str(error), (row,)))
    for key, value in keys.items():
        if key not in options or options[key].file:
            own.append(source.blame(_no_key(key, options), (row, key), True))
            continue
        try:
            kind = options[key].kind
            values[key] = parse_value(kind, source.text_of(kind, value))
        except (ValueError, TypeError) as error:
            own += [source.blame(reason, (row, key, *path))
                    for path, reason in reasons_of(error)]
    for key, default in defaults_of(table.row).items():
        # Not if there is an unknown key, because it may be the missing one, misspelt
        if default is msgspec.NODEFAULT and key in options and key not in keys and (
                options.keys() >= keys.keys()):
            own.append(source.blame(f"{key} is missing", (row,)))
    for secret, option in options.items():
        if option.file and values.get(option.file):
            with noting(own):
                values[secret] = source.read_secret(
                    values[option.file], (row, option.file))
    mistakes += own
    if not own:
        try:
            return table.row(**values)
        except ConfigError as error:
            mistakes += [source.blame(mistake.reason, (row, mistake.key))
                         for mistake in error.all]
    return None


def _no_key(key: str, options: Mapping[str, Option]) -> str:
    if key in options:
        return f"is a secret, which only a file may hold: give {options[key].file}"
    known = [name for name, option in options.items() if not option.file]
    near = nearest(key, known)
    return "no such key" + (f"; did you mean {near}?" if near
                            else f"; the keys are {', '.join(known)}")


def is_secret(table: Table, path: Path) -> bool:
    """Whether the value at this path below the table must not be shown: a secret, or
    the value of an unknown key."""
    keys = [part for part in path if isinstance(part, str)][table.named:]
    option = table.options.get(keys[0]) if keys else None
    return option is None or bool(option.file)


def render_rows(table: Table, name: str, rows: Sequence[msgspec.Struct],
                source: str) -> Iterator[str]:
    """The lines of a TOML file with these rows, without secrets."""
    defaults = defaults_of(table.row)
    for row in rows:
        yield from ("", table.header(name, str(getattr(row, table.identity))))
        for key, option in table.options.items():
            value = getattr(row, key)
            if option.file:
                yield f"# {key} {'is set' if value else 'is not set'}"
                continue
            mark = "# " if value == "" else ""
            origin = "default" if value == defaults[key] else source
            yield f"{mark}{key} = {show_toml(option.kind, value)}  # {origin}"


def compare(table: Table, name: str, old: Sequence[msgspec.Struct],
            new: Sequence[msgspec.Struct]) -> Iterator[Change]:
    """The differences, secrets by name only (R37)."""
    was, now = _by_identity(table, old), _by_identity(table, new)
    for key in was.keys() - now.keys():
        yield Change(f"{name} {key[0]} removed", table.swapped)
    for key in now.keys() - was.keys():
        yield Change(f"{name} {key[0]} added", table.swapped)
    if was.keys() == now.keys() and list(was) != list(now):
        yield Change(f"{name} in another order", table.swapped)
    for key in [key for key in now if key in was]:
        for field, option in table.options.items():
            before, after = getattr(was[key], field), getattr(now[key], field)
            if before != after:
                shown = "" if option.file else (
                    f" {show_value(option.kind, before) or '(none)'} -> "
                    f"{show_value(option.kind, after) or '(none)'}")
                yield Change(f"{name} {key[0]} {field}{shown}", option.swapped)


def _by_identity(table: Table, rows: Sequence[msgspec.Struct]
                 ) -> dict[tuple[str, int], msgspec.Struct]:
    """Each row by its identity, and its number among equal ones: two listeners may have
    port 0."""
    by_identity: dict[tuple[str, int], msgspec.Struct] = {}
    option = table.options.get(table.identity)
    for row in rows:
        value = getattr(row, table.identity)
        text = show_value(option.kind, value) if option else str(value)
        number = sum(1 for shown, _ in by_identity if shown == text)
        by_identity[text, number] = row
    return by_identity
