"""Reads the files that a configuration names into one Policy.

Only this module reads policy from the file system. A file with mistakes is not used at
all: every mistake is raised, with file, line and reason.
"""

import importlib.util
import os

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError, decode, read_file
from cutthrough.config.mistake import Mistake, nearest, noting, raise_all
from cutthrough.policy.source import Code, Policy, PolicyError, User


def load_policy(config: Config) -> Policy:
    """Reads the policy's files. Raises PolicyError."""
    policy, users = load_files(config.policy, config.users_file)
    if users:
        # Imported here, because most configurations need no such files
        from cutthrough.policy.rules import add_users

        policy = add_users(policy, users, config.users_file)
    if config.user in policy.users:
        raise PolicyError(policy.source or config.users_file, "", f"{config.user!r} is "
                          "also the configured `user`: remove one of the two")
    check_auth_hook(config, policy)
    if not (policy.users or config.user or config.auth_hook) and (
            wants_passwords(config)):
        toml = bool(policy.source) and not is_smokescreen(policy.source)
        ways = ["--user and --password-file", "--users-file",
                *(["[users] in the policy"] if toml else []), "--auth-hook"]
        raise PolicyError(policy.source or config.users_file, "", "lists no users, "
                          "and no other user is configured: give "
                          f"{', '.join(ways[:-1])}, or {ways[-1]}")
    check_names(config, policy)
    if config.policy_hook:
        policy = msgspec.structs.replace(policy, hook=load_code(config.policy_hook))
    names = [row.code for row in policy.filters.values()]
    if config.recording_hooks and policy.records:
        names.append(config.recording_hooks)
    names += [name for name in (
        config.auth_hook, config.dns_hook, config.activity_hook) if name]
    if names:
        modules = {name.partition(":")[0]: load_code(name) for name in names}
        policy = msgspec.structs.replace(policy, code={
            module: code for module, code in modules.items() if code is not None})
    return policy


def check_auth_hook(config: Config, policy: Policy) -> None:
    """Raises PolicyError if users have both password hashes and a function."""
    if config.auth_hook and policy.users:
        raise PolicyError("", "auth_hook", "verifies all users, and there are users "
                          "with password hashes, in users_file or the policy: remove "
                          "one of the two")


def wants_passwords(config: Config) -> bool:
    """Whether a listener serves only those who give a password."""
    return any(row.auth == "required" and row.client_certificate != "required"
               for row in config.all_listeners)


def check_names(config: Config, policy: Policy) -> None:
    """Checks that the sources, groups, users and the file of captures that one file
    names are in the other. Raises PolicyError."""
    known = [row.name for row in config.sources]
    mistakes: list[Mistake] = [
        PolicyError(rule.source, "source", f"{rule.leaves_by!r}: "
                    + no_such_source(rule.leaves_by, known))
        for rule in policy.rules if rule.leaves_by and rule.leaves_by not in known]
    mistakes += [
        PolicyError(rule.source, "capture", "has no database to write to: set "
                    "capture_file or capture_url in the configuration, or trace_url")
        for rule in policy.rules
        if rule.capture and not (config.capture_database or config.trace_url)]
    mistakes += [
        PolicyError(rule.source, "recording", "has no directory: set "
                    "recording_directory in the configuration")
        for rule in policy.rules if rule.recording and not config.recording_directory]
    groups = {*policy.groups, *(group for user in policy.users.values()
                                for group in user.groups)}
    for row in config.sources:
        mistakes += [
            ConfigError("", "sources", f"{who!r} is in no policy: no such group",
                        path=(row.name, "groups"))
            for who in row.groups if who not in groups]
        mistakes += [
            ConfigError("", "sources", f"{who!r}: no such user",
                        path=(row.name, "users"))
            for who in row.users if who not in policy.users and who != config.user
            and not config.auth_hook]
    raise_all(mistakes)


def no_such_source(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return "no such source" + (
        f"; did you mean {near}?" if near else
        f"; the sources are {', '.join(known)}" if known else
        f": define [sources.{name}] in the configuration file")


def load_files(policy_file: str, users_file: str) -> tuple[Policy, dict[str, User]]:
    """Reads both files, "" for none. Raises PolicyError with the mistakes of both."""
    policy, users = Policy(default="allow"), dict[str, User]()
    mistakes: list[Mistake] = []
    with noting(mistakes):
        if policy_file:
            policy = load_rules(policy_file)
    with noting(mistakes):
        if users_file:
            users = load_users(users_file)
    raise_all(mistakes)
    return policy, users


def load_rules(path: str) -> Policy:
    """Reads a policy file: smokescreen's YAML if named .yaml or .yml, else TOML.

    Paths of its lists are relative to the policy file. Raises PolicyError, for an empty
    file too: a full disk leaves one, and so does an editor for a moment.
    """
    from cutthrough.policy.rules import read_policy
    from cutthrough.policy.smokescreen import read_smokescreen

    text = read_text(path)
    if not text.strip():
        raise PolicyError(path, "", "is empty; to refuse everything, write "
                          'default = "deny"')
    if is_smokescreen(path):
        return read_smokescreen(text, path)
    folder = os.path.dirname(path)
    return read_policy(text, path, lambda name: read_text(os.path.join(folder, name)))


def is_smokescreen(path: str) -> bool:
    return path.endswith((".yaml", ".yml"))


def load_users(path: str) -> dict[str, User]:
    """Reads a file of users. Raises PolicyError."""
    # Imported here, because most configurations need no such file
    from cutthrough.policy.users import read_htpasswd

    return read_htpasswd(read_text(path), path)


def load_code(name: str) -> Code | None:
    """Reads the source of `module:function` without running it; None if there is none.

    A wrong name is left to `find_function`, which reports it. Raises PolicyError if the
    file cannot be read.
    """
    try:
        spec = importlib.util.find_spec(name.partition(":")[0])
    except BaseException:                   # from a parent package, which is imported
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Code(spec.origin, read_bytes(spec.origin))


def read_text(path: str) -> str:
    """Returns a file's text. Raises PolicyError."""
    try:
        return decode(read_bytes(path))
    except FileError as error:
        raise PolicyError(path, "", str(error)) from None


def read_bytes(path: str) -> bytes:
    """Returns a file's contents. Raises PolicyError."""
    try:
        return read_file(path)
    except OSError as error:
        raise PolicyError(path, "", error.strerror or str(error)) from None
    except FileError as error:
        raise PolicyError(path, "", str(error)) from None
