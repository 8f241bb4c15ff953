"""The configuration: one typed definition, from which everything else derives.

Each field of `Config` is one option: one flag (`--head-timeout`), one environment
variable (`CUTTHROUGH_HEAD_TIMEOUT`), one TOML key (`head_timeout`), one line of
`cutthrough config`. A flag goes before the environment, that before the file, that
before the default.

Lowest of the rooms: it knows no socket and no loop. The rooms where bytes move never
read a `Config`; their numbers are copied when the object is made.
"""

import argparse
import difflib
import ipaddress
import secrets
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from cutthrough.values import (
    ADDRESSES,
    COUNT,
    DAY,
    DURATION,
    DURATION_OR_0,
    FLAG,
    MOST_CHARACTERS,
    OVERRIDES,
    PORTS,
    RESOLVERS,
    SIZE,
    TEXT,
    WORKERS,
    Kind,
    choice,
    parse_origin,
    parse_text,
    parse_token,
    parse_user,
    parse_value,
    show_address,
    show_toml,
    show_value,
    split_address,
    text_of_toml,
    text_of_value,
)

DEMONSTRATION = ("username", "password")


class ConfigError(ValueError):
    """A configuration that cannot be used: where it was said, which key, and why."""

    def __init__(self, source: str, key: str, reason: str) -> None:
        super().__init__(source, key, reason)
        self.source, self.key, self.reason = source, key, reason

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.reason) if part)


