"""What a worker would decide about a request, asked of the same code without a request.

The name first, then each address, as `session.authorize` does it, with the snapshot
that a worker of this configuration has. Nothing is resolved or connected to.
"""

import ipaddress
import time
from typing import NamedTuple

from cutthrough.config.config import Config, ConfigError
from cutthrough.generation.generation import Generation
from cutthrough.generation.snapshots import make_snapshot
from cutthrough.policy.source import Policy

OK = "ok"


class Caller(NamedTuple):
    """Who asks, and from where."""

    user: str
    groups: tuple[str, ...]
    client: str


class Finding(NamedTuple):
    """What one question came to: a label of outcome.pyx, and why."""

    outcome: str
    rule: str = ""              # action, file:line and name; "" where no rule was asked
    report: bool = False
    opens_floor: bool = False
    limits: str = ""
    address_dependent: bool = False     # and the address is not known

    @property
    def action(self) -> str:
        """What people call it: allow, report or deny."""
        if self.outcome != OK:
            return "deny"
        return "report" if self.report else "allow"


class DryRun:
    """Raises PolicyError where a worker could not begin."""

    def __init__(self, config: Config, policy: Policy) -> None:
        self.config, self.policy = config, policy
        bound = [address for address in config.listen if address[1]]
        self.snapshot = make_snapshot(Generation(1, config, policy), bound)

    def find_caller(self, user: str, client: str = "127.0.0.1") -> tuple[Caller, str]:
        """Who that would be, and the outcome of their credentials, were they right.

        Without a name it is the one user of the configuration. Raises ConfigError.
        """
        try:
            client = str(ipaddress.ip_address(client))
        except ValueError:
            raise ConfigError("", "--client", f"{client!r} is no address") from None
        name = user or self.config.user
        if not name:
            raise ConfigError("", "--user", "who asks? The configuration has several")
        known = self.policy.users.get(name)
        outcome = OK
        if known is None and name != self.config.user:
            outcome = "auth_failed"
        elif known is not None and known.expires and known.expires <= time.time():
            outcome = "auth_expired"
        return Caller(name, self.policy.groups_of(name), client), outcome

    def judge_name(self, caller: Caller, method: str, host: str, port: int) -> Finding:
        """About a canonical host, before it is resolved."""
        outcome = self.snapshot.port_outcome(method == "CONNECT", port)
        if outcome != OK or self.snapshot.acl is None:
            return Finding(outcome)
        return self._ask(caller, method, host, port, None)

    def judge_address(self, caller: Caller, method: str, host: str, port: int,
                      address: str) -> Finding:
        """About one address that the host has, or is."""
        outcome = self.snapshot.own_outcome(address, port)
        if outcome != OK:
            return Finding(outcome)
        found = Finding(OK)
        if self.snapshot.acl is not None:
            found = self._ask(caller, method, host, port, address)
            if found.outcome != OK or found.opens_floor:
                return found
        return found._replace(outcome=self.snapshot.floor_outcome(address))

    def _ask(self, caller: Caller, method: str, host: str, port: int,
             address: str | None) -> Finding:
        assert self.snapshot.acl is not None
        answer = self.snapshot.acl.ask(
            host=f"[{host}]" if ":" in host else host, port=port, user=caller.user,
            groups=caller.groups, client=caller.client, method=method, address=address)
        return Finding(answer.outcome, self._show_rule(answer.rule), answer.report,
                       answer.opens_floor, answer.limits, answer.maybe)

    def _show_rule(self, index: int) -> str:
        if index < 0:
            return f"{self.policy.default} {self.policy.source} (default)"
        rule = self.policy.rules[index]
        name = f' "{printable(rule.name)}"' if rule.name else ""
        return f"{rule.action} {rule.source}{name}"

    def limits_of(self, caller: Caller, of_rule: str, of_hook: str = "") -> str:
        """The name of the limits that would apply; "" for none."""
        policy = self.policy
        named = of_hook or of_rule or policy.user_limits.get(caller.user, "")
        if named:
            return named
        for group in caller.groups:
            if group in policy.group_limits:
                return policy.group_limits[group]
        return "default" if "default" in policy.limits else ""


def printable(text: str) -> str:
    """For a terminal: what a log or a command line holds may not steer it (R37)."""
    return "".join(c if c.isprintable() else "?" for c in text)
