"""Smokescreen's ACL file, version v1: YAML text -> source.Policy.

Smokescreen decides by role, which here is a user of that name or a member of a group of
that name: the role's service decides, else `default`; without both it denies. In a
service allowed_domains come first, then global_deny_list, global_allow_list, and the
action. This order of rules has the same effect:

    allow    the service's users                its allowed_domains     (each service)
    deny     users of all services              global_deny_list
    allow    users of all services              global_allow_list
    deny, report, allow   users of the services with that action
    allow    all other users                    default's allowed_domains
    deny     all other users                    global_deny_list
    allow    all other users                    global_allow_list
    the default's action

If a user is in several services, their domains add up and the strictest action applies;
in smokescreen a role has one service only.
"""

import re
from collections.abc import Callable
from typing import Any, NoReturn

import yaml

from cutthrough.config.mistake import Mistake, Place, noting, raise_all
from cutthrough.config.user_names import composed
from cutthrough.policy.patterns import canonical_host
from cutthrough.policy.reader import unknown_key
from cutthrough.policy.source import Action, Policy, PolicyError, Rule

_ACTIONS: dict[str, Action] = {"enforce": "deny", "report": "report", "open": "allow"}
_TOP = ("version", "services", "default", "global_allow_list", "global_deny_list")
_SERVICE = ("name", "project", "action", "allowed_domains", "allowed_external_proxies",
            "mitm_domains")
