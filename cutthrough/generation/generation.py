"""A generation: one configuration and one policy, read together and validated.

The supervisor reads the files once and writes what they said into sealed memory, which
every worker of the generation reads: one that is respawned later reads the same, and
not what the files say by then. Secrets go this way too, and never by argument or
environment, where others can read them.
"""

import fcntl
import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from cutthrough.config.config import OPTIONS, SECRETS, Config
from cutthrough.config.values import show_value
from cutthrough.policy.source import Policy


class Generation(msgspec.Struct, frozen=True):
    """`own`: addresses that are ours beside the listeners, and no destination (R39)."""

    number: int
    config: Config
    policy: Policy
    own: tuple[tuple[str, int], ...] = ()

    def owning(self, own: tuple[tuple[str, int], ...]) -> "Generation":
        return msgspec.structs.replace(self, own=own)


# Reads every source anew. Raises ConfigError, PolicyError or OSError.
Reader = Callable[[], tuple[Config, Policy]]


class Sources(Protocol):
    """Where configuration and policy come from. `listen`, where it is not empty, stands
    for the option: sockets that somebody else has opened."""

    listen: tuple[tuple[str, int], ...]

    def read(self) -> tuple[Config, Policy]: ...


def to_memory(generation: Generation) -> int:
    """Returns a descriptor of sealed memory that `from_memory` reads; the caller's."""
    data = msgspec.msgpack.encode(generation)
    fd = os.memfd_create("cutthrough-generation", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK
                    | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def from_memory(fd: int) -> Generation:
    """Reads a generation; the descriptor stays its owner's, and so does its offset."""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    return msgspec.msgpack.decode(data, type=Generation)


def changed_options(old: Config, new: Config) -> list[str]:
    return [name for name in OPTIONS if getattr(old, name) != getattr(new, name)]


def needs_new_workers(old: Generation, new: Generation) -> bool:
    changed = changed_options(old.config, new.config)
    return not all(OPTIONS[name].swapped for name in changed) or has_new_code(old, new)


def has_new_code(old: Generation, new: Generation) -> bool:
    """Does the hook say something else? A new process runs it, and what it imports,
    without anything of the old one."""
    return (old.config.policy_hook == new.config.policy_hook
            and old.policy.hook != new.policy.hook)


def show_changes(old: Generation, new: Generation) -> str:
    """Says in one line what differs, secrets by name only (R37)."""
    said = []
    for name in changed_options(old.config, new.config):
        if name in SECRETS:
            said.append(name)
            continue
        kind = OPTIONS[name].kind
        was, now = (show_value(kind, getattr(g.config, name)) for g in (old, new))
        said.append(f"{name} {was or '(none)'} -> {now or '(none)'}")
    # What a rule says, and not where: a line put in above moves all that follow
    was_rules, rules = (
        [msgspec.structs.replace(rule, source="") for rule in g.policy.rules]
        for g in (old, new))
    if was_rules != rules:
        gone, come = len(set(was_rules) - set(rules)), len(set(rules) - set(was_rules))
        said.append(f"rules {len(rules)} (+{come} -{gone})")
    for name in ("default", "cut"):
        was, now = (getattr(g.policy, name) for g in (old, new))
        if was != now:
            said.append(f"{name} {was} -> {now}".lower())
    if old.policy.groups != new.policy.groups:
        said.append("groups")
    if old.policy.users != new.policy.users:
        said.append(f"users {len(new.policy.users)}")
    if (old.policy.limits, old.policy.user_limits, old.policy.group_limits) != (
            new.policy.limits, new.policy.user_limits, new.policy.group_limits):
        said.append("limits")
    if has_new_code(old, new):
        said.append("the hook's code")
    return ", ".join(said) or "no changes"
