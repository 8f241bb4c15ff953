"""From the sources to a configuration: flags, environment, a TOML file, a caller.

Every source gives texts by option name. A later source overrides an earlier one, and
each setting remembers its source, because a mistake is reported there.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from cutthrough.config import tables
from cutthrough.config.config import (
    DEFAULTS,
    OPTIONS,
    SECRETS,
    TABLES,
    Config,
    ConfigError,
)
from cutthrough.config.files import FileError, decode, read_file
from cutthrough.config.items import reasons_of
from cutthrough.config.mistake import (
    MOST_NOTED,
    Mistake,
    nearest,
    noting,
    raise_all,
)
from cutthrough.config.option import RowPath, Table, show_path
from cutthrough.config.toml import Path, Places, TomlError, read_toml
from cutthrough.config.values import (
    FILE,
    FLAG,
    Kind,
    parse_text,
    parse_value,
    show_toml,
    show_value,
    text_of_toml,
    text_of_value,
)


class Setting(NamedTuple):
    value: Any
    source: str                              # "default", "environment", a file …
    key: str                                 # its name there
    places: Places | None = None             # of a file's keys

    def blame(self, reason: str, path: RowPath = (),
              of_key: bool = False) -> ConfigError:
        """Makes the mistake about this setting. `path`: about a value in its tables, or
        about the value's key."""
        place = None
        if self.places is not None:
            find = self.places.key if of_key else self.places.value
            place = find(self.key, *path)
        key = self.key + show_path(path, numbered=self.places is None)
        return ConfigError(self.source, key, reason, place)


Settings = dict[str, Setting]

# Tables of a policy file
OF_POLICY = ("users", "groups", "lists", "limits", "faults", "filters", "headers",
             "rules")

# The number of a descriptor: a text that `serve` prints when it serves
ANNOUNCED = "CUTTHROUGH_ANNOUNCED"
# The file's name, and what a program passes on to its successor, or to `serve`
OUR_OWN = {"CUTTHROUGH_CONFIG", "CUTTHROUGH_SUCCEEDS", "CUTTHROUGH_ACTIVATED",
           "CUTTHROUGH_CREDENTIALS", "CUTTHROUGH_TICKETS", "CUTTHROUGH_SERVED",
           "CUTTHROUGH_FILES", "CUTTHROUGH_BEHIND", ANNOUNCED}
# The variables that Kubernetes makes for a service named cutthrough or cutthrough-…,
# except for …_PORT=tcp://…
OF_KUBERNETES = re.compile(
    r"(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT_\d+_[A-Z]+(_[A-Z]+)?)")


def flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_name(name: str) -> str:
    return "CUTTHROUGH_" + name.upper()


