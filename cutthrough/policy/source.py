"""The typed form of policy files, before it is compiled.

The readers of policy files (`rules`, `smokescreen`, `users`) make these structures, and
each worker compiles them (`acl`, `auth`, `limits`). The supervisor sends them to the
workers as one message, because all workers of a generation must have the same policy.
Pure data.
"""

from typing import Literal, get_args

import msgspec

from cutthrough.config.mistake import Mistake

Action = Literal["allow", "deny", "report"]
ServerName = Literal["match", "allowed", "any"]
Capture = Literal["head", "full"]
Recording = Literal["record", "replay", "cache", "spy"]
Unrecorded = Literal["pass", "refuse"]
# As acl's Recording
RECORDINGS = {"": 0, "off": 0, "record": 1, "replay": 2, "cache": 3, "spy": 4}
TlsAction = Literal["pass", "intercept", "intercept_http", "refuse"]
Pinned = Literal["refuse", "pass"]
Breakpoint = Literal["request", "response", "both"]


class PolicyError(Mistake):
    """A policy that cannot be used, with the file, the key and the reason."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user who may use the proxy."""

    name: str
    hash: str                           # as htpasswd(1) writes it: $2y$…, $6$…, $apr1$…
    groups: tuple[str, ...] = ()
    expires: float = 0.0                # seconds of the epoch; 0: never

    def __repr__(self) -> str:
        """Leaves the hash out, because a repr ends up in logs and tracebacks (R37)."""
        return f"User({self.name!r}, groups={self.groups!r}, expires={self.expires!r})"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one user, or of another common key. 0: no limit."""

    per: str = "user"                   # or client, all, field:NAME in lower case
    ipv4_prefix: int = 32               # bits of an address that are one client
    ipv6_prefix: int = 64
    connections: int = 0                # client connections at a time
    tunnels: int = 0                    # at a time
    requests_per_second: float = 0.0
    burst: int = 0                      # requests at once; 0: one second's worth
    queue: int = 0                      # requests beyond the rate that wait
    queue_timeout: float = 5.0          # seconds, at most
    bytes_per_second: int = 0           # of all the user's connections together
    bytes_per_second_up: int = 0        # of these, towards origins
    bytes_per_second_down: int = 0      # and towards clients
    tunnel_bytes_per_second: int = 0    # of each tunnel, each direction
    bytes_per_day: int = 0              # since midnight UTC, both directions


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Faults on purpose. The words are toxiproxy's."""

    latency: float = 0.0                # seconds before a request or tunnel is set up
    jitter: float = 0.0                 # seconds more or less, at most `latency`
    bandwidth: int = 0                  # bytes a second, each direction; 0: no bound
    limit_data: int = 0                 # bytes, either direction, then the end; 0: none
    reset_peer: bool = False            # a reset in place of an answer
    status: int = 0                     # an answer of the proxy; 0: none
    toxicity: float = 1.0               # the probability that it has these faults