_AT_LINE = re.compile(r"line ([0-9]+)(?:: )?")
_LINE = "\n"                                 # a key that no file can contain


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads plain data only, by libyaml if PyYAML has it. Mappings keep their line."""


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    line = node.start_mark.line + 1
    if not all(isinstance(key, yaml.ScalarNode) for key, _ in node.value):
        raise yaml.constructor.ConstructorError(
            None, None, "a key that is not a string", node.start_mark)
    keys = [key.value for key, _ in node.value]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise yaml.constructor.ConstructorError(
            None, None, f"{twice} occurs twice", node.start_mark)
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return {**mapping, _LINE: line}


def _integer(loader: Any, node: Any) -> int:
    value: int = loader.construct_yaml_int(node)
    if not -(1 << 63) <= value < 1 << 63:    # as in TOML: no message could show it
        raise yaml.constructor.ConstructorError(
            None, None, "an integer has more than 64 bits", node.start_mark)
    return value


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def read_smokescreen(text: str, source: str) -> Policy:
    """Reads the text of an ACL file named `source`. Raises PolicyError."""
    lines = text.split("\n")

    def fail(where: str, reason: str) -> NoReturn:
        said = _AT_LINE.match(where)
        if said is None:
            raise PolicyError(source, where, reason) from None
        number = int(said[1])
        shown = lines[number - 1] if number <= len(lines) else ""
        key = where[said.end():]
        # The line is where the mapping begins; the key is in that line or below
        column = shown.find(key) if key else -1
        width = len(key)
        if column < 0:
            column, width = len(shown) - len(shown.lstrip()), len(shown.strip())
        raise PolicyError(source, key, reason,
                          Place(number, shown, column, width)) from None

    mistakes: list[Mistake] = []

    try:
        table = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        fail(f"line {mark.line + 1}" if mark else "", error.problem or "is not YAML")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        fail("", str(error))
    if not isinstance(table, dict):
        fail("", "takes a mapping")
    _check_keys(table, _TOP, "", fail)
    if table.get("version") != "v1":
        fail("version", f"takes v1, not {table.get('version')!r}")
    services = table.get("services")
    if not isinstance(services, list):
        fail("services", "takes a list" if services else "is missing")

    names: list[str] = []
    by_action: dict[Action, list[str]] = {"deny": [], "report": [], "allow": []}
    rules = []
    for service in services:
        with noting(mistakes):
            if not isinstance(service, dict):
                fail("services", "takes mappings")
            where = f"line {service[_LINE]}"
            name = service.get("name")
            if not isinstance(name, str) or not name:
                fail(f"{where}: name", "takes a string")
            if name in names:
                fail(f"{where}: name", f"{name!r} occurs twice")
            names.append(name)
            action, hosts = _read_service(service, where, fail)
            by_action[action].append(name)
            if hosts:
                rules.append(_rule("allow", [name], hosts, name,
                                   f"{source}:{service[_LINE]}"))

    denied: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    with noting(mistakes):
        denied = _read_hosts(table, "global_deny_list", "", fail)
    with noting(mistakes):
        allowed = _read_hosts(table, "global_allow_list", "", fail)
    shared = []
    if denied:
        key = "global_deny_list"
        shared.append(_rule("deny", names, denied, key, f"{source}: {key}"))
    if allowed:
        key = "global_allow_list"
        shared.append(_rule("allow", names, allowed, key, f"{source}: {key}"))
    if names:
        rules += shared
        rules += [_rule(action, members, (), f"services that {word}", source)
                  for word, action in _ACTIONS.items()
                  if (members := by_action[action])]

    default: Action = "deny"
    fallback = table.get("default")
    raise_all(mistakes)
    if fallback is not None:
        if not isinstance(fallback, dict):
            fail("default", "takes a mapping")
        line = fallback[_LINE]
        default, hosts = _read_service(fallback, f"line {line}", fail)
        if hosts:
            rules.append(_rule("allow", [], hosts, "default", f"{source}:{line}"))
        rules += [Rule(action=rule.action, name=rule.name, hosts=rule.hosts,
                       source=rule.source) for rule in shared]
    return Policy(rules=tuple(rules), default=default, source=source)


def _rule(action: Action, roles: list[str], hosts: tuple[str, ...], name: str,
          source: str) -> Rule:
    return Rule(action=action, users=tuple(map(composed, roles)), groups=tuple(roles),
                hosts=hosts, name=name, source=source)


Fail = Callable[[str, str], NoReturn]


def _check_keys(table: dict[Any, Any], known: tuple[str, ...], where: str,
                fail: Fail) -> None:
    for key in table:
        if key != _LINE and key not in known:
            fail(f"{where}: {key}" if where else str(key), unknown_key(str(key), known))


def _read_service(service: dict[Any, Any], where: str,
                  fail: Fail) -> tuple[Action, tuple[str, ...]]:
    _check_keys(service, _SERVICE, where, fail)
    # allowed_external_proxies concerns a header that this proxy ignores: it is accepted
    if service.get("mitm_domains"):
        fail(f"{where}: mitm_domains", "is not supported: tunnels are not decrypted")
    action = service.get("action")
    if not isinstance(action, str) or action not in _ACTIONS:
        fail(f"{where}: action", f"{action!r} is not one of open, report, enforce")
    return _ACTIONS[action], _read_hosts(service, "allowed_domains", where, fail)


def _read_hosts(table: dict[Any, Any], key: str, where: str,
                fail: Fail) -> tuple[str, ...]:
    """Checks as smokescreen does: only a leading `*.`, and only normalised names."""
    where = f"{where}: {key}" if where else key
    globs = table.get(key) or []
    if not isinstance(globs, list) or not all(isinstance(item, str) for item in globs):
        fail(where, "takes a list of strings")
    for glob in globs:
        name = glob.removeprefix("*.")
        if name in ("", "*"):
            fail(where, f"{glob!r} matches every host")
        if "*" in name:
            fail(where, f"{glob!r}: * is allowed only as the first label, as in "
                        "*.example.com")
        try:
            host, is_address = canonical_host(name)
        except ValueError as error:
            fail(where, str(error))
        if is_address and name is not glob:
            fail(where, f"{glob!r}: an address has no subdomains")
        if host != name:
            fail(where, f"{glob!r}: use {glob[:-len(name)]}{host}")
    return tuple(dict.fromkeys(globs))
