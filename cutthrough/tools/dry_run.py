"""A worker's decision about a request, computed by the same code without a request.

The name is checked first, then each address, as in `session.judge.authorize`, with the
snapshot that a worker of this configuration has. No name is resolved and no connection
is made.
"""

import copy
import ipaddress
import time
from typing import NamedTuple

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.parents import DIRECT
from cutthrough.config.user_names import composed
from cutthrough.generation.generation import Generation
from cutthrough.generation.snapshots import Facts, make_snapshot
from cutthrough.generation.sources import make_source, names_of_users
from cutthrough.policy.address import class_of
from cutthrough.policy.answer import Caller
from cutthrough.policy.source import Policy
from cutthrough.wire.target import read_request_target

OK = "ok"
NOBODY = "-"                                 # in place of the user's name


class Request(NamedTuple):
    """A caller's; `host` is in canonical spelling."""

    caller: Caller
    method: str
    host: str
    port: int
    for_origin: bool = False            # in origin form
    own_method: str = "GET"             # if `method` is UPGRADE


class Finding(NamedTuple):
    """The result of one check."""

    outcome: str                # a label of outcome.pyx
    rule: str = ""              # action, file:line and name; "": no rule was checked
    report: bool = False
    opens_floor: bool = False
    limits: str = ""
    source: str = ""            # of the connection; "": the kernel selects the address
    address_dependent: bool = False     # depends on the address, which is not known
    route: str = ""             # the name in the rule; "": none
    waits: bool = False         # depends on a tunnel's first bytes, which are not known
    faults: tuple[str, ...] = ()        # the names in the rule
    capture: str = ""           # the part of the request kept; "": nothing
    tls: str = "pass"           # the fate of TLS inside a tunnel
    filters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    pinned: str = ""            # pass: where clients have rejected our certificate
    client_certificate: str = ""    # the name of ours for the origin; "": none

    @property
    def action(self) -> str:
        """The action of the decision: allow, report or deny."""
        if self.outcome != OK:
            return "deny"
        return "report" if self.report else "allow"


class FirstBytes(NamedTuple):
    """The first bytes inside a tunnel, in the log's words; "": none."""

    protocol: str
    sni: str
    ja4: str