class Option(NamedTuple):
    kind: Kind
    help: str
    why: str                                 # where the default comes from


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an operator can set; valid once it exists.

    Raises ConfigError (with an empty source) where options contradict each other.
    """

    listen: Annotated[tuple[tuple[str, int], ...], Option(
        ADDRESSES, "addresses to listen on; port 0 takes a free one",
        "tinyproxy's port, on loopback only")] = (("127.0.0.1", 8888),)
    workers: Annotated[int, Option(
        WORKERS, "worker processes; auto is one for each usable CPU",
        "sched_getaffinity(2): one loop keeps one CPU busy")] = 0
    loop: Annotated[Literal["auto", "uvloop", "asyncio"], Option(
        choice("auto", "uvloop", "asyncio"), "event loop of the workers",
        "auto: uvloop where it is installed")] = "auto"

    user: Annotated[str, Option(
        Kind("NAME", parse_user), "the user that may use the proxy",
        "demonstration: username, on loopback only (R29)")] = ""
    password: Annotated[str, Option(
        TEXT, "that user's password; a flag is seen by ps, so prefer the file",
        "demonstration: password, on loopback only (R29)")] = ""
    password_file: Annotated[str, Option(
        TEXT._replace(metavar="FILE"), "file that holds the password on one line",
        "none")] = ""
    users_file: Annotated[str, Option(
        TEXT._replace(metavar="FILE"), "users and hashes, as htpasswd writes them",
        "none: the one user above")] = ""
    auth_cache_ttl: Annotated[float, Option(
        DURATION_OR_0, "time that verified credentials are believed unhashed",
        "our choice; squid's credentialsttl: 2h")] = 300.0
    auth_threads: Annotated[int, Option(
        COUNT._replace(low=1, high=64), "threads of a worker that compute hashes",
        "our choice: one slow hash does not stop the others")] = 2
    auth_queue: Annotated[int, Option(
        COUNT._replace(low=1), "most credentials that wait for a thread",
        "what two threads do of bcrypt 12 in auth_timeout")] = 128

    origin: Annotated[str, Option(
        Kind("URL", parse_origin), "where requests in origin form go: http://host:port",
        "none: such a request is answered 400")] = ""
    via: Annotated[str, Option(
        Kind("TOKEN", parse_token), "our pseudonym in Via, by which loops are seen",
        "random at each start, so that two proxies in a row differ (R20)")] = ""

    access_log: Annotated[str, Option(
        Kind("-|off|FILE", parse_text), "where the access log goes",
        "standard output, as containers expect")] = "-"
    access_log_format: Annotated[Literal["squid", "json"], Option(
        choice("squid", "json"), "form of the access log's lines",
        "squid's native form, which existing tools read")] = "squid"

    head_timeout: Annotated[float, Option(
        DURATION, "time for a request head to arrive whole",
        "HAProxy's advice for `timeout http-request`; nginx: 60 s")] = 10.0
    body_timeout: Annotated[float, Option(
        DURATION, "time between two pieces of a request body",
        "nginx's client_body_timeout")] = 60.0
    auth_timeout: Annotated[float, Option(
        DURATION, "time for credentials to be verified", "as head_timeout")] = 10.0
    dns_timeout: Annotated[float, Option(
        DURATION, "time to resolve a name", "resolv.conf(5): timeout:5")] = 5.0
    connect_timeout: Annotated[float, Option(
        DURATION, "time to connect to an origin, all its addresses together",
        "twice Envoy's 5 s, as one deadline for all addresses")] = 10.0
    response_timeout: Annotated[float, Option(
        DURATION, "time for an origin's response head to begin",
        "between nginx's 60 s and squid's 15 min")] = 300.0
    idle_timeout: Annotated[float, Option(
        DURATION, "time without a byte in a tunnel or a response",
        "squid's read_timeout")] = 900.0
    half_closed_timeout: Annotated[float, Option(
        DURATION, "time without a byte once one side has ended",
        "Linux's tcp_fin_timeout")] = 60.0
    keepalive_timeout: Annotated[float, Option(
        DURATION, "time a client connection waits for its next request",
        "nginx: 75 s, squid: 120 s")] = 60.0
    linger_timeout: Annotated[float, Option(
        DURATION, "time that late bytes are read off after a refusal",
        "Apache httpd's SECONDS_TO_LINGER")] = 2.0
    lifetime: Annotated[float, Option(
        DURATION_OR_0, "longest life of a connection; 0: no limit",
        "squid's client_lifetime")] = DAY
    upstream_idle_timeout: Annotated[float, Option(
        DURATION, "time an idle connection to an origin is kept",
        "below the 60 to 75 s after which many origins close")] = 30.0
    drain_timeout: Annotated[float, Option(
        DURATION_OR_0, "time given to open connections when told to stop",
        "Kubernetes' terminationGracePeriodSeconds")] = 30.0

    max_line: Annotated[int, Option(
        SIZE._replace(low=256, high=16384), "longest request line",
        "RFC 9112 section 3 asks for 8000 at least")] = 8192
    max_head: Annotated[int, Option(
        SIZE._replace(low=512, high=16384), "longest head; 16KiB is also the bound, "
        "one pooled block", "h11's; nginx allows 4 of 8 KiB")] = 16384
    max_fields: Annotated[int, Option(
        COUNT._replace(low=1, high=128), "most fields of a head",
        "Apache httpd's LimitRequestFields")] = 100
    max_body: Annotated[int, Option(
        SIZE, "longest request body; 0: no limit",
        "a forward proxy is no judge of it; squid: none")] = 0
    max_connections: Annotated[int, Option(
        COUNT, "most client connections of a worker; 0: what nofile allows",
        "RLIMIT_NOFILE")] = 0
    upstream_idle: Annotated[int, Option(
        COUNT, "most idle connections to origins that a worker keeps",
        "our choice: a tenth of a usual nofile of 10 000")] = 1024
    upstream_idle_per_origin: Annotated[int, Option(
        COUNT, "most of these to one origin",
        "our choice: a quarter, so that four busy origins fit")] = 256

    resolvers: Annotated[tuple[str, ...], Option(
        RESOLVERS, "addresses of name servers", "/etc/resolv.conf")] = ()
    dns_cache_entries: Annotated[int, Option(
        COUNT, "most names in a worker's cache",
        "our choice: ten times squid's ipcache_size")] = 10000
    dns_stale: Annotated[float, Option(
        DURATION_OR_0, "time that an answer may outlive its own while no name server "
        "answers; 0: none", "our choice: an outage; RFC 8767 allows days")] = 3600.0
    dns_overrides: Annotated[tuple[tuple[str, str], ...], Option(
        OVERRIDES, "names that are never asked for; a name may come several times",
        "none")] = ()

    address_floor: Annotated[Literal["auto", "on", "off"], Option(
        choice("auto", "on", "off"), "refuse special-purpose addresses",
        "auto: off when every listener is loopback (R27)")] = "auto"
    connect_ports: Annotated[tuple[int, ...] | str, Option(
        PORTS, "ports that CONNECT may reach",
        "auto: any when every listener is loopback, else 443")] = "auto"
    splice: Annotated[bool, Option(
        FLAG, "move bulk data by splice(2)",
        "a third of copy's CPU time at 1 MiB responses")] = True

    def __post_init__(self) -> None:
        if not self.listen:
            raise ConfigError("", "listen", "at least one address is needed")
        fixed = [address for address in self.listen if address[1]]
        for address in fixed:
            if fixed.count(address) > 1:
                raise ConfigError("", "listen", f"{show_address(address)} twice")
        if not self.user and not self.password:
            for name, value in zip(("user", "password"), DEMONSTRATION, strict=True):
                if not self.users_file:
                    msgspec.structs.force_setattr(self, name, value)
        elif not self.password:
            raise ConfigError("", "user", "a user without a password: give "
                              "--password-file, or CUTTHROUGH_PASSWORD")
        elif not self.user:
            raise ConfigError("", "password", "a password without a user: give --user")
        if self.demonstration and not self.loopback:
            outside = next(a for a in self.listen if not _is_loopback(a[0]))
            raise ConfigError("", "listen", f"{show_address(outside)} is not loopback, "
                              "and the demonstration credentials username:password "
                              "serve loopback only: give --user and --password-file")
        if not self.via:
            pseudonym = f"cutthrough-{secrets.token_hex(4)}"
            msgspec.structs.force_setattr(self, "via", pseudonym)

    @property
    def demonstration(self) -> bool:
        """Whether the credentials are the ones that the whole world knows (R29).

        Also when they were typed: what makes them unsafe is what they are.
        """
        return (self.user, self.password) == DEMONSTRATION

    @property
    def loopback(self) -> bool:
        """Whether every listener is a loopback address; a wildcard is none."""
        return all(_is_loopback(host) for host, _ in self.listen)

    @property
    def floor(self) -> bool:
        """Whether special-purpose addresses are refused: `address_floor` resolved."""
        if self.address_floor == "auto":
            return not self.loopback
        return self.address_floor == "on"

    @property
    def allowed_ports(self) -> tuple[int, ...] | None:
        """The ports CONNECT may reach, `connect_ports` resolved; None: any."""
        if self.connect_ports == "auto":
            return None if self.loopback else (443,)
        return self.connect_ports if isinstance(self.connect_ports, tuple) else None

    @property
    def origin_address(self) -> tuple[str, int] | None:
        """Host and port of `origin`; None where there is none."""
        if not self.origin:
            return None
        return split_address(self.origin.removeprefix("http://"))

    def __repr__(self) -> str:
        """Leaves the secrets out: a repr ends up in logs and tracebacks (R37)."""
        shown = (f"{name}={getattr(self, name)!r}" for name in OPTIONS
                 if name not in SECRETS)
        return f"Config({', '.join(shown)})"


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


OPTIONS: dict[str, Option] = {
    name: next(extra for extra in get_args(hint) if isinstance(extra, Option))
    for name, hint in get_type_hints(Config, include_extras=True).items()
}
DEFAULTS: dict[str, Any] = {
    field.name: field.default for field in msgspec.structs.fields(Config)
}
# Every secret can come from a file: the option, and the option that names its file.
SECRETS = {"password": "password_file"}


# Gathering: from the sources to settings, and from these to a Config.

class Setting(NamedTuple):
    value: Any
    source: str                              # "default", "environment", a file …
    key: str                                 # its name there


Settings = dict[str, Setting]


def flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_name(name: str) -> str:
    return "CUTTHROUGH_" + name.upper()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flag of every option; their values stay text, absent ones None."""
    for name, (kind, text, _) in OPTIONS.items():
        shown = show_value(kind, DEFAULTS[name])
        more: dict[str, Any] = {"action": "append"} if kind.many else {}
        if kind is FLAG:
            more = {"nargs": "?", "const": "true"}
        parser.add_argument(
            flag_name(name), dest=name, metavar=kind.metavar,
            help=(f"{text} [{shown}]" if shown else text).replace("%", "%%"), **more)


