"""The configuration: one typed definition, from which everything else derives.

Each field of `Config` is one option: one flag (`--head-timeout`), one environment
variable (`CUTTHROUGH_HEAD_TIMEOUT`), one TOML key (`head_timeout`), one line of
`cutthrough config`. A flag goes before the environment, that before the file, that
before the default.

Lowest of the rooms: it knows no socket and no loop. The rooms where bytes move never
read a `Config`; their numbers are copied when the object is made.
"""

import ipaddress
import secrets
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from cutthrough.config.log_format import parse_log_format
from cutthrough.config.log_target import parse_log_target
from cutthrough.config.mistake import Mistake, raise_all
from cutthrough.config.values import (
    ADDRESSES,
    ADMIN,
    COUNT,
    CPUS,
    DAY,
    DURATION,
    DURATION_OR_0,
    FLAG,
    NAMES,
    OVERRIDES,
    PORTS,
    RESOLVERS,
    SIZE,
    TEXT,
    WORKERS,
    Kind,
    choice,
    is_placeholder,
    parse_origin,
    parse_token,
    parse_user,
    show_address,
    split_address,
)

DEMONSTRATION = ("username", "password")


class ConfigError(Mistake):
    """A configuration that cannot be used: where it was said, which key, and why."""


class Option(NamedTuple):
    """All that is said of an option: nothing else lists options by name."""

    kind: Kind                               # how a value is read, with unit and bounds
    help: str
    why: str                                 # where the default comes from
    section: str = ""                        # title of the section that begins with it
    file: str = ""                           # of a secret: the option for its file
    swapped: bool = False                    # a reload: running workers take a change
                                             # over; else new workers begin with it


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an operator can set; valid once it exists.

    Raises ConfigError (with an empty source) where options contradict each other.
    """

    listen: Annotated[tuple[tuple[str, int], ...], Option(
        ADDRESSES, "addresses to listen on; port 0 takes a free one",
        "tinyproxy's port, on loopback only",
        section="Processes and listeners")] = (("127.0.0.1", 8888),)
    workers: Annotated[int, Option(
        WORKERS, "worker processes; auto is one for each usable CPU, or each of pin",
        "sched_getaffinity(2): one loop keeps one CPU busy")] = 0
    pin: Annotated[tuple[int, ...] | str, Option(
        CPUS, "CPUs that the workers keep to, one each: those of ours, or 0-3,8",
        "off: beside other programs the scheduler knows better")] = "off"
    loop: Annotated[Literal["auto", "uvloop", "asyncio"], Option(
        choice("auto", "uvloop", "asyncio"), "event loop of the workers",
        "auto: uvloop where it is installed")] = "auto"

    user: Annotated[str, Option(
        Kind("NAME", parse_user), "the user that may use the proxy",
        "demonstration: username, on loopback only (R29)",
        section="Who may come in", swapped=True)] = ""
    password: Annotated[str, Option(
        TEXT, "that user's password; a flag is seen by ps, so prefer the file",
        "demonstration: password, on loopback only (R29)",
        file="password_file", swapped=True)] = ""
    password_file: Annotated[str, Option(
        TEXT._replace(metavar="FILE"), "file that holds the password on one line",
        "none", swapped=True)] = ""
    users_file: Annotated[str, Option(
        TEXT._replace(metavar="FILE"), "users and hashes, as htpasswd writes them",
        "none: the one user above", swapped=True)] = ""
    auth_cache_ttl: Annotated[float, Option(
        DURATION_OR_0, "time that verified credentials are believed unhashed",
        "our choice; squid's credentialsttl: 2h", swapped=True)] = 300.0
    auth_threads: Annotated[int, Option(
        COUNT._replace(low=1, high=64), "hashes that a worker computes at a time",
        "a helper takes a quarter of a core that is wanted, of each worker's")] = 1
    auth_queue: Annotated[int, Option(
        COUNT._replace(low=1), "most credentials that wait for a hash, in each worker",
        "a cold start of a thousand users twice over, at 1 KiB each")] = 2048
    auth_backoff: Annotated[float, Option(
        DURATION_OR_0, "longest wait after wrong credentials for one name from one "
        "address; 0: none", "some 60 tries an hour: docs/users.md",
        swapped=True)] = 60.0

    origin: Annotated[str, Option(
        Kind("URL", parse_origin), "where requests in origin form go: http://host:port",
        "none: such a request is answered 400", section="Origin form, and loops")] = ""
    via: Annotated[str, Option(
        Kind("TOKEN", parse_token), "our pseudonym in Via, by which loops are seen",
        "random at each start, so that two proxies in a row differ (R20)")] = ""

    access_log: Annotated[str, Option(
        Kind("-|off|FILE|journal|syslog…", parse_log_target),
        "where the access log goes; docs/logs.md has all of it",
        "standard output, as containers expect", section="Access log")] = "-"
    access_log_format: Annotated[str, Option(
        Kind("squid|common|combined|json|FORMAT", parse_log_format),
        "form of the access log's lines; a format has squid's %-codes: docs/logs.md",
        "squid's native form, which existing tools read")] = "squid"

    error_log_format: Annotated[Literal["text", "logfmt", "json"], Option(
        choice("text", "logfmt", "json"), "form of the lines on standard error",
        "for people")] = "text"
    flight_recorder: Annotated[int, Option(
        COUNT, "events of connections that a worker remembers, 16 bytes each; 0: none",
        "1 MiB: some 8 s of 1000 requests a second")] = 65536

    head_timeout: Annotated[float, Option(
        DURATION, "time for a request head to arrive whole",
        "HAProxy's advice for `timeout http-request`; nginx: 60 s",
        section="Time", swapped=True)] = 10.0
    body_timeout: Annotated[float, Option(
        DURATION, "time between two pieces of a request body",
        "nginx's client_body_timeout", swapped=True)] = 60.0
    auth_timeout: Annotated[float, Option(
        DURATION, "time for credentials to be verified", "as head_timeout",
        swapped=True)] = 10.0
    dns_timeout: Annotated[float, Option(
        DURATION, "time to resolve a name", "resolv.conf(5): timeout:5")] = 5.0
    connect_timeout: Annotated[float, Option(
        DURATION, "time to connect to an origin, all its addresses together",
        "twice Envoy's 5 s, as one deadline for all addresses", swapped=True)] = 10.0
    response_timeout: Annotated[float, Option(
        DURATION, "time for an origin's response head to begin",
        "between nginx's 60 s and squid's 15 min", swapped=True)] = 300.0
    idle_timeout: Annotated[float, Option(
        DURATION, "time without a byte in a tunnel or a response",
        "squid's read_timeout", swapped=True)] = 900.0
    half_closed_timeout: Annotated[float, Option(
        DURATION, "time without a byte once one side has ended",
        "Linux's tcp_fin_timeout", swapped=True)] = 60.0
    keepalive_timeout: Annotated[float, Option(
        DURATION, "time a client connection waits for its next request",
        "nginx: 75 s, squid: 120 s", swapped=True)] = 60.0
    linger_timeout: Annotated[float, Option(
        DURATION, "time that late bytes are read off after the last answer",
        "Apache httpd's SECONDS_TO_LINGER", swapped=True)] = 2.0
    min_rate: Annotated[int, Option(
        SIZE._replace(high=1 << 30), "bytes a second owed by who sends a request body, "
        "or reads slower than the other side writes; 0: none; tunnels owe none",
        "IIS's minBytesPerSecond, Kestrel's MinRequestBodyDataRate",
        swapped=True)] = 240
    min_rate_grace: Annotated[float, Option(
        DURATION, "time over which that rate is an average",
        "nginx's send_timeout, within which it asks for one byte", swapped=True)] = 60.0
    lifetime: Annotated[float, Option(
        DURATION_OR_0, "longest life of a request or tunnel; 0: no limit",
        "squid's client_lifetime", swapped=True)] = DAY
    upstream_idle_timeout: Annotated[float, Option(
        DURATION, "time an idle connection to an origin is kept",
        "below the 60 to 75 s after which many origins close", swapped=True)] = 30.0
    drain_timeout: Annotated[float, Option(
        DURATION_OR_0, "time given to open connections when told to stop",
        "Kubernetes' terminationGracePeriodSeconds", swapped=True)] = 30.0
    handover: Annotated[bool, Option(
        FLAG, "hand tunnels to the worker that follows; false: they drain",
        "our choice: a tunnel is not to notice a reload or an upgrade",
        swapped=True)] = True

    max_line: Annotated[int, Option(
        SIZE._replace(low=256, high=16384), "longest request line",
        "RFC 9112 section 3 asks for 8000 at least",
        section="Sizes and numbers", swapped=True)] = 8192
    max_head: Annotated[int, Option(
        SIZE._replace(low=512, high=16384), "longest head of a request; 16KiB is also "
        "the bound, one pooled block", "h11's; nginx allows 4 of 8 KiB",
        swapped=True)] = 16384
    max_fields: Annotated[int, Option(
        COUNT._replace(low=1, high=128), "most fields of a request's head",
        "Apache httpd's LimitRequestFields", swapped=True)] = 100
    max_response_head: Annotated[int, Option(
        SIZE._replace(low=512, high=65536), "longest head of a response; 64KiB is also "
        "the bound", "squid's reply_header_max_size", swapped=True)] = 65536
    max_body: Annotated[int, Option(
        SIZE, "longest request body; 0: no limit",
        "a forward proxy is no judge of it; squid: none", swapped=True)] = 0
    max_connections: Annotated[int, Option(
        COUNT, "most client connections of a worker; 0: what nofile allows",
        "RLIMIT_NOFILE", swapped=True)] = 0
    max_connections_total: Annotated[int, Option(
        COUNT, "most client connections of all workers together; 0: no limit",
        "what nofile allows each worker is the bound", swapped=True)] = 0
    max_connections_per_client: Annotated[int, Option(
        COUNT, "most connections of one client address, of one /64 in IPv6, over all "
        "workers; 0: no limit", "a client may be a whole site behind one address",
        swapped=True)] = 0
    upstream_idle: Annotated[int, Option(
        COUNT, "most idle connections to origins that a worker keeps",
        "our choice: a tenth of a usual nofile of 10 000", swapped=True)] = 1024
    upstream_idle_per_origin: Annotated[int, Option(
        COUNT, "most of these to one origin",
        "our choice: a quarter, so that four busy origins fit", swapped=True)] = 256

    resolvers: Annotated[tuple[str, ...], Option(
        RESOLVERS, "addresses of name servers", "/etc/resolv.conf",
        section="Names")] = ()
    dns_cache_entries: Annotated[int, Option(
        COUNT, "most names in a worker's cache",
        "our choice: ten times squid's ipcache_size")] = 10000
    dns_stale: Annotated[float, Option(
        DURATION_OR_0, "time that an answer may outlive its own while no name server "
        "answers; 0: none", "our choice: an outage; RFC 8767 allows days")] = 3600.0
    dns_overrides: Annotated[tuple[tuple[str, str], ...], Option(
        OVERRIDES, "names that are never asked for; a name may come several times",
        "none")] = ()

    policy: Annotated[str, Option(
        TEXT._replace(metavar="FILE"), "rules, users and limits: TOML, or the YAML of "
        "smokescreen", "none: see address_floor and connect_ports",
        section="What may be reached", swapped=True)] = ""
    policy_hook: Annotated[str, Option(
        TEXT._replace(metavar="MODULE:FUNCTION"), "async function that decides about "
        "what the rules let pass", "none", swapped=True)] = ""
    policy_hook_timeout: Annotated[float, Option(
        DURATION, "time for it to decide; then nothing passes",
        "as dns_timeout: it asks a database somewhere", swapped=True)] = 5.0
    address_floor: Annotated[Literal["auto", "on", "off"], Option(
        choice("auto", "on", "off"), "refuse special-purpose addresses",
        "auto: off with loopback listeners only and no policy (R27)",
        swapped=True)] = "auto"
    connect_ports: Annotated[tuple[int, ...] | str, Option(
        PORTS, "ports that CONNECT may reach",
        "auto: any with a policy or loopback listeners only, else 443",
        swapped=True)] = "auto"
    splice: Annotated[bool, Option(
        FLAG, "move bulk data by splice(2)",
        "three fifths of copy's CPU time at 1 MiB responses", swapped=True)] = True

    admin: Annotated[str, Option(
        ADMIN, "where operators look and ask: docs/admin.md; beyond loopback it takes "
        "admin_token", "off: nothing listens that nobody asked for (R39)",
        section="Operators", swapped=True)] = "off"
    admin_token: Annotated[str, Option(
        TEXT, "what changes anything there takes; a flag is seen by ps, so prefer the "
        "file", "none: nothing can be changed there",
        file="admin_token_file", swapped=True)] = ""
    admin_token_file: Annotated[str, Option(
        TEXT._replace(metavar="FILE"), "file that holds it on one line", "none",
        swapped=True)] = ""
    admin_names: Annotated[tuple[str, ...], Option(
        NAMES, "names by which it is asked, beside localhost and addresses",
        "none: any other name is a page that was rebound to us (R39)",
        swapped=True)] = ()

    fleet_url: Annotated[str, Option(
        TEXT._replace(metavar="URL"), "Redis through which several programs share the "
        "limits of users: docs/limits.md; it holds a password, so prefer the file",
        "none: limits are this program's own",
        section="Limits over several programs", file="fleet_url_file",
        swapped=True)] = ""
    fleet_url_file: Annotated[str, Option(
        TEXT._replace(metavar="FILE"), "file that holds it on one line", "none",
        swapped=True)] = ""
    fleet_prefix: Annotated[str, Option(
        Kind("TOKEN", parse_token), "of the keys in Redis; one fleet has one",
        "the program's name", swapped=True)] = "cutthrough"
    fleet_interval: Annotated[float, Option(
        DURATION._replace(low=0.02, high=10.0), "time between two exchanges: so late "
        "is known what others use", "our choice: idle, 0.07 % of a CPU",
        swapped=True)] = 0.2
    fleet_expiry: Annotated[float, Option(
        DURATION._replace(low=0.2, high=600.0), "time after which one that is not "
        "heard of holds nothing", "our choice: 25 exchanges that failed",
        swapped=True)] = 5.0

    def __post_init__(self) -> None:
        if not (self.user or self.password or self.users_file or self.policy):
            for name, value in zip(("user", "password"), DEMONSTRATION, strict=True):
                msgspec.structs.force_setattr(self, name, value)
        raise_all([*self._contradictions()])
        if not self.via:
            pseudonym = f"cutthrough-{secrets.token_hex(4)}"
            msgspec.structs.force_setattr(self, "via", pseudonym)

    def _contradictions(self) -> Iterator[ConfigError]:
        if not self.listen:
            yield ConfigError("", "listen", "at least one address is needed")
        fixed = [address for address in self.listen if address[1]]
        for address in dict.fromkeys(fixed):
            if fixed.count(address) > 1:
                yield ConfigError("", "listen", f"{show_address(address)} twice")
        if self.user and not self.password:
            yield ConfigError("", "user", "a user without a password: give "
                              "--password-file, or CUTTHROUGH_PASSWORD")
        elif self.password and not self.user:
            yield ConfigError("", "password", "a password without a user: give --user")
        if self.demonstration and not self.loopback:
            outside = next(a for a in self.listen if not _is_loopback(a[0]))
            yield ConfigError("", "listen", f"{show_address(outside)} is not loopback, "
                              "and the demonstration credentials username:password "
                              "serve loopback only: give --user and --password-file")
        if self.admin_exposed and not self.admin_token:
            yield ConfigError("", "admin", f"{self.admin} is not loopback: give "
                              "--admin-token-file")
        if self.admin_exposed and is_placeholder(self.admin_token, token=True):
            yield ConfigError("", "admin_token", "is a placeholder, which everybody "
                              f"knows, and {self.admin} is not loopback: `openssl rand "
                              "-hex 32` makes one")
        if not self.loopback and is_placeholder(self.password):
            yield ConfigError("", "password", "is a placeholder, which everybody "
                              "knows, and not all of listen is loopback")
        if self.admin in [show_address(address) for address in fixed]:
            yield ConfigError("", "admin", f"{self.admin} is a proxy's address too")
        yield from self._contradictions_of_fleet()

    def _contradictions_of_fleet(self) -> Iterator[ConfigError]:
        if self.fleet_url and not self.fleet_url.startswith(
                ("redis://", "rediss://", "unix://")):
            yield ConfigError("", "fleet_url", "is none of redis://host:port/db, the "
                              "same by TLS with rediss://, and unix:///path")
        if not self.fleet_prefix:
            yield ConfigError("", "fleet_prefix", "is empty")
        if self.fleet_expiry < 5 * self.fleet_interval:
            yield ConfigError("", "fleet_expiry", "is less than five times "
                              "fleet_interval: one slow answer would be an end")

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
    def admin_exposed(self) -> bool:
        """Whether the admin listener is reached from beyond this host."""
        return not (self.admin == "off" or self.admin.startswith("unix:")
                    or _is_loopback(split_address(self.admin)[0]))

    @property
    def floor(self) -> bool:
        """Whether special-purpose addresses are refused: `address_floor` resolved."""
        if self.address_floor == "auto":
            return bool(self.policy) or not self.loopback
        return self.address_floor == "on"

    @property
    def allowed_ports(self) -> tuple[int, ...] | None:
        """The ports CONNECT may reach, `connect_ports` resolved; None: any."""
        if self.connect_ports == "auto":
            return None if self.policy or self.loopback else (443,)
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
    address = ipaddress.ip_address(host)
    # Since Python 3.13 ::ffff:127.0.0.1 is loopback, before it is not: never, for us
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


OPTIONS: dict[str, Option] = {
    name: next(extra for extra in get_args(hint) if isinstance(extra, Option))
    for name, hint in get_type_hints(Config, include_extras=True).items()
}
DEFAULTS: dict[str, Any] = {
    field.name: field.default for field in msgspec.structs.fields(Config)
}
# Every secret can come from a file: the option, and the option that names its file.
SECRETS = {name: option.file for name, option in OPTIONS.items() if option.file}