class Edits(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a head's fields; values may name members of wire.edits.KNOWN."""

    set: tuple[tuple[str, str], ...] = ()       # in place of all fields of their names
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class Headers(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of the fields of forwarded messages."""

    request: Edits = Edits()
    response: Edits = Edits()


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter in Python: its class, and how it may run."""

    code: str                           # module:Class
    budget: float = 0.05                # seconds for each call
    on_fault: Literal["refuse", "pass"] = "refuse"
    max_body: int = 1 << 20             # bytes of a whole body, decoded
    shown: bool = False                 # its additions are in log and captures (R82)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: its conditions and its action. An empty tuple is no condition.

    Users and groups are one condition (either may match); all others must match too.
    """

    action: Action
    name: str = ""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()       # networks, 10.0.0.0/8
    tlvs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # names of policy.tlvs, values
    client_ja4: tuple[str, ...] = ()    # patterns of policy.fingerprints
    http2_fingerprint: tuple[str, ...] = ()     # patterns of policy.fingerprints
    hosts: tuple[str, ...] = ()         # canonical: example.com, *.example.com
    addresses: tuple[str, ...] = ()     # networks that a resolved address must be in
    ports: tuple[tuple[int, int], ...] = ()     # ranges, both ends included
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()         # globs of policy.globs, for plain requests
    # of a tunnel's first bytes
    protocol: tuple[str, ...] = ()      # words of wire.openings
    sni: ServerName | Literal[""] = ""  # match, allowed or any; "": no condition
    ja4: tuple[str, ...] = ()           # patterns of policy.fingerprints
    tls: TlsAction = "pass"             # the action for TLS inside a tunnel
    pinned: Pinned = "refuse"           # if clients have rejected our certificate
    client_certificate: str = ""        # a name of [client_certificates]; "": none
    cut: bool = False                   # a refusal also ends running tunnels
    limits: str = ""                    # a name in Policy.limits; "": none
    leaves_by: str = ""                 # a name of [sources]; "": the user's own
    route: str = ""                     # of a parent or group, or `direct`; "": default
    origin: str = ""                    # a name of [origins]; "": none
    replace_path: tuple[str, ...] = ()  # a prefix of paths, and what the origin gets
    faults: tuple[str, ...] = ()        # names in Policy.faults
    headers: tuple[str, ...] = ()       # names in Policy.headers, in their order
    capture: Capture | Literal[""] = ""     # the kept parts of requests; "": none
    filters: tuple[str, ...] = ()       # names in Policy.filters, in their order
    recording: Recording | Literal[""] = ""     # answers kept, or played again
    shared: bool = False                # in `cache`, users get each other's answers
    unrecorded: Unrecorded = "pass"     # requests that cannot be recorded
    recording_queue: int = 1000         # requests that wait for room to be recorded
    recording_queue_timeout: float = 5.0    # seconds that each may wait
    breakpoint: Breakpoint | Literal[""] = ""     # what is held, if they are armed
    message: str = ""                   # to clients that it refuses
    source: str = ""                    # file and line, for messages: policy.toml:12

    @property
    def way(self) -> str:
        """The name of the route or of the origin; "": none."""
        return self.origin or self.route

    @property
    def for_origin(self) -> bool:
        """Whether it matches requests in origin form only."""
        return bool(self.origin)


# Keys of a rule that take one word
WORDS = {"sni": get_args(ServerName), "capture": get_args(Capture),
         "tls": get_args(TlsAction), "pinned": get_args(Pinned),
         "recording": get_args(Recording), "unrecorded": get_args(Unrecorded),
         "breakpoint": get_args(Breakpoint)}
# Keys that take a name of the configuration
NAMES = {"route": "a name of [parents] or [groups] of the configuration, or \"direct\"",
         "origin": "a name of [origins] of the configuration",
         "source": "a name of [sources] of the configuration",
         "client_certificate": "a name of [client_certificates] of the configuration"}
# Conditions on a tunnel's first bytes, lists that are no conditions, all conditions
OF_TUNNELS = {"protocol", "sni", "ja4"}
ACTS = {"faults", "filters", "headers", "replace_path"}
CONDITIONS = [field.name for field in msgspec.structs.fields(Rule)
              if field.name in OF_TUNNELS or (
                  field.default == () and field.name not in ACTS)] + ["for_origin"]


class Code(msgspec.Struct, frozen=True):
    """A module of a hook or a filter: its file's text when the generation was read."""

    path: str
    text: bytes


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The content of all policy files of a generation."""

    rules: tuple[Rule, ...] = ()
    default: Action = "deny"
    cut: bool = False                   # a refusal by default also ends running tunnels
    users: dict[str, User] = {}
    groups: dict[str, tuple[str, ...]] = {}     # name -> members, of other files too
    limits: dict[str, Limits] = {}      # by name; "default": for all other users
    user_limits: dict[str, str] = {}    # user -> name of limits
    group_limits: dict[str, str] = {}   # group -> name of limits
    faults: dict[str, Faults] = {}
    filters: dict[str, Filter] = {}
    headers: dict[str, Headers] = {}
    code: dict[str, Code] = {}          # of filters and recordings' hooks, by module
    source: str = ""                    # the file; "": the built-in policy
    hook: Code | None = None            # None: no hook, or one without a source file

    @property
    def captures(self) -> bool:
        """Whether any rule keeps requests."""
        return any(rule.capture for rule in self.rules)

    @property
    def records(self) -> bool:
        """Whether any rule records or replays."""
        return any(rule.recording for rule in self.rules)

    @property
    def replays(self) -> bool:
        return any(rule.recording not in ("", "record") for rule in self.rules)

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Returns the groups of this user. The user of the configuration (`user`) is in
        no table of users, so groups that list the name are searched."""
        known = self.users.get(name)
        if known is not None:
            return known.groups
        return tuple(group for group, names in self.groups.items() if name in names)
