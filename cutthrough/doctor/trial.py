"""A configuration as a proxy on a free loopback port runs it for a test.

A listener without authentication takes the place of the configuration's, and names the
caller: the password is not known here, or is for other eyes, and a user whom a
certificate names has none.
"""

import asyncio
import re
import secrets

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.listeners import Listener
from cutthrough.policy.answer import Caller
from cutthrough.policy.source import Limits, Policy
from cutthrough.tools.dry_run import OK, DryRun, printable

HERE = "127.0.0.1"
# At the start of a reply's content; only those who have logged in get it in a field
REASON = re.compile(rb"\d{3} (\w+):")


def on_loopback(config: Config, listener: Listener) -> Config:
    """Has this listener alone, with the floor and the ports of the configuration, and
    without its bounds for clients."""
    ports = config.allowed_ports
    return msgspec.structs.replace(
        config, listen=(), proxy_protocol=(), proxy_protocol_from=(),
        listeners=(listener,), access_log="off", admin="off", fleet_url="",
        fleet_register=False, ticket_keys_file="", share_credentials=False,
        # None logs in; not the demonstration's, which a PROXY header contradicts (R29)
        password=secrets.token_urlsafe() if config.user else "",
        error_pages="", address_floor="on" if config.floor else "off",
        connect_ports="any" if ports is None else ports, max_connections=0,
        max_connections_total=0, max_connections_per_client=0)


def as_caller(config: Config, policy: Policy, user: str, client: str = HERE,
              named: bool = False) -> tuple[Config, Policy, Caller]:
    """The configuration on a loopback port, the policy without limits, and the caller,
    whose requests all are there. `named`: a PROXY header comes first. Raises
    ConfigError."""
    caller, outcome = DryRun(config, policy).find_caller(user, client)
    if outcome != OK:
        raise ConfigError("", "--user", f"{printable(caller.user)!r}: {outcome}")
    config = on_loopback(config, Listener(
        address=(HERE, 0), auth="none", auth_none_from=("0.0.0.0/0", "::/0"),
        user=caller.user,
        proxy_protocol=named, proxy_protocol_from=(f"{HERE}/32",) if named else ()))
    policy = msgspec.structs.replace(
        policy, limits=dict.fromkeys(policy.limits, Limits()))
    return config, policy, caller


async def read_reply(reader: asyncio.StreamReader) -> tuple[int, str]:
    """The status and the reason of the proxy's reply; "": there is none, or the reply
    is an origin's. Raises as `StreamReader.readuntil`."""
    head = await reader.readuntil(b"\r\n\r\n")
    reason = None
    if b"\r\nProxy-Status: cutthrough; error=" in head:
        reason = REASON.match(await reader.readuntil(b":"))
    return int(head[9:12]), reason[1].decode() if reason else ""
