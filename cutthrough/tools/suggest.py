"""`cutthrough suggest`: the rules that would let pass what a log says was refused.

What is printed is a policy in itself, or goes into one, above the rule that refused.
Each rule is as narrow as what was seen: one user, one port, the methods that were used.
It proposes and does not judge; who adopts it reads it first. Nothing that a rule of the
policy refuses is proposed, nothing that leads to a cloud's metadata service, and no
address that the floor is there for.
"""

import json
from collections import Counter
from typing import NamedTuple

from cutthrough.policy.acl import METHODS
from cutthrough.policy.address import class_of
from cutthrough.policy.patterns import host_patterns
from cutthrough.policy.users import check_name
from cutthrough.tools.dry_run import printable
from cutthrough.tools.log_reader import DENIED, Line, LogReader

HEADER = """\
# Proposed from what no rule decided. To be read before it is believed. What a deny rule
# of the policy refused is not proposed: the end of this file lists it.
"""
# What the log names where no rule of the operator's own matched; the last one is
# smokescreen's default for its services
NO_RULE = ("", "default", "services that enforce")


class Place(NamedTuple):
    """What one user asked for and did not get."""

    user: str
    host: str
    port: int


class Group(NamedTuple):
    """The places that one rule can name."""

    user: str
    port: int
    methods: tuple[str, ...]


class Seen:
    """How often, why, and by which methods."""

    def __init__(self) -> None:
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self.methods: set[str] = set()
        self.by_hook = 0
        self.rules: dict[str, None] = {}     # those that refused it, in order

    def add(self, line: Line) -> None:
        self.count += 1
        self.reasons[line.reason] += 1
        self.methods.add(line.kind if line.kind in METHODS else "OTHER")
        self.by_hook += line.hook is not None
        if line.reason == "destination_denied" and line.hook is None and (
                line.rule not in NO_RULE):
            self.rules[line.rule] = None


def run(path: str) -> int:
    """Prints the proposal for the log `path`; returns the exit status, 0.

    Raises ConfigError.
    """
    log = LogReader(path)
    print(suggest(log), end="")
    log.tell_unreadable()
    return 0


def suggest(log: LogReader) -> str:
    """The proposal as TOML that `read_policy` reads."""
    seen: dict[Place, Seen] = {}
    for line in log:
        if line.reason in DENIED:
            place = Place(line.who, line.host or "", line.port)
            seen.setdefault(place, Seen()).add(line)
    groups: dict[Group, list[tuple[Place, Seen]]] = {}
    told: list[tuple[int, str]] = []
    for place, what in seen.items():
        why = _why_not(place, what)
        if why:
            told.append((what.count, _comment(place, what, why)))
            continue
        group = Group(place.user, place.port, tuple(sorted(what.methods)))
        groups.setdefault(group, []).append((place, what))
    ranked = sorted(groups.items(), key=lambda item: (
        -sum(what.count for _, what in item[1]), item[0]))
    parts = [_rule(group, places) for group, places in ranked]
    left = [text for _, text in sorted(told, key=lambda pair: (-pair[0], pair[1]))]
    if left:
        parts.append("# Not proposed:\n" + "".join(left))
    return "\n".join([HEADER, *parts]) if parts else "# Nothing was refused.\n"


def _why_not(place: Place, what: Seen) -> str:
    """Why no rule can be proposed; "" where one can."""
    if what.by_hook == what.count:
        return "the hook refused it, which no rule overrides"
    if what.rules:
        rules = ", ".join(map(_quoted, what.rules))
        return (f"the rule {rules} refuses it; if that rule is for all the rest, write "
                "`default = \"deny\"` instead")
    kind = _class_of(place.host)
    if "cloud-metadata" in kind:
        return f"{kind}: it hands out credentials"
    if kind and kind != "public":
        return (f"{kind}: an address in `hosts` opens the floor, which is for somebody "
                "to decide")
    if not kind and what.reasons["address_denied"] == what.count:
        return ("the floor closes where the name leads; `cutthrough explain` shows the "
                "address, and a rule with `addresses` opens it")
    try:
        check_name(place.user)
        host_patterns(place.host)
    except ValueError as error:
        return str(error)
    return ""


def _rule(group: Group, places: list[tuple[Place, Seen]]) -> str:
    count = sum(what.count for _, what in places)
    ordered = sorted(places, key=lambda pair: (-pair[1].count, pair[0].host))
    hosts = "".join(f"    {_quoted(place.host)},  # {_counts(place, what)}\n"
                    for place, what in ordered)
    methods = ", ".join(map(_quoted, group.methods))
    denied = sum(what.reasons["port_denied"] for _, what in places)
    also = (f"# connect_ports refused {denied} of these: that option must have "
            f"{group.port} too\n" if denied else "")
    return (f"# {printable(group.user)}: refused {count} times\n{also}"
            f"[[rules]]\naction = \"allow\"\nusers = [{_quoted(group.user)}]\n"
            f"hosts = [\n{hosts}]\nports = [{group.port}]\nmethods = [{methods}]\n")


def _counts(place: Place, what: Seen) -> str:
    kind = _class_of(place.host)
    reasons = ", ".join(f"{n} {reason}" for reason, n in what.reasons.most_common())
    return f"{reasons} ({kind})" if kind else reasons


def _comment(place: Place, what: Seen, why: str) -> str:
    methods = "/".join(sorted(what.methods))
    text = f"{place.user} {methods} {place.host} port {place.port}"
    return f"# {_counts(place, what)}: {printable(text)}\n#     {printable(why)}\n"


def _class_of(host: str) -> str:
    """"" for a name."""
    try:
        return class_of(host)
    except ValueError:
        return ""


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, but DEL is escaped and nothing beyond ASCII."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
