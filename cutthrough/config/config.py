"""The configuration: one typed definition, from which everything else derives.

Each field of `Config` is one option: one flag (`--head-timeout`), one environment
variable (`CUTTHROUGH_HEAD_TIMEOUT`), one TOML key (`head_timeout`), one line of
`cutthrough config`. A flag overrides the environment, the environment overrides the
file, and the file overrides the default. A field with a Table has rows with keys of
their own, `[[listeners]]`, and comes from the file alone.

The lowest package: it knows no socket and no loop. The packages that move bytes never
read a `Config`; their numbers are copied when the object is made, and at a reload.
"""

import secrets
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from cutthrough.config.credentials import contradictions_of_credentials
from cutthrough.config.fleet import contradictions_of_fleet
from cutthrough.config.listeners import Listener, beside_admin, contradictions, merge
from cutthrough.config.log_format import parse_log_format
from cutthrough.config.log_target import parse_log_target
from cutthrough.config.mistake import raise_all
from cutthrough.config.option import (
    ConfigError,
    Option,
    Table,
    defaults_of,
    options_of,
    tables_of,
)
from cutthrough.config.origins import (
    Origin,
    contradictions_of_origins,
    parse_origin_or_name,
)
from cutthrough.config.parents import Group, Parent, parse_name
from cutthrough.config.parents import contradictions as contradictions_of_parents
from cutthrough.config.recordings import RecordingOptions
from cutthrough.config.sources import SourceRow, contradictions_of_sources
from cutthrough.config.user_names import parse_user
from cutthrough.config.values import (
    ADDRESSES,
    COUNT,
    CPUS,
    DAY,
    DURATION,
    DURATION_OR_0,
    FILE,
    FLAG,
    NETWORKS,
    OVERRIDES,
    PORTS,
    RESOLVERS,
    SIZE,
    TEXT,
    WORKERS,
    Kind,
    choice,
    parse_token,
)

__all__ = ("DEFAULTS", "OPTIONS", "SECRETS", "TABLES", "Config", "ConfigError",
           "Option", "Table")

DEMONSTRATION = ("username", "password")


