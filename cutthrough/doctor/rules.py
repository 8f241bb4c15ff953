"""Probable mistakes in a policy file: rules that never match, and undefined users.
They are valid, so a reader accepts them."""

import time
from collections.abc import Iterator

import msgspec

from cutthrough.config.values import show_count
from cutthrough.doctor.finding import Case, Finding
from cutthrough.policy.source import CONDITIONS, Rule

CATCHES = {"allow": "allows", "deny": "denies", "report": "reports"}
SHOWN = 3


def check_policy(case: Case) -> Iterator[Finding]:
    config, policy = case.config, case.policy
    if not policy.source:
        ports = config.allowed_ports
        where = "public addresses only" if config.floor else "every address"
        yield Finding("policy", "ok", f"none: {where}" + (
            "" if ports is None else f", CONNECT to {', '.join(map(str, ports))}"))
    else:
        found = [*check_groups(case), *check_rules(case)]
        yield from found or [Finding(
            "policy", "ok",
            f"{policy.source}: {len(policy.rules)} rules, "
            f"{len(policy.users)} users")]
    if case.exposed and not config.floor:
        yield Finding("address floor", "warn", "off", "on", "users of the proxy reach "
                      "this network and the metadata service: address_floor = \"auto\""
                      ", and rules with `addresses` for wanted destinations")
    expired = sorted(user.name for user in policy.users.values()
                     if user.expires and user.expires < time.time())
    if expired:
        yield Finding("users", "note", f"expired: {_some(expired)}", "",
                      "remove them")


def names_of(case: Case) -> set[str]:
    return {case.config.user, *case.policy.users} - {""}


def check_groups(case: Case) -> Iterator[Finding]:
    for group, members in case.policy.groups.items():
        strangers = sorted(set(members) - names_of(case))
        if strangers:
            yield Finding(f"group {group}", "note", f"no user {_some(strangers)}", "",
                          "correct the name, or remove it")


def check_rules(case: Case) -> Iterator[Finding]:
    policy = case.policy
    known = names_of(case)
    seen: dict[Rule, Rule] = {}
    for number, rule in enumerate(policy.rules, 1):
        where = rule.source or f"rule {number}"
        alike = msgspec.structs.replace(rule, name="", source="", limits="", cut=False,
                                        action="deny")
        if alike in seen:
            yield Finding(where, "warn", "cannot match", "", "it has the conditions "
                          f"of {seen[alike].source}: remove one of them")
        seen.setdefault(alike, rule)
        strangers = sorted(set(rule.users) - known)
        if strangers:
            yield Finding(where, "warn", f"no user {_some(strangers)}", "",
                          "correct the name, or remove it")
        behind = len(policy.rules) - number
        if behind and not any(getattr(rule, name) for name in CONDITIONS):
            yield Finding(where, "warn",
                          f"{show_count(behind, 'rule')} after it cannot match", "",
                          f"it has no conditions and {CATCHES[rule.action]} everything:"
                          " move it to the end, or use `default`")
            return


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
