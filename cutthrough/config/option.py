"""The definitions of options, and of tables whose rows have keys of their own."""

from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from cutthrough.config.mistake import Mistake, Place
from cutthrough.config.values import Kind

# The place of a value below an option: number or name of a row, and key
RowPath = tuple[str | int, ...]


class ConfigError(Mistake):
    """A configuration that cannot be used: its source, the key and the reason.

    `path`: in a table, the row and its key.
    """

    def __init__(self, source: str, key: str, reason: str, place: Place | None = None,
                 path: RowPath = ()) -> None:
        super().__init__(source, key, reason, place)
        self.path = path

    @property
    def where(self) -> str:
        return self.key + show_path(self.path)


def show_path(path: RowPath, numbered: bool = True) -> str:
    """The path behind a table's name: `[0].address`, `.NAME.address`. A row's number is
    left out if a file's line shows the row."""
    return "".join(
        (f"[{part}]" if numbered else "") if isinstance(part, int) else f".{part}"
        for part in path)


class Option(NamedTuple):
    """The definition of an option: nothing else lists options by name."""

    kind: Kind                               # parser of a value, with unit and bounds
    help: str
    why: str                                 # source of the default
    section: str = ""                        # title of the section that begins here
    file: str = ""                           # of a secret: the option for its file
    stand_in: str = "-"                      # of a secret: a value while its file may
                                             # not be read
    swapped: bool = False                    # a reload changes it in running workers;
                                             # False: it replaces the workers
    of_program: bool = False                 # an embedded proxy does not have it


class Table(NamedTuple):
    """The definition of a kind of tables: `[[listeners]]`, or `[parents.NAME]`.

    `row` has an Option for each key. Its first field identifies a row; in a named table
    it is the name, and has no Option. A row raises ConfigError (with an empty source)
    if its keys contradict each other. A key with `file` is a secret: the file of that
    other key is its only source.
    """

    row: type[msgspec.Struct]
    help: str
    named: bool = False
    not_meant: str = ""                      # added to the mistake of another type
    swapped: bool = False                    # a reload adds, moves and removes rows in
                                             # running workers
    of_program: bool = False                 # an embedded proxy does not have it

    @property
    def options(self) -> dict[str, Option]:
        return options_of(self.row)

    @property
    def identity(self) -> str:
        """The field that identifies a row."""
        return self.row.__struct_fields__[0]

    def header(self, name: str, row: str = "NAME") -> str:
        return f"[{name}.{row}]" if self.named else f"[[{name}]]"


def options_of(struct: type[msgspec.Struct]) -> dict[str, Option]:
    return _annotated(struct, Option)


def tables_of(struct: type[msgspec.Struct]) -> dict[str, Table]:
    return _annotated(struct, Table)


def defaults_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The default of each field; NODEFAULT for a key that a row must have."""
    return {field.name: field.default for field in msgspec.structs.fields(struct)}


def _annotated(struct: type[msgspec.Struct], kind: type[Any]) -> dict[str, Any]:
    """Returns the annotations by name: the struct's own fields, then those of its
    bases."""
    hints = get_type_hints(struct, include_extras=True)
    names = sorted(hints, key=lambda name: name not in struct.__annotations__)
    return {name: extra for name in names for extra in get_args(hints[name])
            if isinstance(extra, kind)}
