"""The policy file: TOML text -> source.Policy, or a PolicyError with place and reason.

No I/O: the caller passes the text, and a function that reads the files of lists. Every
text in the Policy is canonical (`patterns`), and names of lists are replaced by their
entries. An empty tuple in a rule is no condition, so it matches everything. That is why
an empty array is an error, and a rule whose lists turn out empty is left out.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, get_args

import msgspec

from cutthrough.config.mistake import MOST_NOTED, nearest, noting, raise_all
from cutthrough.config.settings import OF_POLICY
from cutthrough.config.toml import Path, Places, TomlError, read_toml
from cutthrough.config.user_names import composed
from cutthrough.config.values import parse_row_name
from cutthrough.policy.acl import METHODS
from cutthrough.policy.contradictions import contradictions
from cutthrough.policy.faults import read_faults
from cutthrough.policy.filters import read_filter
from cutthrough.policy.fingerprints import parse_fingerprint, parse_http2_fingerprint
from cutthrough.policy.globs import parse_glob
from cutthrough.policy.headers import read_headers
from cutthrough.policy.limit_tables import KEYS as LIMIT_KEYS
from cutthrough.policy.limit_tables import read_limits
from cutthrough.policy.lists import ListReader, ReadFile
from cutthrough.policy.patterns import canonical_network, host_patterns, parse_replaced
from cutthrough.policy.reader import unknown_key
from cutthrough.policy.source import (
    NAMES,
    OF_TUNNELS,
    WORDS,
    Action,
    Faults,
    Filter,
    Headers,
    Limits,
    Policy,
    PolicyError,
    Rule,
    User,
)
from cutthrough.policy.tlvs import TLVS_OF_RULES, parse_value
from cutthrough.policy.users import check_identity, check_name, kind_of
from cutthrough.wire.openings import PROTOCOLS

ACTIONS = get_args(Action)
_TOP = ("default", "cut", *OF_POLICY)
_USER = ("password", "groups", "expires")
_LISTED = ("hosts", "addresses", "clients", "paths", "ja4", "client_ja4",
           "http2_fingerprint", "tlvs")
_METHOD = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*rules[ \t]*\]\]", re.M)

MOST_MESSAGE = 300                           # characters, for people


def read_policy(text: str, source: str, read_file: ReadFile) -> Policy:
    """Reads the text of a policy file named `source`.

    `read_file` returns the text of a file, given its name as a list writes it; it may
    raise OSError or UnicodeError. Raises PolicyError.
    """
    try:
        table = read_toml(text, is_secret)
    except TomlError as error:
        raise PolicyError(source, "", error.reason, error.place) from None
    return _Reader(table, text, source, read_file).read()


def is_secret(path: Path) -> bool:
    """May a secret stand there? In `users`, in fields' values, in a misspelt table."""
    if path[0] == "headers":
        return len(path) > 3
    if path[0] == "users":
        return path[2:3] not in (("groups",), ("expires",))
    return path[0] not in (*_TOP, *LIMIT_KEYS, *_RULE)


def add_users(policy: Policy, users: Mapping[str, User], source: str) -> Policy:
    """Returns the policy with the users of another file added to its users and groups.

    Raises PolicyError if both define a user, because the passwords could differ.
    """
    raise_all([PolicyError(source, name, f"{policy.source} already defines this user")
               for name in users if name in policy.users])
    return msgspec.structs.replace(
        policy, users={**policy.users, **_in_groups(users, policy.groups)})


def _in_groups(users: Mapping[str, User],
               groups: Mapping[str, tuple[str, ...]]) -> dict[str, User]:
    """Returns the users, each with the groups that list it as a member."""
    of: dict[str, list[str]] = {}
    for group, members in groups.items():
        for name in members:
            of.setdefault(name, []).append(group)
    return {
        name: msgspec.structs.replace(
            user, groups=tuple(dict.fromkeys((*user.groups, *of.get(name, ())))))
        for name, user in users.items()}


