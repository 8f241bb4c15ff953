"""docs/config.md and options.py, made from the one definition of the options.

One row for each option: its three names, what it takes, its default and where that
comes from, and what a reload does about it. A test holds the committed files to this.
"""

from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

from cutthrough.config.config import DEFAULTS, OPTIONS, Config
from cutthrough.config.settings import flag_name, variable_name
from cutthrough.config.values import (
    FLAG,
    Kind,
    parse_admin,
    parse_count,
    parse_duration,
    parse_flag,
    parse_listen,
    parse_override,
    parse_size,
    show_value,
)

OPENING = """\
# Every option

Made by `make docs` from `cutthrough/config/config.py`; change it there.

One option is one flag, one variable and one key of the TOML file of `-c` (or
`CUTTHROUGH_CONFIG`). A flag goes before the variable, that before the file, that before
the default. `cutthrough check` says all that is wrong with them and with the files that
they name, each with source, line, key and reason, and exits 2; `cutthrough config`
prints what is in force and where it was said, secrets left out; `cutthrough config
--effective` adds what comes of it on this host.

An unknown flag or key is an error, and so is a variable that resembles one of these.
Other variables that begin with `CUTTHROUGH_` are somebody else's (Kubernetes makes some
for a service of that name). An empty variable counts as absent.

- time: numbers with units, `100ms`, `10s`, `1m30s`, `1.5h`, `1d`; or `0`.
- size: bytes, as `512B`, `64KiB`, `1MiB`, `1GiB` or a plain number. `10M`, `10m` and
  `10MB` are `10MiB`, as nginx, HAProxy and squid read them.
- list: commas between, the flag repeated, or a TOML array.
- secrets come from a file too, whose one line they are: `password_file` for `password`.
- paths are taken from the working directory, wherever they are said.

A file to begin with is what `cutthrough config` prints, or no more than

    listen = ["192.0.2.1:3128"]
    users_file = "/etc/cutthrough/users"
    policy = "/etc/cutthrough/policy.toml"
    access_log = "/var/log/cutthrough/access.log"
    idle_timeout = "5m"

The last column: what SIGHUP does about a change. *swapped*: the running workers take it
over, for what begins from then on. *new workers*: each is replaced, and the old one
finishes what it has in hand. Nobody is refused by either.
"""
HEAD = """\
| key | flag | variable | takes | default | reload |
|---|---|---|---|---|---|"""
NOUNS: dict[Callable[[str], Any], str] = {
    parse_duration: "time",
    parse_size: "size",
    parse_count: "number",
    parse_flag: "true or false",
    parse_listen: "address:port",
    parse_admin: "address:port or unix:path",
}


def render() -> str:
    """Returns the whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield OPENING
    for name, (kind, text, why, section, file, swapped) in OPTIONS.items():
        if section:
            yield from ([] if name == "listen" else [""])
            yield f"## {section}\n\n{HEAD}"
        secret = "; secret" if file else ""
        reload = "swapped" if swapped else "new workers"
        yield "| " + " | ".join(_cell(cell) for cell in (
            f"`{name}`", f"`{flag_name(name)}`", f"`{variable_name(name)}`",
            f"{takes(kind)}{secret}: {text}", default(name, kind, why), reload)) + " |"
    yield ""


def takes(kind: Kind) -> str:
    """What an option takes, with its bounds."""
    noun = NOUNS.get(kind.parse) or kind.metavar
    if noun == kind.metavar:                 # of words, and what has a form of its own
        return f"list of `{noun}`" if kind.many else f"`{noun}`"
    if kind.low is not None and kind.high is not None:
        number = float if kind.parse is parse_duration else int
        low, high = (kind.show(number(n)) for n in (kind.low, kind.high))
        noun += f" from {low} to {high}"
    if kind.many:
        noun = f"list of {noun}"
    words = [word for word in kind.words if word not in noun]
    return " or ".join([*(f"`{word}`" for word in words), noun])


def default(name: str, kind: Kind, why: str) -> str:
    """The default and its reason, which may begin by repeating it."""
    shown = show_value(kind, DEFAULTS[name])
    if not shown:
        return why if why.startswith("none") else f"none: {why}"
    return f"`{shown}`: " + why.removeprefix(f"{shown}: ")


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


# cutthrough/config/options.py, made of the same definition

TYPES = """\
\"\"\"The options of `cutthrough.serve`, for type checkers.

Made by `make docs` from cutthrough/config/config.py; change it there.
docs/config.md says what each of them means. Left out are those that only the program
has; `policy` and `policy_hook` are parameters of their own, because they take objects.
\"\"\"

from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypedDict


class Options(TypedDict, total=False):
"""
# Of the program alone: it makes processes and has an admin listener
OF_PROGRAM = ("workers", "pin", "loop", "admin", "fleet", "policy", "policy_hook")
ITEMS: dict[Callable[[str], Any], str] = {
    parse_count: "int | str",
    parse_listen: "str | tuple[str, int]",
    parse_override: "str | tuple[str, str]",
}


def render_types() -> str:
    """Returns the whole module."""
    hints = get_type_hints(Config)
    return TYPES + "".join(
        f"    {name}: {type_of(option.kind, hints[name])}\n"
        for name, option in OPTIONS.items()
        if name not in OF_PROGRAM and name.partition("_")[0] not in OF_PROGRAM[:5])


def type_of(kind: Kind, hint: Any) -> str:
    """What an option takes from Python: its value, or a text."""
    if kind.many:
        return f"str | Sequence[{ITEMS.get(kind.parse, 'str')}]"
    if kind is FLAG:
        return "bool | str"
    if kind.parse is parse_duration:
        return "float | str"
    if hint is int:
        return "int | str"
    if kind.metavar == "FILE":
        return "str | PathLike[str]"
    return "str" if hint is str else str(hint).removeprefix("typing.").replace("'", '"')
