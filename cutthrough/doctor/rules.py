"""Probable mistakes in a policy file: rules that never match, and undefined users.
They are valid, so a reader accepts them."""

import time
from collections.abc import Iterator, Sequence

from cutthrough.config.values import show_count
from cutthrough.doctor.finding import Case, Finding, Verdict
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
        findings = [*check_groups(case), *check_rules(case)]
        yield from findings or [Finding(
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


def judge_strangers(case: Case, where: str, names: Sequence[str], verdict: Verdict
                    ) -> Iterator[Finding]:
    """Any name may be that of a client certificate, if a listener asks for one."""
    strangers = sorted(set(names) - names_of(case))
    if strangers and any(listener.client_ca for listener in case.config.all_listeners):
        yield Finding(where, "note", f"no user {_some(strangers)}", "",
                      "correct the name, unless a client certificate has it")
    elif strangers:
        yield Finding(where, verdict, f"no user {_some(strangers)}", "",
                      "correct the name, or remove it")


def check_groups(case: Case) -> Iterator[Finding]:
    for group, members in case.policy.groups.items():
        yield from judge_strangers(case, f"group {group}", members, "note")


def check_rules(case: Case) -> Iterator[Finding]:
    policy = case.policy
    by_conditions: dict[tuple[object, ...], Rule] = {}
    for number, rule in enumerate(policy.rules, 1):
        where = rule.source or f"rule {number}"
        alike = tuple(getattr(rule, name) for name in CONDITIONS)
        if alike in by_conditions:
            yield Finding(where, "warn", "cannot match", "", "it has the conditions "
                          f"of {by_conditions[alike].source}: remove one of them")
        by_conditions.setdefault(alike, rule)
        yield from judge_strangers(case, where, rule.users, "warn")
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