class _Reader(ListReader):
    """One policy file while it is read."""

    def __init__(self, table: dict[str, Any], text: str, source: str,
                 read_file: ReadFile) -> None:
        super().__init__(table, source, Places(text, is_secret), read_file)
        self.text = text

    def read(self) -> Policy:
        self.check_keys(self.table, _TOP)
        default: Action = "deny"
        cut = False
        with noting(self.mistakes):
            default = self.choice(self.table, "default", ACTIONS, "deny")
        with noting(self.mistakes):
            cut = self.read_flag(self.table, "cut")
        groups = self.read_groups()
        users = self.read_users(groups)
        self.lists = self.sub("lists")
        self.check_lists()
        self.known_limits = self.sub("limits")
        limits, user_limits, group_limits = self.read_limits()
        faults = self.read_acts("faults", Faults, read_faults)
        filters = self.read_acts("filters", Filter, read_filter)
        headers = self.read_acts("headers", Headers, read_headers)
        rules = self.read_rules()
        raise_all(self.mistakes)
        return Policy(
            rules=rules, default=default, cut=cut, users=users,
            groups=groups, limits=limits, user_limits=user_limits,
            group_limits=group_limits, faults=faults, filters=filters,
            headers=headers, source=self.source)

    # Users, groups and limits.

    def read_groups(self) -> dict[str, tuple[str, ...]]:
        groups: dict[str, tuple[str, ...]] = {}
        for name, members in self.sub("groups").items():
            groups[name] = ()           # defined, even if its members are invalid
            with self.table_at("groups"):
                if not isinstance(members, list) or not all(
                        isinstance(member, str) for member in members):
                    self.fail(name, "takes a list of user names" + (
                        "; groups of parents belong in the configuration file"
                        if isinstance(members, dict) and "parents" in members else ""))
                groups[name] = tuple(dict.fromkeys(map(composed, members)))
                for i, member in enumerate(members):
                    with noting(self.mistakes):
                        self.check_user(name, member, i)
        return groups

    def check_user(self, key: str, name: str, item: int | None = None) -> None:
        """`key` is empty in [users] of a user with a password."""
        try:
            (check_identity if key else check_name)(name)
        except ValueError as error:
            self.fail(key, str(error), item)

    def read_users(self, groups: dict[str, tuple[str, ...]]) -> dict[str, User]:
        users = {}
        self.known_groups = {*groups}
        for key, table in self.sub("users").items():
            name = composed(key)
            with self.table_at("users", key):
                if not isinstance(table, dict):
                    self.fail("", "takes a table")
                self.check_user("", name)
                if name in users:
                    self.fail("", "is defined twice, in two spellings")
                self.check_keys(table, _USER)
                expires, member = 0.0, list[str]()
                with noting(self.mistakes):
                    expires = self.read_expiry(table)
                with noting(self.mistakes):
                    member = self.texts(table, "groups")
                self.known_groups.update(member)
                users[name] = User(name=name, hash=self.read_hash(name, table),
                                   expires=expires, groups=tuple(member))
        return _in_groups(users, groups)

    def read_hash(self, name: str, table: dict[str, Any]) -> str:
        password = self.value(table, "password", str, "a string", "")
        if not password:
            self.fail("password", f"is missing: `cutthrough passwd {name}` prints "
                                  "the name, a colon and the value for this key")
        try:
            kind_of(password)
        except ValueError as error:
            self.fail("password", str(error))
        return password

    def read_expiry(self, table: dict[str, Any]) -> float:
        if "expires" not in table:
            return 0.0
        expires = table["expires"]
        if not isinstance(expires, datetime) or expires.tzinfo is None:
            self.fail("expires", "takes a time with a zone, as 2027-01-01T00:00:00Z")
        return expires.timestamp()

    def read_limits(self) -> tuple[dict[str, Limits], dict[str, str], dict[str, str]]:
        limits = {}
        of_users: dict[str, str] = {}
        of_groups: dict[str, str] = {}
        for name, table in self.known_limits.items():
            with self.table_at("limits", name):
                if not isinstance(table, dict):
                    self.fail("", "takes a table")
                self.check_keys(table, (*LIMIT_KEYS, "users", "groups"))
                if name == "default" and ("users" in table or "groups" in table):
                    self.fail("", "applies to all other users: it takes no `users` or "
                                  "`groups`")
                for key, taken in (("users", of_users), ("groups", of_groups)):
                    with noting(self.mistakes):
                        self.assign(table, key, taken, name)
                limits[name] = read_limits(table, self.fail, self.mistakes)
        return limits, of_users, of_groups

    def read_acts(self, key: str, kind: type[Any],
                  read: Callable[..., Any]) -> dict[str, Any]:
        acts = {}
        for name, table in self.sub(key).items():
            with self.table_at(key, name):
                if not isinstance(table, dict):
                    self.fail("", "takes a table")
                self.check_keys(table, kind.__struct_fields__)
                acts[name] = read(table, self.fail)
        return acts

    def assign(self, table: dict[str, Any], key: str, taken: dict[str, str],
               name: str) -> None:
        for i, who in enumerate(self.read_who(table, key)):
            if taken.setdefault(who, name) != name:
                self.fail(key, f"{who!r} already has limits.{taken[who]}", i)

    def check_group(self, group: str, item: int) -> None:
        if group not in self.known_groups:
            reason = unknown_key(group, self.known_groups, "group")
            if not reason.startswith("no such group;"):
                reason += (": define it in [groups], or add it to a user's `groups` "
                           "in [users]")
            self.fail("groups", f"{group!r}: {reason}", item)

    # Rules.

    def read_rules(self) -> tuple[Rule, ...]:
        tables: list[Any] = []
        with noting(self.mistakes):
            tables = self.value(self.table, "rules", list, "[[rules]] tables", [])
        lines = []
        at, line = 0, 1
        for match in _HEADER.finditer(self.text):
            line += self.text.count("\n", at, match.start())
            at = match.start()
            lines.append(line)
        # A header inside a long string, or rules as one array: the lines are unknown
        has_lines = len(lines) == len(tables)
        rules = []
        for i, table in enumerate(tables):
            if len(self.mistakes) >= MOST_NOTED:
                break
            with self.table_at("rules", i):
                if not isinstance(table, dict):
                    self.fail("", "takes a table")
                rule = self.read_rule(
                    table, f"{self.source}:{lines[i]}" if has_lines else
                    f"{self.source}: rules[{i}]")
                if rule is not None:
                    rules.append(rule)
        return tuple(rules)

    def read_rule(self, table: dict[str, Any], place: str) -> Rule | None:
        """Returns the rule, or None if it is invalid or can match no request, because
        the lists that it names are empty."""
        fields = {}
        for key in table:
            read = _RULE.get(key)
            if read is None:
                self.no_key(key, _RULE)
                continue
            with noting(self.mistakes):
                fields[_FIELDS.get(key, key)] = read(self, table, key)
        # A misspelt key has been reported
        if "action" not in table and not nearest("action", table):
            self.fail("action", "is missing")
        if "action" not in fields:
            return None
        if any(fields.get(key) == () for key in _LISTED):
            return None
        for key, reason in contradictions(fields):
            self.fail(key, reason)
        return Rule(source=place, **fields)

    def read_action(self, table: dict[str, Any], key: str) -> Any:
        return self.choice(table, key, ACTIONS, "")

    def read_name(self, table: dict[str, Any], key: str) -> str:
        return self.value(table, key, str, "a string", "")

    def read_message(self, table: dict[str, Any], key: str) -> str:
        text = self.read_name(table, key)
        if not text.isprintable() or len(text) > MOST_MESSAGE:
            self.fail(key, f"is not one line of at most {MOST_MESSAGE} characters")
        return text

    def read_flag(self, table: dict[str, Any], key: str) -> bool:
        return self.value(table, key, bool, "true or false", False)

    def read_who(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        names = self.texts(table, key)
        for i, name in enumerate(names):
            with noting(self.mistakes):
                if key == "groups":
                    self.check_group(name, i)
                else:
                    self.check_user(key, name, i)
        return tuple(names if key == "groups" else map(composed, names))

    def read_hosts(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        return self.entries(table, key, host_patterns)

    def read_networks(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        return self.entries(table, key, lambda text: (canonical_network(text),))

    def read_tlvs(self, table: dict[str, Any],
                  key: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Returns (), which matches no request, if a list turns out empty."""
        by_name = self.value(table, key, dict, "a table of TLVs by name", {})
        if not by_name:
            self.fail(key, "is empty: add a TLV, or leave out the key")
        tlvs = []
        with self.table_at(*self.path, key):
            self.check_keys(by_name, TLVS_OF_RULES)
            for name in sorted(by_name.keys() & {*TLVS_OF_RULES}):
                with noting(self.mistakes):
                    tlvs.append((name, self.entries(
                        by_name, name,
                        host_patterns if name == "authority" else parse_value)))
        return () if any(not values for _, values in tlvs) else tuple(tlvs)

    def read_limit(self, table: dict[str, Any], key: str) -> str:
        name = self.value(table, key, str, "a name of [limits]", "")
        if name not in self.known_limits:
            self.fail(key, f"{name!r}: {unknown_key(name, self.known_limits, key)}")
        return name

    def read_names(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        if table.get("action") == "deny":
            self.fail(key, "has no effect in a rule that denies")
        if table.keys() & OF_TUNNELS:
            self.fail(key, "begins before a tunnel's first bytes are known")
        value, known = table[key], self.sub(key)
        names = [value] if isinstance(value, str) else self.texts(table, key)
        for i, name in enumerate(names):
            if name not in known:
                self.fail(key, f"{name!r}: {unknown_key(name, known, key)}",
                          None if names == [value] else i)
        return tuple(names)

    def read_row_name(self, table: dict[str, Any], key: str) -> str:
        if table.get("action") == "deny":
            self.fail(key, "has no effect in a rule that denies")
        name = self.value(table, key, str, NAMES[key], "")
        try:
            return parse_row_name(name)
        except ValueError as error:
            self.fail(key, str(error))

    def read_fingerprints(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        return self.entries(table, key, _PRINTS.get(key, parse_fingerprint))

    def read_ports(self, table: dict[str, Any],
                   key: str) -> tuple[tuple[int, int], ...]:
        ports = self.value(table, key, list, "a list of ports", [])
        if not ports:
            self.texts(table, key)
        ranges = []
        for i, item in enumerate(ports):
            with noting(self.mistakes):
                match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", str(item))
                if match is None or isinstance(item, bool):
                    self.fail(key, f"{item!r} is neither a port such as 443 nor a "
                                   "range such as \"8000-8999\"", i)
                first, last = int(match[1]), int(match[2] or match[1])
                if not 1 <= first <= last <= 65535:
                    self.fail(key, f"{item!r} is not within 1 to 65535, the lower port "
                                   "first", i)
                ranges.append((first, last))
        return tuple(sorted(set(ranges)))

    def read_methods(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        """A method is case-sensitive (RFC 9110 section 9.1), and those of the registry
        are in capitals."""
        methods = self.texts(table, key)
        for i, method in enumerate(methods):
            with noting(self.mistakes):
                if not _METHOD.fullmatch(method):
                    self.fail(key, f"{method!r} is not a method in capitals, such as "
                              f"{', '.join(METHODS)} (OTHER: any that this list lacks; "
                              "UPGRADE: any request that offers an upgrade)", i)
        return tuple(dict.fromkeys(methods))

    def read_paths(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        return self.entries(table, key, parse_glob)

    def read_replaced(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        try:
            return parse_replaced(table[key])
        except ValueError as error:
            self.fail(key, str(error))

    def read_protocols(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        return self.words(table, key, PROTOCOLS[1:])

    def read_word(self, table: dict[str, Any], key: str) -> Any:
        if key in ("tls", "recording", "breakpoint") and table.get("action") == "deny":
            self.fail(key, "has no effect in a rule that denies")
        return self.choice(table, key, WORDS[key], "")


_PRINTS = {"http2_fingerprint": parse_http2_fingerprint}
_RULE: dict[str, Callable[[_Reader, dict[str, Any], str], Any]] = {
    "name": _Reader.read_name, "action": _Reader.read_action,
    "message": _Reader.read_message,
    "users": _Reader.read_who, "groups": _Reader.read_who,
    "clients": _Reader.read_networks, "addresses": _Reader.read_networks,
    "tlvs": _Reader.read_tlvs, "hosts": _Reader.read_hosts, "ports": _Reader.read_ports,
    "methods": _Reader.read_methods, "paths": _Reader.read_paths,
    "protocol": _Reader.read_protocols, "replace_path": _Reader.read_replaced,
    **dict.fromkeys(("ja4", "client_ja4", *_PRINTS), _Reader.read_fingerprints),
    "sni": _Reader.read_word,
    "cut": _Reader.read_flag, "shared": _Reader.read_flag, "limits": _Reader.read_limit,
    **dict.fromkeys(NAMES, _Reader.read_row_name),
    **dict.fromkeys(("faults", "filters", "headers"), _Reader.read_names),
    "recording_queue": _Reader.read_queue,
    "recording_queue_timeout": _Reader.read_timeout,
    **dict.fromkeys(WORDS, _Reader.read_word),
}
# Keys with a field of another name in Rule
_FIELDS = {"source": "leaves_by"}
