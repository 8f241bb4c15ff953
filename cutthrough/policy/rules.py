"""The policy file: TOML text -> source.Policy, or a PolicyError: where, and why.

No I/O: whoever calls hands over the text, and a function that reads the files of lists.
Every text in the Policy is canonical (`patterns`), names of lists are replaced by what
they hold, and nothing is left that could match more than it says: an empty list asks
nothing of a request, so that none is made here by mistake.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn, TypeVar, get_args

import msgspec

from cutthrough.config import OPTIONS
from cutthrough.policy.acl import METHODS
from cutthrough.policy.patterns import canonical_network, host_patterns
from cutthrough.policy.source import Action, Limits, Policy, PolicyError, Rule, User
from cutthrough.policy.users import check_name, kind_of
from cutthrough.values import parse_size

T = TypeVar("T")
ReadFile = Callable[[str], str]

ACTIONS = get_args(Action)
_TOP = ("default", "cut", "users", "groups", "lists", "limits", "rules")
_USER = ("password", "groups", "expires")
_LIMITS = Limits.__struct_fields__
# What a limit that is left out means, where that is not all of it
_ABSENT = {"burst": "one second's worth",
           "tunnels": "no limit, deny the method CONNECT to forbid tunnels"}
_SIZES = ("bytes_per_second", "tunnel_bytes_per_second", "bytes_per_day")
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*rules[ \t]*\]\]", re.M)


def read_policy(text: str, source: str, read_file: ReadFile) -> Policy:
    """Reads the text of a policy file named `source`.

    `read_file` returns the text of a file that a list names, as the name stands there;
    it may raise OSError or UnicodeError. Raises PolicyError.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(source, "", str(error)) from None
    return _Reader(table, text, source, read_file).read()


def add_users(policy: Policy, users: Mapping[str, User], source: str) -> Policy:
    """Returns the policy with the users of another file, in the groups it gives them.

    Raises PolicyError where both know a name: which password counts?
    """
    for name in users:
        if name in policy.users:
            raise PolicyError(source, name, f"{policy.source} has this user already")
    return msgspec.structs.replace(
        policy, users={**policy.users, **_in_groups(users, policy.groups)})


def _in_groups(users: Mapping[str, User],
               groups: Mapping[str, tuple[str, ...]]) -> dict[str, User]:
    """The users, each also in the groups that name him as a member."""
    of: dict[str, list[str]] = {}
    for group, members in groups.items():
        for name in members:
            of.setdefault(name, []).append(group)
    return {
        name: msgspec.structs.replace(
            user, groups=tuple(dict.fromkeys((*user.groups, *of.get(name, ())))))
        for name, user in users.items()}


def unknown_key(key: str, known: Iterable[str], what: str = "key") -> str:
    """The reason for a name that is not known, with the nearest one that is; of keys,
    which the program names, else with all of them."""
    near = difflib.get_close_matches(key, list(known), 1)
    if what == "key" and key in OPTIONS and not (near and near[0].startswith(key)):
        return "is an option: it stands in the file of `serve -c`"
    if what == "key" and not near:
        return f"no such key; there are {', '.join(known)}"
    return f"no such {what}{f'; did you mean {near[0]}?' if near else ''}"