def gather(flags: Mapping[str, Any], environ: Mapping[str, str],
           file: str | None = None) -> Settings:
    """Reads every source and returns the setting in force of each option.

    `flags` holds texts by option name, None where the flag was not given. An empty
    variable counts as absent (containers clear one so), and an unknown one is no error:
    Kubernetes makes some of its own for a service named cutthrough.
    """
    settings = {name: Setting(value, "default", name)
                for name, value in DEFAULTS.items()}
    if file is not None:
        _apply(settings, file, str, _read_toml(file))
    given = {name: environ.get(variable_name(name)) or None for name in OPTIONS}
    _apply(settings, "environment", variable_name, given)
    given = {name: flags.get(name) for name in OPTIONS}
    _apply(settings, "command line", flag_name, given)
    return settings


def _apply(settings: Settings, source: str, key_of: Callable[[str], str],
           given: Mapping[str, Any]) -> None:
    """Lays one source over the settings made so far."""
    for name, text in given.items():
        if text is None:
            continue
        try:
            value = parse_value(OPTIONS[name].kind, text)
        except ValueError as error:
            raise ConfigError(source, key_of(name), str(error)) from None
        settings[name] = Setting(value, source, key_of(name))
    for secret, by_file in SECRETS.items():
        if given.get(by_file) is not None:
            if given.get(secret) is not None:
                raise ConfigError(source, key_of(secret),
                                  f"given twice, here and by {key_of(by_file)}")
            settings[secret] = _read_secret(settings[by_file])
        elif given.get(secret) is not None:
            settings[by_file] = Setting(DEFAULTS[by_file], "default", by_file)