def add_flags(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """Adds the flag of every option. Values stay text; an absent flag is None."""
    group: argparse._ActionsContainer = parser
    for name, option in OPTIONS.items():
        kind, text = option.kind, option.help
        if option.section:
            group = parser.add_argument_group(option.section)
        if name in without:
            continue
        shown = show_value(kind, DEFAULTS[name])
        more: dict[str, Any] = {"action": "append"} if kind.many else {}
        if kind is FLAG:
            more = {"nargs": "?", "const": "true"}
        group.add_argument(
            flag_name(name), dest=name, metavar=kind.metavar,
            help=(f"{text} [{shown}]" if shown else text).replace("%", "%%"), **more)


def gather(flags: Mapping[str, Any], environ: Mapping[str, str],
           file: str | None = None, secrets: bool = True,
           mistakes: list[Mistake] | None = None) -> Settings:
    """Reads every source and returns the setting in force of each option.

    `flags` has texts by option name, None for an absent flag. An empty variable counts
    as absent, because containers clear a variable so. An unknown variable is an error
    only if it resembles an option, because other programs use that prefix too. If
    `secrets` is false, the files of secrets are not read. Raises ConfigError with all
    mistakes; if `mistakes` is given, appends them there and returns the valid settings.
    """
    errors: list[Mistake] = []
    settings = {name: Setting(value, "default", name)
                for name, value in DEFAULTS.items()}
    if file is not None:
        with noting(errors):
            texts, rows, places = _read_toml(file, errors)
            errors += _apply(settings, file, str, texts, secrets, places)
            errors += _apply_tables(settings, file, rows, secrets, places)
    variables = {name: environ.get(variable_name(name)) or None for name in OPTIONS}
    errors += _near_misses(environ)
    errors += _apply(settings, "environment", variable_name, variables, secrets)
    arguments = {name: flags.get(name) for name in OPTIONS}
    errors += _apply(settings, "command line", flag_name, arguments, secrets)
    if mistakes is None:
        raise_all(errors)
    else:
        mistakes += errors
    return settings


# The name of a bundle's file of options
IN_BUNDLE = "cutthrough.toml"


def add_bundle(settings: Settings, folder: str, secrets: bool = True) -> list[Mistake]:
    """Adds the options that a bundle's file has and no other source; returns its
    mistakes. Relative paths of FILE options and keys are below `folder`. Raises
    ConfigError if there is no bundle."""
    if not os.path.isdir(folder):
        raise settings["bundle_cache"].blame(
            "has no bundle yet: `cutthrough serve` fetches the first one")
    path = os.path.join(folder, IN_BUNDLE)
    if not os.path.exists(path):
        return []
    mistakes: list[Mistake] = []
    lower = {name: Setting(value, "default", name) for name, value in DEFAULTS.items()}
    texts, rows, places = _read_toml(path, mistakes)
    for name in [name for name in texts if name.startswith("bundle_")]:
        del texts[name]
        mistakes.append(ConfigError(
            path, name, "is not for a bundle", places.key(name)))
    texts = {name: _below(folder, OPTIONS[name].kind, text)
             for name, text in texts.items()}
    rows = {name: _rows_below(folder, TABLES[name], value)
            for name, value in rows.items()}
    mistakes += _apply(lower, path, str, texts, secrets, places)
    mistakes += _apply_tables(lower, path, rows, secrets, places)
    named = {name for name, setting in settings.items() if setting.source != "default"}
    named |= {file for secret, file in SECRETS.items() if secret in named}
    settings |= {name: setting for name, setting in lower.items() if name not in named}
    return mistakes


def _below(folder: str, kind: Kind, value: Any) -> Any:
    """Puts relative paths below the folder; other values stay."""
    if kind.typed != FILE.typed:
        return value
    if isinstance(value, list):
        return [_below(folder, kind, item) for item in value]
    return os.path.join(folder, value) if isinstance(value, str) and value else value


def _rows_below(folder: str, table: Table, rows: Any) -> Any:
    """The same for the keys of a table's rows."""
    def convert(row: Any) -> Any:
        if not isinstance(row, Mapping):
            return row
        return {key: _below(folder, table.options[key].kind, value)
                if key in table.options else value for key, value in row.items()}

    if isinstance(rows, Mapping):
        return {name: convert(row) for name, row in rows.items()}
    return [convert(row) for row in rows] if isinstance(rows, list) else rows


def _apply(settings: Settings, source: str, key_of: Callable[[str], str],
           texts: Mapping[str, Any], secrets: bool = True,
           places: Places | None = None) -> list[Mistake]:
    """Overrides `settings` with one source; returns the mistakes in that source."""
    mistakes: list[Mistake] = []
    for name, text in texts.items():
        if text is None:
            continue
        setting = Setting(None, source, key_of(name), places)
        try:
            settings[name] = setting._replace(
                value=parse_value(OPTIONS[name].kind, text))
        except ValueError as error:
            mistakes += [
                setting.blame(reason, path if places is not None else ())
                for path, reason in reasons_of(error)]
    for secret, by_file in SECRETS.items():
        if texts.get(by_file) is not None:
            if texts.get(secret) is not None:
                mistakes.append(settings[secret].blame(
                    f"is given twice, here and by {key_of(by_file)}"))
            with noting(mistakes):
                settings[secret] = (
                    _read_secret(settings[by_file]) if secrets
                    else Setting(OPTIONS[secret].stand_in, "not read", ""))
        elif texts.get(secret) is not None:
            settings[by_file] = Setting(DEFAULTS[by_file], "default", by_file)
    return mistakes


def _apply_tables(settings: Settings, source: str, values: Mapping[str, Any],
                  secrets: bool = True, places: Places | None = None) -> list[Mistake]:
    """Overrides the tables of `settings` with one source; returns its mistakes."""
    mistakes: list[Mistake] = []
    for name, value in values.items():
        setting = Setting((), source, name, places)
        rows = tables.read_rows(
            TABLES[name], name, value, _Rows(setting, secrets), mistakes)
        settings[name] = setting._replace(value=rows)
    return mistakes


class _Rows:
    """The tables of one kind in one source, for `tables.read_rows`."""

    def __init__(self, setting: Setting, secrets: bool) -> None:
        self._secrets = secrets
        self.blame = setting.blame
        self.text_of = text_of_toml if setting.places else text_of_value

    def read_secret(self, file: str, path: RowPath) -> str:
        if not self._secrets:
            return "-"
        try:
            return read_secret_file(file, "", "")
        except ConfigError as error:
            raise self.blame(error.reason, path) from None


def _read_toml(path: str, mistakes: list[Mistake]
               ) -> tuple[dict[str, Any], dict[str, Any], Places]:
    """Reads a file's keys; returns each value as the text of the equivalent flag, the
    tables as they are, and the places of all.

    A mistake in one key is appended to `mistakes`. Raises ConfigError if the file
    cannot be read at all.
    """
    try:
        text = decode(read_file(path))
        table = read_toml(text, _is_secret)
    except OSError as error:
        raise ConfigError(path, "", error.strerror or str(error)) from None
    except TomlError as error:
        raise ConfigError(path, "", error.reason, error.place) from None
    except ValueError as error:              # a device, not UTF-8, a number of pages
        raise ConfigError(path, "", str(error)) from None
    texts, rows, places = {}, {}, Places(text, _is_secret)
    for key, value in table.items():
        if len(mistakes) >= MOST_NOTED:
            break
        if key in TABLES:
            rows[key] = value
            continue
        reason = _no_option(key, value)
        if reason:
            place = places.key(key) or places.key(key, 0)        # [[key]]
            mistakes.append(ConfigError(path, key, reason, place))
            continue
        try:
            texts[key] = text_of_toml(OPTIONS[key].kind, value)
        except ValueError as error:
            mistakes.append(ConfigError(path, key, str(error), places.value(key)))
    return texts, rows, places


def _is_secret(path: Path) -> bool:
    table = TABLES.get(str(path[0]))
    if table is not None:
        return tables.is_secret(table, path[1:])
    return path[0] not in OPTIONS or path[0] in SECRETS


def _no_option(key: str, value: Any) -> str:
    """The reason why this key of a file is not an option; "" if it is one."""
    if key in OPTIONS:
        return ""
    if key in OF_POLICY:
        return "belongs in the file of `policy`, not here"
    if isinstance(value, dict):
        shown = ", ".join(table.header(name) for name, table in TABLES.items())
        return (f"no such table: options go at the file's top, without [{key}]; the "
                f"tables are {shown}")
    return no_such_option(key, [*OPTIONS, *TABLES])


def no_such_option(key: str, known: Iterable[str]) -> str:
    """Returns the reason, with a similar option if there is one."""
    bare = {name.lstrip("-"): name for name in known}    # dashes do not count
    near = nearest(key.lstrip("-"), bare)
    return "no such option" + (f"; did you mean {bare[near]}?" if near else "")


def _near_misses(environ: Mapping[str, str]) -> Iterator[ConfigError]:
    for key in environ.keys() - OUR_OWN:
        name = key.removeprefix("CUTTHROUGH_")
        if name == key or name.lower() in OPTIONS or not environ[key]:
            continue
        if OF_KUBERNETES.fullmatch(name) or (
                name.endswith("PORT") and "://" in environ[key]):
            continue
        near = nearest(name.lower(), OPTIONS)
        if near:
            yield ConfigError("environment", key, "no such option; did you mean "
                              f"{variable_name(near)}?")


def _read_secret(named: Setting) -> Setting:
    if not named.value:
        raise named.blame("names no file")
    try:
        text = read_secret_file(named.value, named.source, named.key)
    except ConfigError as error:
        raise named.blame(error.reason) from None
    return Setting(text, named.value, "")


def read_secret_file(path: str, source: str, key: str) -> str:
    """Returns a secret's one line without its line end. Raises ConfigError."""
    try:
        text = parse_text(
            decode(read_file(path)).replace("\r\n", "\n").removesuffix("\n"))
    except OSError as error:
        raise ConfigError(source, key, f"{path}: {error.strerror or error}") from None
    except FileError as error:
        raise ConfigError(source, key, f"{path}: {error}") from None
    except ValueError:                       # a control character
        raise ConfigError(source, key, f"{path}: is not one line of text") from None
    if not text:
        raise ConfigError(source, key, f"{path}: is empty")
    return text


def build(settings: Settings) -> Config:
    """Makes the Config; a contradiction is reported with the source of its option."""
    values = {name: setting.value for name, setting in settings.items()}
    if values["listeners"] and settings["listen"].source == "default":
        values["listen"] = ()
    try:
        return Config(**values)
    except ConfigError as error:
        mistakes = [mistake for mistake in error.all
                    if isinstance(mistake, ConfigError)]
    first, *others = [settings[mistake.key].blame(mistake.reason, mistake.path)
                      for mistake in mistakes]
    raise first.with_others(others)


def load(argv: Sequence[str] = (), environ: Mapping[str, str] | None = None,
         file: str | None = None) -> Config:
    """Returns the Config of these flags, this environment and this TOML file."""
    parser = argparse.ArgumentParser(prog="cutthrough", allow_abbrev=False)
    add_flags(parser)
    return build(gather(vars(parser.parse_args(argv)), environ or {}, file))


def from_options(base: Config | None = None, **options: Any) -> Config:
    """Returns `base` (or the defaults) with options given as values or as their text.

    For embedding: `from_options(head_timeout="200ms", max_fields=50)`. A table is given
    as a list of its rows, or of mappings.
    """
    values = {} if base is None else msgspec.structs.asdict(base)
    if base is None and options.get("listeners"):
        values["listen"] = ()                # it has no default then
    settings = {name: Setting(value, "options", name)
                for name, value in (DEFAULTS | values).items()}
    texts, rows = {}, {}
    mistakes: list[Mistake] = []
    for name, value in options.items():
        try:
            if name in TABLES:
                rows[name] = value
            elif name in OPTIONS:
                texts[name] = text_of_value(OPTIONS[name].kind, value)
            else:
                mistakes.append(ConfigError(
                    "options", name, no_such_option(name, [*OPTIONS, *TABLES])))
        except TypeError as error:
            mistakes.append(ConfigError("options", name, str(error)))
    raise_all(mistakes + _apply(settings, "options", str, texts)
              + _apply_tables(settings, "options", rows))
    return build(settings)


def render(settings: Settings) -> str:
    """Returns the effective configuration as TOML that can be read again.

    It has neither secrets (R37) nor values that are generated at each start.
    """
    config = build(settings)
    lines = []
    for name, option in OPTIONS.items():
        kind, setting, value = option.kind, settings[name], getattr(config, name)
        if name in SECRETS:
            word = "is set" if value else "is not set"
            lines.append(f"# {name} {word}  # {setting.source}")
            continue
        mark = "# " if value != setting.value or value == "" else ""
        lines.append(f"{mark}{name} = {show_toml(kind, value)}  # {setting.source}")
    for name, table in TABLES.items():
        lines += tables.render_rows(
            table, name, getattr(config, name), settings[name].source)
    return "\n".join(lines) + "\n"
