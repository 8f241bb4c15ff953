"""What a policy says, before it is compiled: the typed form of its files.

Whoever reads a policy file makes these; the compiled structures (`acl`, `auth`,
`limits`) are made from them, in each worker anew. They travel from the supervisor to
the workers as one message, so that every worker of a generation has read the same text.
Pure data: how a file is read stands in `rules` and `users`.
"""

from typing import Literal

import msgspec

from cutthrough.config.mistake import Mistake

Action = Literal["allow", "deny", "report"]


class PolicyError(Mistake):
    """A policy that cannot be used: which file, which key, and why."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may use the proxy."""

    name: str
    hash: str                           # as htpasswd(1) writes it: $2y$…, $6$…, $apr1$…
    groups: tuple[str, ...] = ()
    expires: float = 0.0                # seconds of the epoch; 0: never

    def __repr__(self) -> str:
        """Leaves the hash out: a repr ends up in logs and tracebacks (R37)."""
        return f"User({self.name!r}, groups={self.groups!r}, expires={self.expires!r})"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one user may use. 0: no limit."""

    connections: int = 0                # client connections at a time
    tunnels: int = 0                    # at a time
    requests_per_second: float = 0.0
    burst: int = 0                      # requests at once; 0: one second's worth
    bytes_per_second: int = 0           # of the user, everything together
    tunnel_bytes_per_second: int = 0    # of each tunnel, each direction
    bytes_per_day: int = 0              # since midnight UTC, both directions


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: who, where to, what, and the answer. An empty tuple asks nothing.

    Users and groups are one question (either answers it); the others must all match.
    """

    action: Action
    name: str = ""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()       # networks, 10.0.0.0/8
    hosts: tuple[str, ...] = ()         # canonical: example.com, *.example.com
    addresses: tuple[str, ...] = ()     # networks that a resolved address must be in
    ports: tuple[tuple[int, int], ...] = ()     # ranges, both ends included
    methods: tuple[str, ...] = ()
    cut: bool = False                   # a refusal also ends tunnels that run already
    limits: str = ""                    # a name in Policy.limits
    source: str = ""                    # file and line, for people: policy.toml:12


class Code(msgspec.Struct, frozen=True):
    """A hook's module, as its file said when the generation was read."""

    path: str
    text: bytes


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a generation's files said."""

    rules: tuple[Rule, ...] = ()
    default: Action = "deny"
    cut: bool = False                   # the default ends running tunnels too
    users: dict[str, User] = {}
    groups: dict[str, tuple[str, ...]] = {}     # members, those of other files too
    limits: dict[str, Limits] = {}      # by name; "default": of the others
    user_limits: dict[str, str] = {}    # user -> name of limits
    group_limits: dict[str, str] = {}
    source: str = ""                    # the file, "" for none: the built-in policy
    hook: Code | None = None            # None: there is none, or not as source

    def groups_of(self, name: str) -> tuple[str, ...]:
        """The groups that this name is in: also of the one user whom the configuration
        names, who stands in no table of users."""
        known = self.users.get(name)
        if known is not None:
            return known.groups
        return tuple(group for group, names in self.groups.items() if name in names)