def _read_toml(path: str) -> dict[str, Any]:
    """Reads a file's keys; returns each value as the text a flag would have had."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(path, "", error.strerror or str(error)) from None
    except ValueError as error:              # syntax, or bytes that are not UTF-8
        raise ConfigError(path, "", str(error)) from None
    texts = {}
    for key, value in table.items():
        _known(path, key)
        try:
            texts[key] = text_of_toml(OPTIONS[key].kind, value)
        except ValueError as error:
            raise ConfigError(path, key, str(error)) from None
    return texts


def _known(source: str, key: str) -> None:
    if key not in OPTIONS:
        near = difflib.get_close_matches(key, OPTIONS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(source, key, f"no such option{hint}")


def _read_secret(named: Setting) -> Setting:
    """Reads a secret's file: one line, whose end is not part of it."""
    path = named.value
    if not path:
        raise ConfigError(named.source, named.key, "names no file")
    try:
        with open(path, encoding="utf-8") as file:
            text = parse_text(file.read(MOST_CHARACTERS + 2).removesuffix("\n"))
    except OSError as error:
        raise ConfigError(named.source, named.key,
                          f"{path}: {error.strerror or error}") from None
    except ValueError:                       # not UTF-8, or a control character
        raise ConfigError(named.source, named.key,
                          f"{path}: is not one line of text") from None
    if not text:
        raise ConfigError(named.source, named.key, f"{path}: is empty")
    return Setting(text, path, "")


def build(settings: Settings) -> Config:
    """Makes the Config; a contradiction is told with the source that brought it."""
    try:
        return Config(**{name: setting.value for name, setting in settings.items()})
    except ConfigError as error:
        blamed = settings[error.key]
        raise ConfigError(blamed.source, blamed.key, error.reason) from None


def load(argv: Sequence[str] = (), environ: Mapping[str, str] | None = None,
         file: str | None = None) -> Config:
    """Returns the Config of these flags, this environment and this TOML file."""
    parser = argparse.ArgumentParser(prog="cutthrough", allow_abbrev=False)
    add_flags(parser)
    return build(gather(vars(parser.parse_args(argv)), environ or {}, file))


def from_options(base: Config | None = None, **options: Any) -> Config:
    """Returns `base` (or the defaults) with options given as values or as their text.

    For embedding: `from_options(head_timeout="200ms", max_fields=50)`.
    """
    values = {} if base is None else msgspec.structs.asdict(base)
    settings = {name: Setting(value, "options", name)
                for name, value in (DEFAULTS | values).items()}
    texts = {}
    for name, value in options.items():
        _known("options", name)
        try:
            texts[name] = text_of_value(OPTIONS[name].kind, value)
        except TypeError as error:
            raise ConfigError("options", name, str(error)) from None
    _apply(settings, "options", str, texts)
    return build(settings)


def render(settings: Settings) -> str:
    """Returns the effective configuration as TOML that can be read again.

    Secrets are left out (R37), and so is what is made anew at each start.
    """
    config = build(settings)
    lines = []
    for name, (kind, _, _) in OPTIONS.items():
        setting, value = settings[name], getattr(config, name)
        if name in SECRETS:
            lines.append(f"# {name} is set  # {setting.source}")
            continue
        mark = "# " if value != setting.value or value == "" else ""
        lines.append(f"{mark}{name} = {show_toml(kind, value)}  # {setting.source}")
    return "\n".join(lines) + "\n"