class Config(RecordingOptions, frozen=True, kw_only=True):
    """Everything that an operator can set; valid once it exists.

    Raises ConfigError (with an empty source) if options contradict each other.
    """

    listen: Annotated[tuple[tuple[str, int], ...], Option(
        ADDRESSES, "addresses to listen on; port 0 selects a free port",
        "tinyproxy's port, on loopback only",
        section="Processes and listeners")] = (("127.0.0.1", 8888),)
    proxy_protocol: Annotated[tuple[tuple[str, int], ...], Option(
        ADDRESSES, "addresses of listen for load balancers only: each connection must "
        "begin with a PROXY header, which names the client; docs/load-balancers.md",
        "none: a listener requires the header or refuses it, it never guesses (R50)")
        ] = ()
    proxy_protocol_from: Annotated[tuple[str, ...], Option(
        NETWORKS, "networks of the load balancers; a proxy_protocol listener refuses "
        "all other callers", "none: the sender of a header can name any client (R40)",
        swapped=True)] = ()
    listeners: Annotated[tuple[Listener, ...], Table(
        Listener, "Listeners with settings of their own. If there are any, `listen` "
        "has no default; its addresses are listeners too, without such settings.")
        ] = ()
    workers: Annotated[int, Option(
        WORKERS, "worker processes; auto: one for each CPU of pin, or each usable one "
        "within the cgroup's quota", "sched_getaffinity(2), cpu.max: one loop keeps "
        "one CPU busy", of_program=True)] = 0
    pin: Annotated[tuple[int, ...] | str, Option(
        CPUS, "pins each worker to one CPU: of all usable CPUs (auto), or of a list "
        "such as 0-3,8", "off: beside other programs the scheduler chooses "
        "better", of_program=True)] = "off"
    loop: Annotated[Literal["auto", "uvloop", "asyncio"], Option(
        choice("auto", "uvloop", "asyncio"), "event loop of the workers",
        "auto: uvloop if it is installed", of_program=True)] = "auto"

    user: Annotated[str, Option(
        Kind("NAME", parse_user), "name of the one user of the proxy",
        "demonstration: username, on loopback only (R29)",
        section="Authentication", swapped=True)] = ""
    password: Annotated[str, Option(
        TEXT, "that user's password; ps shows flags, so prefer password_file",
        "demonstration: password, on loopback only (R29)",
        file="password_file", swapped=True)] = ""
    password_file: Annotated[str, Option(
        FILE, "file with the password on one line",
        "none", swapped=True)] = ""
    users_file: Annotated[str, Option(
        FILE, "file of users and password hashes, in "
        "htpasswd's format", "none: only the one user above", swapped=True)] = ""
    auth_hook: Annotated[str, Option(
        TEXT._replace(metavar="MODULE:FUNCTION"), "async function that verifies the "
        "names and passwords of all other users: docs/users.md", "none",
        swapped=True)] = ""
    auth_cache_ttl: Annotated[float, Option(
        DURATION_OR_0, "how long verified credentials are cached",
        "our choice; squid's credentialsttl: 2h", swapped=True)] = 300.0
    auth_threads: Annotated[int, Option(
        COUNT._replace(low=1, high=64), "hashes that a worker computes at a time",
        "each worker's hashing takes a quarter of a core that others want")] = 1
    auth_queue: Annotated[int, Option(
        COUNT._replace(low=1), "most credentials that wait for a hash, in each worker",
        "twice the cold start of a thousand users, at 1 KiB each")] = 2048
    auth_backoff: Annotated[float, Option(
        DURATION_OR_0, "longest wait after wrong credentials for one name from one "
        "address; 0: none", "about 60 attempts an hour: docs/users.md",
        swapped=True)] = 60.0

    origin: Annotated[str, Option(
        Kind("URL|NAME", parse_origin_or_name), "server for requests in origin form: "
        "http://host:port, or a name of [origins]", "none: such a request gets a 400",
        section="Origin form and loops")] = ""
    via: Annotated[str, Option(
        Kind("TOKEN", parse_token), "this proxy's pseudonym in Via, to detect "
        "loops; off: no Via, and fewer loops are seen: docs/standards.md",
        "random at each start, so that two proxies in a row differ (R20)")] = ""

    access_log: Annotated[str, Option(
        Kind("-|off|FILE|journal|syslog…", parse_log_target),
        "target of the access log: docs/logs.md",
        "standard output, as containers expect", section="Logs")] = "-"
    access_log_format: Annotated[str, Option(
        Kind("auto|squid|common|combined|ltsv|w3c|csv|haproxy|terminal|json|FORMAT",
             parse_log_format),
        "format of the access log; FORMAT uses squid's %-codes: docs/logs.md",
        "lines for people on a terminal, else squid's format, which existing tools "
        "read")] = "auto"
    activity_hook: Annotated[str, Option(
        TEXT._replace(metavar="MODULE:CLASS"), "class whose functions are called for "
        "what connections and requests do: docs/activity.md", "none")] = ""

    peek_tunnels: Annotated[bool, Option(
        FLAG, "look at the first bytes of each tunnel, unopened, for the JSON log, "
        "metrics and live page: server name, ALPN, JA4, or protocol: docs/logs.md",
        "a tunnel takes 3 us more of CPU time, and JA3 another 1 us; a log format with "
        "one of its codes looks by itself",
        swapped=True)] = False

    fingerprints: Annotated[bool, Option(
        FLAG, "have the JSON log and the live page show the fingerprints of clients' "
        "own TLS and HTTP/2: docs/fingerprints.md",
        "what else uses one has it made, and nothing else pays",
        swapped=True)] = False

    error_log_format: Annotated[Literal["text", "logfmt", "json"], Option(
        choice("text", "logfmt", "json"), "format of the lines on standard error",
        "for people")] = "text"
    flight_recorder: Annotated[int, Option(
        COUNT, "connection events that a worker remembers, 16 bytes each; 0: none",
        "1 MiB: about 8 s at 1000 requests a second")] = 65536

    head_timeout: Annotated[float, Option(
        DURATION, "time for a whole request head to arrive",
        "HAProxy's advice for `timeout http-request`; nginx: 60 s",
        section="Timeouts and rates", swapped=True)] = 10.0
    body_timeout: Annotated[float, Option(
        DURATION, "time between two pieces of a request body",
        "nginx's client_body_timeout", swapped=True)] = 60.0
    auth_timeout: Annotated[float, Option(
        DURATION, "time to verify credentials", "the same as head_timeout",
        swapped=True)] = 10.0
    dns_timeout: Annotated[float, Option(
        DURATION, "time to resolve a name", "resolv.conf(5): timeout:5")] = 5.0
    connect_timeout: Annotated[float, Option(
        DURATION, "time to connect to an origin, for all its addresses together",
        "twice Envoy's 5 s, as one deadline for all addresses", swapped=True)] = 10.0
    parent_timeout: Annotated[float, Option(
        DURATION, "time for a connected parent to connect on to the origin",
        "twice our own dns_timeout and connect_timeout", swapped=True)] = 30.0
    response_timeout: Annotated[float, Option(
        DURATION, "time until an origin's response head begins",
        "between nginx's 60 s and squid's 15 min", swapped=True)] = 300.0
    idle_timeout: Annotated[float, Option(
        DURATION, "time without a byte in a tunnel or a response",
        "squid's read_timeout", swapped=True)] = 900.0
    half_closed_timeout: Annotated[float, Option(
        DURATION, "time without a byte after one side has ended its stream",
        "Linux's tcp_fin_timeout", swapped=True)] = 60.0
    keepalive_timeout: Annotated[float, Option(
        DURATION, "time that a client connection waits for its next request",
        "nginx: 75 s, squid: 120 s", swapped=True)] = 60.0
    linger_timeout: Annotated[float, Option(
        DURATION, "time to read and discard late bytes after the last response",
        "Apache httpd's SECONDS_TO_LINGER", swapped=True)] = 2.0
    min_rate: Annotated[int, Option(
        SIZE._replace(high=1 << 30), "least bytes a second of a request body, and of a "
        "peer that reads slower than the other side writes; 0: none; not for tunnels",
        "IIS's minBytesPerSecond, Kestrel's MinRequestBodyDataRate",
        swapped=True)] = 240
    min_rate_grace: Annotated[float, Option(
        DURATION, "time over which min_rate is averaged",
        "nginx's send_timeout, in which it requires one byte", swapped=True)] = 60.0
    lifetime: Annotated[float, Option(
        DURATION_OR_0, "longest life of a request or tunnel; 0: no limit",
        "squid's client_lifetime", swapped=True)] = DAY
    upstream_idle_timeout: Annotated[float, Option(
        DURATION, "time that an idle connection to an origin is kept",
        "below the 60 to 75 s after which many origins close", swapped=True)] = 30.0
    drain_timeout: Annotated[float, Option(
        DURATION_OR_0, "time for open connections to finish when the proxy stops",
        "Kubernetes' terminationGracePeriodSeconds", swapped=True)] = 30.0
    handover: Annotated[bool, Option(
        FLAG, "hand tunnels over to a worker's replacement; false: they drain",
        "our choice: most tunnels do not notice a reload or an upgrade",
        swapped=True)] = True
    watch: Annotated[bool, Option(
        FLAG, "reload when a file of the configuration or the policy changes",
        "our choice: an editor's half-written file is no request",
        swapped=True)] = False
    tls_records: Annotated[str, Option(
        choice("own", "libssl", "kernel"), "who encrypts behind a TLS handshake; "
        "libssl needs 13 KiB more a connection; kernel: own, and kTLS for bulk",
        "docs/decisions/0013-tls-by-libssl.md", swapped=True)] = "own"

    max_line: Annotated[int, Option(
        SIZE._replace(low=256, high=16384), "longest request line",
        "RFC 9112 section 3 recommends at least 8000",
        section="Sizes and counts", swapped=True)] = 8192
    max_head: Annotated[int, Option(
        SIZE._replace(low=512, high=262144), "longest request head; at most 256KiB",
        "h11's; nginx allows 4 of 8 KiB", swapped=True)] = 16384
    max_fields: Annotated[int, Option(
        COUNT._replace(low=1, high=128), "most header fields of a request",
        "Apache httpd's LimitRequestFields", swapped=True)] = 100
    max_response_head: Annotated[int, Option(
        SIZE._replace(low=512, high=65536), "longest response head; at most 64KiB",
        "squid's reply_header_max_size", swapped=True)] = 65536
    max_body: Annotated[int, Option(
        SIZE, "longest request body; 0: no limit",
        "a forward proxy cannot judge it; squid: no limit", swapped=True)] = 0
    collected_bodies: Annotated[int, Option(
        SIZE._replace(low=1 << 20), "most bytes of bodies that a worker collects at a "
        "time, to match them, to filter them, or for breakpoints; one user alone gets "
        "half of them", "32 bodies of 4 MiB of one user", swapped=True)] = 256 << 20
    max_connections: Annotated[int, Option(
        COUNT, "most client connections of a worker; 0: as many as nofile allows",
        "RLIMIT_NOFILE", swapped=True)] = 0
    max_connections_total: Annotated[int, Option(
        COUNT, "most client connections of all workers together; 0: no limit",
        "nofile already limits each worker", swapped=True)] = 0
    max_connections_per_client: Annotated[int, Option(
        COUNT, "most connections of one client address (in IPv6 of one /64) over all "
        "workers; 0: no limit", "a client may be a whole site behind one address",
        swapped=True)] = 0
    http2_streams: Annotated[int, Option(
        COUNT._replace(low=1, high=1000), "most streams of a connection of HTTP/2; "
        "each counts as a connection", "RFC 9113 section 6.5.2", swapped=True)] = 100
    upstream_idle: Annotated[int, Option(
        COUNT, "most idle connections to origins that a worker keeps; a further one "
        "takes the place of the one that has waited longest",
        "our choice: nearly what a worker with 20 000 descriptors can use; squid and "
        "HAProxy: no limit", swapped=True)] = 8192
    upstream_idle_per_origin: Annotated[int, Option(
        COUNT, "most idle connections to one origin; if more clients ask it at a time, "
        "connections are closed and opened again and again",
        "our choice: a half, a seventh of the 28 232 usual local ports",
        swapped=True)] = 4096

    resolvers: Annotated[tuple[str, ...], Option(
        RESOLVERS, "addresses of name servers", "/etc/resolv.conf",
        section="DNS")] = ()
    dnssec: Annotated[Literal["off", "required"], Option(
        choice("off", "required"), "required: addresses count only if a name server "
        "says that it has validated them; it needs resolvers: docs/dns.md",
        "few names are signed")] = "off"
    dns_cache_entries: Annotated[int, Option(
        COUNT, "most names in a worker's DNS cache",
        "our choice: ten times squid's ipcache_size")] = 10000
    dns_stale: Annotated[float, Option(
        DURATION_OR_0, "how long an expired answer is used while no name server "
        "answers; 0: not at all", "our choice: an outage; RFC 8767 allows days")
        ] = 3600.0
    dns_overrides: Annotated[tuple[tuple[str, str], ...], Option(
        OVERRIDES, "fixed addresses of names, which are then never looked up; a name "
        "may have several", "none")] = ()
    dns_hook: Annotated[str, Option(
        TEXT._replace(metavar="MODULE:FUNCTION"), "function that gives the addresses "
        "for a request, or leaves them to the name servers: docs/dns.md", "none")] = ""

    policy: Annotated[str, Option(
        FILE, "file of rules, users and limits: TOML, or "
        "smokescreen's YAML", "none: see address_floor and connect_ports",
        section="Allowed destinations", swapped=True)] = ""
    policy_hook: Annotated[str, Option(
        TEXT._replace(metavar="MODULE:FUNCTION"), "async function that decides about "
        "requests that the rules allow", "none", swapped=True)] = ""
    policy_hook_timeout: Annotated[float, Option(
        DURATION, "time for the hook to decide; after that the request is refused",
        "the same as dns_timeout: a hook may query a database", swapped=True)] = 5.0
    address_floor: Annotated[Literal["auto", "on", "off"], Option(
        choice("auto", "on", "off"), "refuse special-purpose addresses",
        "auto: off if all listeners are loopback and there is no policy (R27)",
        swapped=True)] = "auto"
    connect_ports: Annotated[tuple[int, ...] | str, Option(
        PORTS, "ports that CONNECT may reach",
        "auto: any with a policy or if all listeners are loopback, else 443",
        swapped=True)] = "auto"
    sources: Annotated[tuple[SourceRow, ...], Table(
        SourceRow, "Where direct connections come from, if a rule of the policy "
        "(`source`) or the user says so: docs/sources.md.", named=True,
        swapped=True)] = ()
    splice: Annotated[bool, Option(
        FLAG, "move bulk data with splice(2)",
        "three fifths of copying's CPU time at 1 MiB responses", swapped=True)] = True
    collect_sends: Annotated[bool, Option(
        FLAG, "make small sends of many connections in one system call, by io_uring",
        "0.6 to 0.9 of a worker's CPU time; where io_uring is forbidden, each is a "
        "call", swapped=True)] = True

    fleet_url: Annotated[str, Option(
        TEXT._replace(metavar="URL"), "Redis with which several programs share users' "
        "limits: docs/limits.md; it has a password, so prefer fleet_url_file",
        "none: limits count in this program alone",
        section="Limits shared by several programs", file="fleet_url_file",
        stand_in="redis://localhost", swapped=True, of_program=True)] = ""
    fleet_url_file: Annotated[str, Option(
        FILE, "file with the URL on one line", "none",
        swapped=True, of_program=True)] = ""
    fleet_prefix: Annotated[str, Option(
        Kind("TOKEN", parse_token), "prefix of the keys in Redis, one for each fleet",
        "the program's name", swapped=True, of_program=True)] = "cutthrough"
    fleet_interval: Annotated[float, Option(
        DURATION._replace(low=0.02, high=10.0), "time between two exchanges, and so "
        "the delay of the others' counts", "our choice: idle, 0.07 % of a CPU",
        swapped=True, of_program=True)] = 0.2
    fleet_expiry: Annotated[float, Option(
        DURATION._replace(low=0.2, high=600.0), "time until the counts of a silent "
        "program are dropped", "our choice: ten exchanges",
        swapped=True, of_program=True)] = 2.0
    route: Annotated[str, Option(
        Kind("NAME", parse_name), "parent or group for requests whose rule names no "
        "route: docs/parents.md", "none: directly", section="Parents", swapped=True)
        ] = ""
    parents: Annotated[tuple[Parent, ...], Table(
        Parent, "Parents: the proxies that requests go through. docs/parents.md.",
        named=True, swapped=True)] = ()
    groups: Annotated[tuple[Group, ...], Table(
        Group, "Groups of parents. Groups of users belong in the file of `policy`.",
        named=True, swapped=True, not_meant=" of parents; groups of users belong in "
        "the file of `policy`")] = ()
    origins: Annotated[tuple[Origin, ...], Table(
        Origin, "Named origins: servers for requests in origin form, by `origin` of a "
        "rule. docs/origins.md.", named=True, swapped=True)] = ()

    def __post_init__(self) -> None:
        if not (self.user or self.password or self.users_file or self.policy
                or self.auth_hook):
            for name, value in zip(("user", "password"), DEMONSTRATION, strict=True):
                msgspec.structs.force_setattr(self, name, value)
        raise_all([*self._contradictions()])
        if not self.via:
            pseudonym = f"cutthrough-{secrets.token_hex(4)}"
            msgspec.structs.force_setattr(self, "via", pseudonym)

    def _contradictions(self) -> Iterator[ConfigError]:
        yield from contradictions(self.listen, self.proxy_protocol,
                                  self.proxy_protocol_from, self.listeners)
        yield from contradictions_of_credentials(
            self.user, self.password, self.demonstration, self.all_listeners,
            self.listen)
        yield from beside_admin(self.admin, self.all_listeners)
        yield from self.contradictions_of_administration()
        yield from contradictions_of_sources(self.sources)
        yield from contradictions_of_parents(self.parents, self.groups, self.route)
        yield from contradictions_of_origins(
            self.origins, self.origin, self.parents, self.groups)
        if self.dnssec == "required" and not self.resolvers:
            yield ConfigError("", "dnssec", "needs resolvers: those that validate")
        yield from contradictions_of_fleet(
            self.fleet_url, self.fleet_prefix, self.fleet_interval, self.fleet_expiry)
        yield from self.contradictions_of_capture()

    @property
    def demonstration(self) -> bool:
        """Whether the credentials are the well-known ones of the demonstration (R29),
        also if the operator gave them: they are as unsafe then."""
        return (self.user, self.password) == DEMONSTRATION

    @property
    def all_listeners(self) -> tuple[Listener, ...]:
        """The listeners of `listen`, then those of `listeners`. Supervisor and workers
        name a listener by its number here."""
        return merge(self.listen, self.proxy_protocol, self.listeners)

    @property
    def all_parents(self) -> tuple[Parent, ...]:
        """The parents, then the servers of origins."""
        return self.parents + tuple(
            server for origin in self.origins for server in origin.servers)

    @property
    def loopback(self) -> bool:
        """Whether every listener serves this host alone."""
        return all(listener.is_local for listener in self.all_listeners)

    @property
    def floor(self) -> bool:
        """Whether special-purpose addresses are refused: `address_floor` resolved."""
        if self.address_floor == "auto":
            return bool(self.policy) or not self.loopback
        return self.address_floor == "on"

    @property
    def allowed_ports(self) -> tuple[int, ...] | None:
        """The ports that CONNECT may reach, `connect_ports` resolved; None: any."""
        if self.connect_ports == "auto":
            return None if self.policy or self.loopback else (443,)
        return self.connect_ports if isinstance(self.connect_ports, tuple) else None

    def __repr__(self) -> str:
        """Leaves the secrets out: a repr ends up in logs and tracebacks (R37)."""
        shown = (f"{name}={getattr(self, name)!r}" for name in OPTIONS
                 if name not in SECRETS)
        return f"Config({', '.join(shown)})"


OPTIONS = options_of(Config)
TABLES = tables_of(Config)
DEFAULTS = defaults_of(Config)
# Every secret can come from a file: the option, and the option that names its file.
SECRETS = {name: option.file for name, option in OPTIONS.items() if option.file}