class DryRun:
    """Decides without a request. Raises PolicyError if a worker could not start."""

    def __init__(self, config: Config, policy: Policy) -> None:
        self.config, self.policy = config, policy
        bound = [listener.address for listener in config.all_listeners
                 if listener.address[1]]
        self.snapshot = make_snapshot(Generation(1, config, policy), bound, Facts())
        self._of_users = names_of_users(config, policy)
        self.has_paths = any(rule.paths for rule in policy.rules)
        self._way: tuple[str, str] | None = None
        self._connect: Request | None = None
        self._passes_tls = False
        self.address = ""               # of every request, whatever its host is

    def inside(self, route: str, source: str, connect: Request | None) -> "DryRun":
        """Decides about requests inside an intercepted tunnel that went this way.
        `connect`: the tunnel's, if it names an address and its client a server."""
        judge = copy.copy(self)
        judge._way, judge._connect = (route, source), connect
        judge.address = connect.host if connect is not None else ""
        return judge

    def passing_tls(self) -> "DryRun":
        """Decides about a tunnel that the hook wants unopened: it is opened only if its
        rule replays."""
        judge = copy.copy(self)
        judge._passes_tls = True
        return judge

    def find_caller(self, user: str, client: str = "127.0.0.1",
                    tlvs: bytes = b"", prints: tuple[str, str] = ("", "")
                    ) -> tuple[Caller, str]:
        """The caller, and the outcome of authentication with the right password.

        The default is the one user of the configuration, or of its listeners without
        authentication, or nobody: "". Raises ConfigError.
        """
        try:
            if not client.startswith("unix:"):
                client = str(ipaddress.ip_address(client))
        except ValueError:
            raise ConfigError("", "--client", f"{client!r} is not an address") from None
        given = {listener.user for listener in self.config.listeners if listener.user}
        name = composed(user) or self.config.user or (
            "".join(given) if len(given) == 1 else "")
        if not name and not any(listener.auth == "none" and not listener.user
                                for listener in self.config.listeners):
            raise ConfigError("", "--user", "is needed: the configuration has several")
        known = self.policy.users.get(name)
        outcome = OK
        if known is None and name not in (self.config.user, *given, "") and not (
                self.config.auth_hook or any(
                    listener.client_ca or listener.client_ca_by_name
                    for listener in self.config.listeners)):
            outcome = "auth_failed"
        elif known is not None and known.expires and known.expires <= time.time():
            outcome = "auth_expired"
        return Caller(
            name, self.policy.groups_of(name), client, tlvs, *prints), outcome

    def judge_name(self, request: Request, opening: FirstBytes | None = None,
                   path: bytes | None = None) -> Finding:
        """The decision before the host is resolved. `opening`: of the tunnel, and
        `path`: of the plain request, if they are known."""
        outcome = self.snapshot.port_outcome(
            request.method == "CONNECT", request.port)
        if outcome != OK or self.snapshot.acl is None:
            return Finding(outcome)
        return self._ask(request, None, opening, path)

    def judge_address(self, request: Request, address: str,
                      opening: FirstBytes | None = None,
                      path: bytes | None = None) -> Finding:
        """The decision about one address of the host, or about a host's own address."""
        outcome = self.snapshot.loop_outcome(address, request.port)
        if outcome != OK:
            return Finding(outcome)
        finding = Finding(OK)
        if self.snapshot.acl is not None:
            finding = self._ask(request, address, opening, path)
        if finding.outcome == OK and not finding.opens_floor and (
                self._connect is None or not self._ask(
                    self._connect, address, opening, None).opens_floor):
            finding = finding._replace(outcome=self.snapshot.floor_outcome(address))
        if finding.outcome != OK:
            return finding
        return self._with_source(request.caller, finding, address)

    def may_refuse_address(self, request: Request, path: bytes | None = None) -> bool:
        """Whether a rule refuses some address of a host that passes by its name: a rule
        that denies by the address is skipped until that is known."""
        if self.snapshot.acl is None:
            return False
        for rule in self.policy.rules:
            if rule.action == "deny":
                texts = [text for text in (*rule.addresses, *rule.hosts)
                         if "/" in text or is_address(text)]
                for text in texts[:1] + texts[1:][-1:]:     # one is like the others
                    address = str(ipaddress.ip_network(text).network_address)
                    if self._ask(request, address, None, path).outcome != OK:
                        return True
        return False

    def _with_source(self, caller: Caller, finding: Finding, address: str) -> Finding:
        """Adds the source of a connection to an address that may pass."""
        name = finding.source or self._of_users.get(caller.user, "")
        version = ipaddress.ip_address(address).version
        serves = not name or next(
            make_source(row).may_reach(version) for row in self.config.sources
            if row.name == name)
        return finding._replace(
            source=name, outcome=OK if serves else "source_mismatch")

    def _ask(self, request: Request, address: str | None, opening: FirstBytes | None,
             path: bytes | None) -> Finding:
        assert self.snapshot.acl is not None
        caller, method, host, port, for_origin, own_method = request
        answer = self.snapshot.acl.ask(
            host=f"[{host}]" if ":" in host else host, port=port, caller=caller,
            method=method, address=address, opening=opening, path=path,
            for_origin=for_origin, own_method=own_method)
        rule = self.policy.rules[answer.rule] if answer.rule >= 0 else None
        route, source = self._way or (answer.route, answer.source)
        finding = Finding(
            answer.outcome, rule=self._show_rule(answer.rule), report=answer.report,
            opens_floor=answer.opens_floor, limits=answer.limits, source=source,
            address_dependent=answer.maybe, route=route, waits=answer.waits,
            faults=answer.faults, filters=answer.filters)
        if rule is None:
            return finding
        tls = rule.tls
        if self._passes_tls and opens_tls(tls) and rule.recording != "replay":
            tls = "pass"
        finding = finding._replace(
            capture=rule.capture, headers=rule.headers, tls=tls,
            pinned=rule.pinned, client_certificate=rule.client_certificate)
        if opening is not None and finding.outcome == OK and opens_tls(tls):
            return self._with_server_name(request, finding, opening)
        return finding

    def _with_server_name(self, request: Request, finding: Finding,
                          opening: FirstBytes) -> Finding:
        """A tunnel is opened for its own host; or, if that is an address, for a server
        that the rules allow there (R77)."""
        name = read_server_name(opening.sni)
        if opening.protocol != "tls" or opening.sni == "" or name == request.host:
            return finding
        if not name or is_address(name) or not is_address(request.host):
            return finding._replace(outcome="sni_denied")
        assert self.snapshot.acl is not None
        answer = self.snapshot.acl.ask(
            host=name, port=request.port, caller=request.caller, method=request.method,
            address=request.host, opening=opening)
        if answer.outcome == OK:
            return finding._replace(report=finding.report or answer.report)
        return finding._replace(
            rule=self._show_rule(answer.rule), outcome="tls_refused"
            if answer.outcome == "tls_refused" else "sni_denied")

    def _show_rule(self, index: int) -> str:
        if index < 0:
            return f"{self.policy.default} {self.policy.source} (default)"
        rule = self.policy.rules[index]
        name = f' "{printable(rule.name)}"' if rule.name else ""
        return f"{rule.action} {rule.source}{name}"

    def route_of(self, of_rule: str) -> str:
        """The name of the way that a request takes."""
        return of_rule or self.config.route or DIRECT

    def member_of(self, route: str, caller: Caller, host: str, port: int) -> str:
        """The member of this way that a worker takes if all of them work; "" if its
        choice depends on earlier requests, or it goes directly."""
        way = self.snapshot.ways.by_name[route] if self.snapshot.ways else None
        if way is None:
            return ""
        key = None
        config = self.config
        choices = {group.name: group.choose for group in config.groups} | {
            origin.name: origin.choose for origin in config.origins}
        match choices.get(route, ""):
            case "hash_user":
                key = caller.user.encode()
            case "hash_destination":
                key = host.encode() + port.to_bytes(2, "big")
            case "hash_client":
                if caller.client.startswith("unix:"):
                    return ""
                key = ipaddress.ip_address(caller.client).packed
        return way.choose(key) or ""

    def resolves_there(self, route: str) -> bool:
        """Whether every parent of this way gets names and resolves them."""
        ways = self.snapshot.ways
        way = ways.by_name[route] if ways is not None else None
        return way is not None and all(
            member.standing is not None and member.resolves for member in way.members)

    def limits_of(self, caller: Caller, of_rule: str, of_hook: str = "") -> str:
        """The name of the limits that would apply; "": none."""
        policy = self.policy
        named = of_hook or of_rule or policy.user_limits.get(caller.user, "")
        if named:
            return named
        for group in caller.groups:
            if group in policy.group_limits:
                return policy.group_limits[group]
        return "default" if "default" in policy.limits else ""


def opens_tls(tls: str) -> bool:
    """Whether a rule with this value of `tls` intercepts."""
    return tls.startswith("intercept")


def read_server_name(text: str) -> str:
    """The host in a ClientHello, in canonical spelling; "": it is none."""
    head = f"CONNECT {text}:1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    try:
        parts = read_request_target(head)
    except ValueError:
        return ""
    return "" if isinstance(parts, str) else parts["host"]


def is_address(host: str) -> bool:
    try:
        class_of(host)
    except ValueError:
        return False
    return True


def printable(text: str) -> str:
    """Replaces control characters from a log or a command line for a terminal (R37)."""
    return "".join(c if c.isprintable() else "?" for c in text)