class _Reader:
    """One policy file while it is read; `where` is what the next error is about."""

    def __init__(self, table: dict[str, Any], text: str, source: str,
                 read_file: ReadFile) -> None:
        self.table, self.text, self.source = table, text, source
        self.read_file = read_file
        self.where = ""
        self.files: dict[str, list[tuple[int, str]]] = {}
        self.expanded: dict[tuple[str, str], tuple[str, ...]] = {}

    def fail(self, key: str, reason: str) -> NoReturn:
        where = ": ".join(part for part in (self.where, key) if part)
        raise PolicyError(self.source, where, reason) from None

    def read(self) -> Policy:
        self.check_keys(self.table, _TOP)
        default = self.choice(self.table, "default", ACTIONS, "deny")
        cut = self.read_flag(self.table, "cut")
        groups = self.read_groups()
        users = self.read_users(groups)
        self.known_groups = {*groups, *(g for u in users.values() for g in u.groups)}
        self.lists = self.sub("lists")
        self.check_lists()
        limits, user_limits, group_limits = self.read_limits()
        self.known_limits = limits
        return Policy(
            rules=self.read_rules(), default=default, cut=cut, users=users,
            groups=groups, limits=limits, user_limits=user_limits,
            group_limits=group_limits, source=self.source)

    # Values, of their types.

    def sub(self, key: str) -> dict[str, Any]:
        return self.value(self.table, key, dict, "a table", {})

    def value(self, table: dict[str, Any], key: str, kind: type[T], what: str,
              default: T) -> T:
        if key not in table:
            return default
        found = table[key]
        if not isinstance(found, kind):
            self.fail(key, f"takes {what}")
        return found

    def choice(self, table: dict[str, Any], key: str, words: Iterable[str],
               default: str) -> Any:
        found = table.get(key, default)
        if found not in words:
            self.fail(key, f"{found!r} is none of {', '.join(words)}")
        return found

    def texts(self, table: dict[str, Any], key: str) -> list[str]:
        """A list of strings; [] only where the key is absent."""
        if key not in table:
            return []
        found = table[key]
        if not isinstance(found, list) or not all(isinstance(t, str) for t in found):
            self.fail(key, "takes a list of strings")
        if not found:
            self.fail(key, "an empty list asks nothing: for that, leave the key out")
        return found

    def check_keys(self, table: dict[str, Any], known: Iterable[str]) -> None:
        for key in table:
            if key not in known:
                self.fail(key, unknown_key(key, known))

    # Who.

    def read_groups(self) -> dict[str, tuple[str, ...]]:
        groups = self.sub("groups")
        self.where = "groups"
        for name, members in groups.items():
            if not isinstance(members, list) or not all(
                    isinstance(member, str) for member in members):
                self.fail(name, "takes a list of user names")
            for member in members:
                self.check_user(name, member)
        self.where = ""
        return {name: tuple(dict.fromkeys(got)) for name, got in groups.items()}

    def check_user(self, key: str, name: str) -> None:
        try:
            check_name(name)
        except ValueError as error:
            self.fail(key, str(error))

    def read_users(self, groups: dict[str, tuple[str, ...]]) -> dict[str, User]:
        users = {}
        for name, table in self.sub("users").items():
            self.where = f"users.{name}"
            if not isinstance(table, dict):
                self.fail("", "takes a table")
            self.check_user("", name)
            self.check_keys(table, _USER)
            password = self.value(table, "password", str, "a string", "")
            if not password:
                self.fail("password", f"is missing: `cutthrough passwd {name}` prints "
                                      "it, behind the name")
            try:
                kind_of(password)
            except ValueError as error:
                self.fail("password", str(error))
            users[name] = User(
                name=name, hash=password, expires=self.read_expiry(table),
                groups=tuple(self.texts(table, "groups")))
        self.where = ""
        return _in_groups(users, groups)

    def read_expiry(self, table: dict[str, Any]) -> float:
        if "expires" not in table:
            return 0.0
        expires = table["expires"]
        if not isinstance(expires, datetime) or expires.tzinfo is None:
            self.fail("expires", "takes a time with its zone: 2027-01-01T00:00:00Z")
        return expires.timestamp()

    def read_limits(self) -> tuple[dict[str, Limits], dict[str, str], dict[str, str]]:
        limits = {}
        of_users: dict[str, str] = {}
        of_groups: dict[str, str] = {}
        for name, table in self.sub("limits").items():
            self.where = f"limits.{name}"
            if not isinstance(table, dict):
                self.fail("", "takes a table")
            self.check_keys(table, (*_LIMITS, "users", "groups"))
            if name == "default" and ("users" in table or "groups" in table):
                self.fail("", "is for all whom no other limits name: no users, groups")
            for key, taken in (("users", of_users), ("groups", of_groups)):
                for who in self.texts(table, key):
                    if key == "groups":
                        self.check_group(who)
                    if taken.setdefault(who, name) != name:
                        self.fail(key, f"{who!r} has limits.{taken[who]} already")
            limits[name] = Limits(**{
                key: self.amount(key, value) for key, value in table.items()
                if key in _LIMITS})
        self.where = ""
        return limits, of_users, of_groups

    def amount(self, key: str, value: Any) -> Any:
        if key in _SIZES:
            if isinstance(value, str):
                try:
                    value = parse_size(value)
                except ValueError as error:
                    self.fail(key, str(error))
            what = "a size such as \"10MiB\""
        else:
            what = "a number" if key == "requests_per_second" else "a whole number"
        kinds = (int, float) if key == "requests_per_second" else (int,)
        if (isinstance(value, bool) or not isinstance(value, kinds)
                or not math.isfinite(value) or not 0 <= value < 1 << 63):
            self.fail(key, f"takes {what}")
        if value == 0:
            self.fail(key, "0: leave it out for " + _ABSENT.get(key, "no limit"))
        return value

    def check_group(self, group: str) -> None:
        if group not in self.known_groups:
            reason = unknown_key(group, self.known_groups, "group")
            if reason.startswith("no such group;"):
                self.fail("groups", f"{group!r}: {reason}")
            self.fail("groups", f"{group!r}: {reason}: say who is in it, in [groups] "
                                "or by the groups of a user in [users]")

    # What and where to.

    def read_rules(self) -> tuple[Rule, ...]:
        tables = self.value(self.table, "rules", list, "[[rules]] tables", [])
        lines = []
        at, line = 0, 1
        for match in _HEADER.finditer(self.text):
            line += self.text.count("\n", at, match.start())
            at = match.start()
            lines.append(line)
        # A header inside a long string, or rules as one array: no line can be told.
        told = len(lines) == len(tables)
        rules = []
        for i, table in enumerate(tables):
            self.where = f"line {lines[i]}" if told else f"rules[{i}]"
            if not isinstance(table, dict):
                self.fail("", "takes a table")
            rule = self.read_rule(table, f"{self.source}:{lines[i]}" if told else
                                  f"{self.source}: rules[{i}]")
            if rule is not None:
                rules.append(rule)
        return tuple(rules)

    def read_rule(self, table: dict[str, Any], place: str) -> Rule | None:
        """None for a rule that no request can match, as its lists are empty."""
        fields = {}
        for key in table:
            read = _RULE.get(key)
            if read is None:
                self.fail(key, unknown_key(key, _RULE))
            fields[key] = read(self, table, key)
        if "action" not in fields:
            self.fail("action", "is missing")
        if any(fields.get(key) == () for key in ("hosts", "addresses", "clients")):
            return None
        return Rule(source=place, **fields)

    def read_action(self, table: dict[str, Any], key: str) -> Any:
        return self.choice(table, key, ACTIONS, "")

    def read_name(self, table: dict[str, Any], key: str) -> str:
        return self.value(table, key, str, "a string", "")

    def read_flag(self, table: dict[str, Any], key: str) -> bool:
        return self.value(table, key, bool, "true or false", False)

    def read_who(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        names = self.texts(table, key)
        for name in names:
            if key == "groups":
                self.check_group(name)
            else:
                self.check_user(key, name)
        return tuple(names)

    def read_hosts(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        return self.entries(table, key, host_patterns)

    def read_networks(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        return self.entries(table, key, _networks)

    def read_limit(self, table: dict[str, Any], key: str) -> str:
        name = self.value(table, key, str, "a name of [limits]", "")
        if name not in self.known_limits:
            self.fail(key, unknown_key(name, self.known_limits, "limits"))
        return name

    def read_ports(self, table: dict[str, Any],
                   key: str) -> tuple[tuple[int, int], ...]:
        found = self.value(table, key, list, "a list of ports", [])
        if not found:
            self.texts(table, key)
        ranges = []
        for item in found:
            match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", str(item))
            if match is None or isinstance(item, bool):
                self.fail(key, f"{item!r} is neither 443 nor \"8000-8999\"")
            first, last = int(match[1]), int(match[2] or match[1])
            if not 1 <= first <= last <= 65535:
                self.fail(key, f"{item!r} is not between 1 and 65535, low to high")
            ranges.append((first, last))
        return tuple(sorted(set(ranges)))

    def read_methods(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        methods = self.texts(table, key)
        for method in methods:
            if method not in METHODS:
                self.fail(key, f"{method!r} is none of {', '.join(METHODS)} "
                                     "(OTHER is every method not named here)")
        return tuple(dict.fromkeys(methods))

    # Lists.

    def check_lists(self) -> None:
        self.where = "lists"
        for name, found in self.lists.items():
            if isinstance(found, dict):
                if set(found) != {"file"} or not isinstance(found["file"], str):
                    self.fail(name, "takes a list of strings, or { file = \"name\" }")
            elif not isinstance(found, list) or not all(
                    isinstance(item, str) for item in found):
                self.fail(name, "takes a list of strings, or { file = \"name\" }")
        self.where = ""

    def entries(self, table: dict[str, Any], key: str,
                parse: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        """The entries of a key, lists put in; each once."""
        texts = self.texts(table, key)
        if len(texts) == 1 and texts[0].startswith("@"):
            return self.entries_of_list(texts[0], key, parse)
        found: dict[str, None] = {}
        for text in texts:
            if text.startswith("@"):
                found.update(dict.fromkeys(self.entries_of_list(text, key, parse)))
            else:
                try:
                    found.update(dict.fromkeys(parse(text)))
                except ValueError as error:
                    self.fail(key, str(error))
        return tuple(found)

    def entries_of_list(self, text: str, key: str,
                        parse: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        name = text[1:]
        if name not in self.lists:
            self.fail(key, f"{text}: {unknown_key(name, self.lists, 'list')}")
        kind = "hosts" if key == "hosts" else "networks"
        if (name, kind) not in self.expanded:
            found: dict[str, None] = {}
            listed = self.lists[name]
            in_file = isinstance(listed, dict)
            for line, item in self.lines_of(name) if in_file else enumerate(listed):
                try:
                    found.update(dict.fromkeys(parse(item)))
                except ValueError as error:
                    if in_file:
                        raise PolicyError(
                            listed["file"], f"line {line}", str(error)) from None
                    raise PolicyError(
                        self.source, f"lists.{name}", str(error)) from None
            self.expanded[name, kind] = tuple(found)
        return self.expanded[name, kind]

    def lines_of(self, name: str) -> list[tuple[int, str]]:
        """The numbered lines of a list's file, without comments and empty ones."""
        file = self.lists[name]["file"]
        if file not in self.files:
            try:
                text = self.read_file(file)
            except PolicyError as error:        # of whoever reads for us
                raise PolicyError(
                    self.source, f"lists.{name}", str(error)) from None
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise PolicyError(
                    self.source, f"lists.{name}", f"{file}: {reason}") from None
            lines = enumerate(text.splitlines(), 1)
            stripped = ((n, line.partition("#")[0].strip()) for n, line in lines)
            self.files[file] = [(n, line) for n, line in stripped if line]
        return self.files[file]


_RULE: dict[str, Callable[[_Reader, dict[str, Any], str], Any]] = {
    "name": _Reader.read_name, "action": _Reader.read_action,
    "users": _Reader.read_who, "groups": _Reader.read_who,
    "clients": _Reader.read_networks, "hosts": _Reader.read_hosts,
    "addresses": _Reader.read_networks, "ports": _Reader.read_ports,
    "methods": _Reader.read_methods, "cut": _Reader.read_flag,
    "limits": _Reader.read_limit,
}


def _networks(text: str) -> tuple[str, ...]:
    return (canonical_network(text),)
