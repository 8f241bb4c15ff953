"""`cutthrough suggest`: proposes rules that would allow the refused requests of a log.

The output is a policy, or a part for one, above the rule that refused. Each rule is as
narrow as the requests: one user, or without one the clients, one port, the methods that
were used. An operator
reviews the rules before use. None is proposed if a rule of the policy refused the
request, for a cloud's metadata service, or for an address that the floor refuses.
"""

import argparse
import json
from collections import Counter
from typing import NamedTuple

from cutthrough.config.values import show_count
from cutthrough.policy.acl import METHODS
from cutthrough.policy.address import class_of
from cutthrough.policy.patterns import host_patterns
from cutthrough.policy.users import check_identity
from cutthrough.tools.dry_run import printable
from cutthrough.tools.log_reader import BY_OPENING, DENIED, Line, LogReader

HEADER = """\
# Proposed for requests that no rule decided; review it before use. Requests that a deny
# rule of the policy refused are not proposed: they are listed at the end.
"""
MOST_CLIENTS = 64                            # of a rule
# The logged rule if no rule of the operator's own matched; the last one is
# smokescreen's default for its services
NO_RULE = ("", "default", "services that enforce")


class Place(NamedTuple):
    """A destination that was refused to one user."""

    user: str
    host: str
    port: int


class Group(NamedTuple):
    """The common properties of the places in one rule. `clients`: addresses, if the
    requests have no user."""

    user: str
    port: int
    methods: tuple[str, ...]
    clients: tuple[str, ...] = ()


class PlaceRefusals:
    """The refusals of one place: their number, reasons and methods."""

    def __init__(self) -> None:
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self.methods: set[str] = set()
        self.by_hook = 0
        self.clients: set[str] = set()
        self.rules: dict[str, None] = {}     # the rules that refused it, in order

    def add(self, line: Line) -> None:
        self.count += 1
        self.reasons[line.reason] += 1
        self.methods.add(line.kind if line.kind in METHODS else "OTHER")
        self.by_hook += line.hook is not None
        self.clients.add(line.client)
        if line.reason == "destination_denied" and line.hook is None and (
                line.rule not in NO_RULE):
            self.rules[line.rule] = None


def run(args: argparse.Namespace) -> int:
    """Prints the proposal for the log; returns the exit status. Raises ConfigError."""
    log = LogReader(args.log)
    print(suggest(log), end="")
    log.tell_unreadable()
    return 0


def suggest(log: LogReader) -> str:
    """The proposal, in TOML that `read_policy` accepts."""
    refusals: dict[Place, PlaceRefusals] = {}
    for line in log:
        if line.reason in DENIED:
            place = Place(line.who, line.host or "", line.port)
            refusals.setdefault(place, PlaceRefusals()).add(line)
    groups: dict[Group, list[tuple[Place, PlaceRefusals]]] = {}
    skipped: list[tuple[int, str]] = []
    for place, what in refusals.items():
        why = _why_not(place, what)
        if why:
            skipped.append((what.count, _comment(place, what, why)))
            continue
        group = Group(place.user, place.port, tuple(sorted(what.methods)),
                      () if place.user else tuple(sorted(what.clients)))
        groups.setdefault(group, []).append((place, what))
    ranked = sorted(groups.items(), key=lambda item: (
        -sum(what.count for _, what in item[1]), item[0]))
    parts = [_rule(group, places) for group, places in ranked]
    left = [text for _, text in sorted(skipped, key=lambda pair: (-pair[0], pair[1]))]
    if left:
        parts.append("# Not proposed:\n" + "".join(left))
    return "\n".join([HEADER, *parts]) if parts else "# Nothing was refused.\n"


def _why_not(place: Place, what: PlaceRefusals) -> str:
    """The reason why no rule can be proposed; "" if one can."""
    if what.by_hook == what.count:
        return "the hook refused it, and no rule overrides the hook"
    if what.rules:
        rules = ", ".join(map(_quoted, what.rules))
        return (f"the rule {rules} refuses it; if that rule is the catch-all, write "
                "`default = \"deny\"` instead")
    if what.reasons.keys() & BY_OPENING:
        return ("a rule refuses the tunnel's first bytes: compare `tunnel_protocol`, "
                "`sni` and `ja4` in the log with it")
    if what.reasons["path_denied"]:
        return "a rule refuses the path: compare `url` in the log with its `paths`"
    kind = _class_of(place.host)
    if "cloud-metadata" in kind:
        return f"{kind}: it hands out credentials"
    if kind and kind != "public":
        return f"{kind}: an address in `hosts` opens the floor: your decision"
    if not kind and what.reasons["address_denied"] == what.count:
        return ("the floor refuses the name's address; `cutthrough explain` shows it, "
                "and a rule with `addresses` allows it")
    try:
        if place.user:
            check_identity(place.user)
        host_patterns(place.host)
    except ValueError as error:
        return str(error)
    return ""


def _rule(group: Group, places: list[tuple[Place, PlaceRefusals]]) -> str:
    count = sum(what.count for _, what in places)
    ordered = sorted(places, key=lambda pair: (-pair[1].count, pair[0].host))
    hosts = "".join(f"    {_quoted(place.host)},  # {_counts(place, what)}\n"
                    for place, what in ordered)
    methods = ", ".join(map(_quoted, group.methods))
    denied = sum(what.reasons["port_denied"] for _, what in places)
    also = (f"# connect_ports refused {denied} of these: add {group.port} to that "
            "option\n" if denied else "")
    whose, who = printable(group.user), f"users = [{_quoted(group.user)}]"
    if not group.user:                       # a listener without passwords
        many = len(group.clients) > MOST_CLIENTS
        whose = show_count(len(group.clients), "client") + " without a user" + (
            ": give their networks" if many else "")
        who = ("# clients = []" if many
               else f"clients = [{', '.join(map(_quoted, group.clients))}]")
    return (f"# {whose}: refused {count} times\n{also}"
            f"[[rules]]\naction = \"allow\"\n{who}\n"
            f"hosts = [\n{hosts}]\nports = [{group.port}]\nmethods = [{methods}]\n")


def _counts(place: Place, what: PlaceRefusals) -> str:
    kind = _class_of(place.host)
    reasons = ", ".join(f"{n} {reason}" for reason, n in what.reasons.most_common())
    return f"{reasons} ({kind})" if kind else reasons


def _comment(place: Place, what: PlaceRefusals, why: str) -> str:
    methods = "/".join(sorted(what.methods))
    text = f"{place.user or '-'} {methods} {place.host} port {place.port}"
    return f"# {_counts(place, what)}: {printable(text)}\n#     {printable(why)}\n"


def _class_of(host: str) -> str:
    """The class of an address; "" for a name."""
    try:
        return class_of(host)
    except ValueError:
        return ""


def _quoted(text: str) -> str:
    """A basic string of TOML: as in JSON, with DEL escaped, and text beyond ASCII not.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
