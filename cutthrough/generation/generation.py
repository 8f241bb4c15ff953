"""A generation: one configuration and one policy, read together and validated.

The supervisor reads the files once and writes their contents into sealed memory. Every
worker of the generation reads that memory, so a worker that is respawned later gets the
same contents even if the files have changed since. Secrets also pass through it, never
through arguments or the environment, because other processes can read those.
"""

import fcntl
import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from cutthrough.bundle.manifest import NO_LABEL, Label
from cutthrough.config import tables
from cutthrough.config.bundles import BundleSource
from cutthrough.config.config import OPTIONS, SECRETS, TABLES, Config
from cutthrough.config.mistake import Mistake
from cutthrough.config.values import show_value
from cutthrough.generation.ca_certificate import CaCertificate
from cutthrough.generation.interception import InterceptionFiles
from cutthrough.generation.tls_files import ParentFiles, TlsFiles
from cutthrough.policy.refusals import Page
from cutthrough.policy.source import Policy


class Generation(msgspec.Struct, frozen=True):
    """`own`: our addresses other than the listeners; refused as destinations (R39).
    `tls`: the content of each listener's files, in the order of all_listeners; (): no
    listener has any. `parent_files`: the same of `all_parents`. `bundle`: the one that
    was read."""

    number: int
    config: Config
    policy: Policy
    own: tuple[tuple[str, int], ...] = ()
    tls: tuple[TlsFiles, ...] = ()
    parent_files: tuple[ParentFiles, ...] = ()
    ca_certificate: CaCertificate | None = None
    interception: InterceptionFiles | None = None
    error_pages: dict[str, Page] = {}
    bundle: Label = NO_LABEL
    ticket_keys: tuple[bytes, ...] = ()

    def with_own_addresses(self, own: tuple[tuple[str, int], ...]) -> "Generation":
        return msgspec.structs.replace(self, own=own)


class Sources(Protocol):
    """The sources of configuration and policy. If `listen` is not empty, it replaces
    the option: these are the addresses of inherited sockets. `on_bundle` is called
    before the files of a bundle are read."""

    listen: tuple[tuple[str, int], ...]
    on_bundle: Callable[[BundleSource], object] | None

    def read(self) -> tuple[Config, Policy]:
        """Reads every source again. Raises ConfigError, PolicyError or OSError."""

    def blame(self, error: Mistake) -> Mistake:
        """Adds the source to mistakes about options that this host cannot use."""


def to_memory(generation: Generation) -> int:
    """Returns a descriptor of sealed memory for `from_memory`; the caller closes it."""
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
    """Reads a generation. The descriptor stays open and its offset unchanged."""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    return msgspec.msgpack.decode(data, type=Generation)


def changed_options(old: Config, new: Config) -> list[str]:
    return [name for name in OPTIONS if getattr(old, name) != getattr(new, name)]


def changed_tables(old: Config, new: Config) -> list[tables.Change]:
    return [change for name, table in TABLES.items() for change in tables.compare(
        table, name, getattr(old, name), getattr(new, name))]


def needs_new_workers(old: Generation, new: Generation) -> bool:
    changed = changed_options(old.config, new.config)
    return not (all(OPTIONS[name].swapped for name in changed)
                and all(change.swapped
                        for change in changed_tables(old.config, new.config))
                and not has_new_code(old, new))


def has_new_code(old: Generation, new: Generation) -> bool:
    """Did the code of a hook or of a filter change? New code gets new workers,
    because a fresh process imports its modules without leftovers of the old code."""
    was, now = old.policy.code, new.policy.code
    return has_new_hook(old, new) or any(
        now[module] != was[module] for module in was.keys() & now.keys())


def has_new_hook(old: Generation, new: Generation) -> bool:
    return (old.config.policy_hook == new.config.policy_hook
            and old.policy.hook != new.policy.hook)


def show_changes(old: Generation, new: Generation) -> str:
    """Returns the differences in one line, secrets by name only (R37)."""
    changes = []
    if old.bundle != new.bundle:
        changes.append(f"bundle {old.bundle.revision or '(none)'} -> "
                       f"{new.bundle.revision or '(none)'}")
    for name in changed_options(old.config, new.config):
        if name in SECRETS:
            changes.append(name)
            continue
        kind = OPTIONS[name].kind
        was, now = (show_value(kind, getattr(g.config, name)) for g in (old, new))
        changes.append(f"{name} {was or '(none)'} -> {now or '(none)'}")
    changes += [change.text for change in changed_tables(old.config, new.config)]
    # Rules are compared without their source: an inserted line moves all that follow
    was_rules, rules = (
        [msgspec.structs.replace(rule, source="") for rule in g.policy.rules]
        for g in (old, new))
    if was_rules != rules:
        removed = len(set(was_rules) - set(rules))
        added = len(set(rules) - set(was_rules))
        changes.append(f"rules {len(rules)} (+{added} -{removed})")
    for name in ("default", "cut"):
        was, now = (getattr(g.policy, name) for g in (old, new))
        if was != now:
            changes.append(f"{name} {was} -> {now}".lower())
    if old.policy.groups != new.policy.groups:
        changes.append("groups")
    if old.policy.users != new.policy.users:
        changes.append(f"users {len(new.policy.users)}")
    if (old.policy.limits, old.policy.user_limits, old.policy.group_limits) != (
            new.policy.limits, new.policy.user_limits, new.policy.group_limits):
        changes.append("limits")
    for name in ("faults", "filters", "headers"):
        if getattr(old.policy, name) != getattr(new.policy, name):
            changes.append(name)
    if (old.tls, old.parent_files, old.ca_certificate, old.interception) != (
            new.tls, new.parent_files, new.ca_certificate, new.interception):
        changes.append("certificates")
    if old.ticket_keys != new.ticket_keys:
        changes.append("ticket keys")
    if old.error_pages != new.error_pages:
        changes.append("error pages")
    if has_new_hook(old, new):
        changes.append("the hook's code")
    elif has_new_code(old, new):
        changes.append("code of filters")
    return ", ".join(changes) or "no changes"
