"""A configuration as a proxy on a free loopback port runs it for a test.

Another password takes the place of the user's, because that is not known here, or is
for other eyes.
"""

import secrets

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.policy.answer import Caller
from cutthrough.policy.source import Limits, Policy
from cutthrough.tools.dry_run import OK, DryRun, printable


def on_loopback(config: Config) -> Config:
    """Listens on a free port, with the floor and the ports of the configuration, and
    without its bounds for clients."""
    ports = config.allowed_ports
    return msgspec.structs.replace(
        config, listen=(("127.0.0.1", 0),), proxy_protocol=(), proxy_protocol_from=(),
        listeners=(), access_log="off", admin="off", fleet_url="",
        fleet_register=False, ticket_keys_file="", share_credentials=False,
        address_floor="on" if config.floor else "off",
        connect_ports="any" if ports is None else ports, max_connections=0,
        max_connections_total=0, max_connections_per_client=0)


def as_caller(config: Config, policy: Policy, user: str, client: str = "127.0.0.1",
              ) -> tuple[Config, Policy, Caller, str]:
    """The configuration, the policy without limits, the caller, and the password that
    they have for it now. Raises ConfigError."""
    caller, outcome = DryRun(config, policy).find_caller(user, client)
    if outcome != OK:
        raise ConfigError("", "--user", f"{printable(caller.user)!r}: {outcome}")
    password = secrets.token_urlsafe()
    if caller.user == config.user:
        config = msgspec.structs.replace(config, password=password)
    if caller.user in policy.users:
        import bcrypt  # here: a policy without users does not need it

        known = msgspec.structs.replace(
            policy.users[caller.user],
            hash=bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode())
        policy = msgspec.structs.replace(
            policy, users={**policy.users, caller.user: known})
    policy = msgspec.structs.replace(
        policy, limits=dict.fromkeys(policy.limits, Limits()))
    return config, policy, caller, password
