"""Rules, ACLs of them, and reports of connections."""

from typing import Any

from cutthrough.policy.acl import Acl
from cutthrough.policy.source import Policy, Rule


def acl_of(*rules: Rule, **fields: Any) -> Acl:
    return Acl(Policy(rules=rules, **fields))


def allow(**fields: Any) -> Rule:
    return Rule(action="allow", **fields)


def deny(**fields: Any) -> Rule:
    return Rule(action="deny", **fields)


def report(**fields: Any) -> Rule:
    return Rule(action="report", **fields)
