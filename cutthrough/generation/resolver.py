"""The resolver that a configuration describes, with the function of `dns_hook`."""

import asyncio
from collections.abc import Mapping

from cutthrough.config.config import Config
from cutthrough.generation.operator_code import find_optional
from cutthrough.net.dns.by_function import FunctionResolver
from cutthrough.net.dns.resolver import Keeping, Resolver, Servers
from cutthrough.policy.source import Code


def make_resolver(loop: asyncio.AbstractEventLoop, config: Config,
                  code: Mapping[str, Code]) -> Resolver:
    """`code`: the policy's. Raises PolicyError if the function cannot be used."""
    keeping = Keeping(config.dns_cache_entries, config.dns_stale)
    servers = Servers(
        config.resolvers, config.dns_timeout, dnssec=config.dnssec == "required")
    function = find_optional("dns_hook", config.dns_hook, code)
    if function is None:
        return Resolver(loop, servers, keeping, config.dns_overrides)
    return FunctionResolver(function, loop, servers, keeping, config.dns_overrides)
