"""Makes a generation's snapshot: everything that decides about requests in a worker."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cutthrough.config.config import Config
from cutthrough.filters.breakpoints import Holding
from cutthrough.generation.error_pages import make_refusals
from cutthrough.generation.filters import make_filters
from cutthrough.generation.generation import Generation
from cutthrough.generation.hook import Hook, Tally
from cutthrough.generation.operator_code import find_function
from cutthrough.generation.policy_files import check_auth_hook
from cutthrough.generation.sources import SourceNumbers, names_of_users
from cutthrough.net.interfaces import own_hosts
from cutthrough.net.listener import Address
from cutthrough.policy.acl import Acl
from cutthrough.policy.auth import Authenticator, AuthenticatorByFunction
from cutthrough.policy.headers import make_edits
from cutthrough.policy.known import Known
from cutthrough.policy.parents import Registry, Routes, Ways
from cutthrough.policy.snapshot import (
    Bounds,
    HostAddresses,
    Judges,
    Snapshot,
    WaysOut,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Parts that a worker keeps through reloads. `hosts`: addresses of this host;
    `known`: the credentials page that all workers share; `sources`: their numbers;
    `registry`: of parents."""

    hosts: HostAddresses = field(default_factory=lambda: HostAddresses(own_hosts()))
    tally: Tally = field(default_factory=Tally)
    known: Known | None = None
    sources: SourceNumbers = field(default_factory=SourceNumbers)
    registry: Registry = field(default_factory=Registry)


def make_snapshot(generation: Generation, bound: Sequence[Address], facts: Facts,
                  tls: Mapping[str, tuple[int, bytes]] | None = None,
                  origins: Mapping[str, tuple[int, int]] | None = None) -> Snapshot:
    """Returns the snapshot.

    `bound`: addresses of our listeners; `tls`: see Ways; `origins`: see WaysOut.

    Raises PolicyError if the hook or a filter cannot be used.
    """
    config, tally = generation.config, facts.tally
    hook = None
    if config.policy_hook:
        function = find_function(
            "policy_hook", config.policy_hook, generation.policy.hook)
        hook = Hook(function, config.policy_hook_timeout, generation.policy.limits,
                    tally=tally)
    numbers = facts.sources.number(config.sources)
    acl = Acl(generation.policy, numbers) if generation.policy.source else None
    return Snapshot(
        make_authenticator(generation, facts.known),
        Bounds(
            config.floor, config.allowed_ports or None, bound, facts.hosts,
            [row.prefix for row in config.sources if row.prefix]),
        judges=Judges(acl, hook, make_filters(
            generation.policy, tally.filters, tally.breakpoints, Holding(
                config.breakpoint_timeout, config.breakpoint_undecided == "refuse",
                config.breakpoint_messages)), make_edits(
                    generation.policy, config.trace_ratio),
                make_refusals(
                    generation.error_pages, generation.policy, config.realm)),
        ways_out=WaysOut(
            make_ways(config, acl.routes if acl is not None else (), facts.registry,
                      tls),
            {user.encode(): numbers[name] for user, name in
             names_of_users(config, generation.policy).items()},
            origins),
        senders=config.proxy_protocol_from,
        generation=generation.number,
    )


def make_authenticator(generation: Generation, known: Known | None) -> Authenticator:
    """Returns the users. Raises PolicyError if some have hashes, and others a
    function."""
    config, policy = generation.config, generation.policy
    name = config.user.encode()
    inline = {name: config.password.encode()} if name else {}
    groups = {name: policy.groups_of(config.user)}
    if not config.auth_hook:
        return Authenticator(inline, policy.users, config.auth_cache_ttl, groups, known,
                             policy.groups_of)
    check_auth_hook(config, policy)
    code = policy.code.get(config.auth_hook.partition(":")[0])
    text = b"" if code is None else code.text
    return AuthenticatorByFunction(
        find_function("auth_hook", config.auth_hook, code),
        b"%b\0%b" % (config.auth_hook.encode(), hashlib.sha256(text).digest()),
        inline, None, config.auth_cache_ttl, groups, known, policy.groups_of)


def make_ways(config: Config, routes: Sequence[str],
              registry: Registry, tls: Mapping[str, tuple[int, bytes]] | None
              ) -> Ways | None:
    """Returns the ways through parents and to named origins; None: every request goes
    directly."""
    if not (config.parents or config.groups or config.origins):
        return None
    return Ways({parent.name: parent for parent in config.all_parents},
                {group.name: group for group in config.groups},
                Routes(config.route, routes, config.origin if config.origins else ""),
                registry, tls, config.origins)
