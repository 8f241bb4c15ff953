"""`cutthrough explain`: the decision about one request, and the line that decides.

The steps are those of a request, in their order, with the same parser, rules, resolver
and floor; the first refusal is the last step. An https:// URL goes by a tunnel: that is
decided first, and then, if a rule intercepts it, the request inside. It queries only
name servers and the hook, and makes no connection. Exit status 0: allowed, 1: refused.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.parents import DIRECT
from cutthrough.config.values import split_address
from cutthrough.generation.hook import Answer as HookAnswer
from cutthrough.generation.hook import Details, Hook
from cutthrough.generation.resolver import make_resolver
from cutthrough.net.address import Addresses
from cutthrough.net.dns.answer import Answer
from cutthrough.net.interfaces import own_hosts
from cutthrough.outcome import TABLE
from cutthrough.policy.address import class_of
from cutthrough.policy.answer import Caller
from cutthrough.policy.decision_cache import Decision
from cutthrough.policy.fingerprints import parse_fingerprint
from cutthrough.policy.source import Limits, Policy
from cutthrough.policy.tlvs import TLVS_OF_RULES, octets_of
from cutthrough.tools.dry_run import (
    NOBODY,
    OK,
    DryRun,
    Finding,
    FirstBytes,
    Request,
    is_address,
    opens_tls,
    printable,
    read_server_name,
)
from cutthrough.tools.explain_target import (
    is_https,
    is_origin_form,
    read_path,
    read_target,
    remark,
)
from cutthrough.tools.explain_ways import (
    find_origin,
    show_origin,
    show_parent,
    show_route,
    show_source,
)
from cutthrough.tools.explanation import Explanation, Place, remedy_of, show_places
from cutthrough.wire.openings import PROTOCOLS
from cutthrough.wire.paths import readings_of
from cutthrough.wire.proxy_header import pack_tlvs

# The lines about the way
WAY = ("request", "user", "client", "route", "parent", "origin", "server", "source",
       "verdict")
# Of a request inside a tunnel, the lines that are the tunnel's
OF_TUNNEL = ("user", "client", "name", "ports", "route", "parent", "source")
STATUS = {row.label: row.status for row in TABLE}


class Question(NamedTuple):
    """A request as an operator describes it. `opening`: the first bytes of the tunnel,
    if they are known; `tlvs`: of the client's PROXY header; `prints`: JA4 and HTTP/2's
    of its own connection. `host`: the field Host, of a target that is a path."""

    method: str
    target: str
    user: str = ""
    client: str = "127.0.0.1"
    opening: FirstBytes | None = None
    tlvs: bytes = b""
    prints: tuple[str, str] = ("", "")
    host: str = ""


def run(config: Config, policy: Policy, question: Question, as_json: bool,
        words: Sequence[str] = ()) -> int:
    """Prints the explanation; returns the exit status. `words`: of the lines to print;
    (): all. Raises ConfigError and PolicyError."""
    judge = DryRun(config, policy)
    result = asyncio.run(explain(judge, question))
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        print("\n".join(line for line in show(result, judge)
                        if not words or line.split()[0] in words))
    return 0 if result.outcome == OK else 1


def read_opening(protocol: str | None, sni: str | None,
                 ja4: str | None) -> FirstBytes | None:
    """The first bytes that the command line describes. Raises ConfigError."""
    if protocol is sni is ja4 is None:
        return None
    if protocol is not None and protocol not in PROTOCOLS[1:]:
        raise ConfigError("", "--protocol", f"{printable(protocol)!r} is not one of "
                          f"{', '.join(PROTOCOLS[1:])}")
    try:
        if ja4 is not None and "*" in parse_fingerprint(ja4)[0]:
            raise ConfigError("", "--ja4", "takes a whole fingerprint, without *")
    except ValueError as error:
        raise ConfigError("", "--ja4", str(error)) from None
    return FirstBytes(protocol or "tls", sni or "", ja4 or "")


def read_tlvs(texts: Sequence[str]) -> bytes:
    """The TLVs that the command line describes, each NAME=VALUE. Raises ConfigError."""
    values: dict[str, bytes] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in TLVS_OF_RULES:
            raise ConfigError("", "--tlv", f"{printable(name)!r} is not one of "
                              f"{', '.join(TLVS_OF_RULES)}")
        try:
            values.setdefault(name, octets_of(value))
        except ValueError as error:
            raise ConfigError("", "--tlv", printable(str(error))) from None
    return pack_tlvs(values)


async def explain(judge: DryRun, question: Question) -> Explanation:
    """Makes the decisions of a request. Raises ConfigError for an invalid call."""
    method, target, user, client, opening, tlvs, prints, host = question
    caller, outcome = judge.find_caller(user, client, tlvs, prints)
    result = Explanation(method=method, target=target, user=caller.user,
                       groups=caller.groups, client=caller.client,
                       floor=judge.snapshot.address_floor)
    read = read_target(method, target, host)
    if isinstance(read, str):
        outcome = read
        result.remark = remark(method, target)
    else:
        result.host, result.port = read
        result.for_origin = is_origin_form(method, target)
        if result.for_origin and not judge.config.origins:
            outcome = _take_one_origin(judge.config, result, outcome)
        if outcome == OK and is_https(method, target):
            outcome = await _decide_inside(judge, caller, result, opening)
        elif outcome == OK:
            outcome = await _decide(judge, caller, result, opening)
    result.outcome, result.status = outcome, STATUS[outcome]
    result.remedy = remedy_of(result, bool(judge.policy.source))
    return result


def _take_one_origin(config: Config, result: Explanation, outcome: str) -> str:
    """The option `origin` as a URL is the destination of all requests in origin form.
    Returns the outcome."""
    result.for_origin = False
    if not config.origin:
        return outcome if outcome != OK else "no_origin"
    result.host, result.port = split_address(config.origin.removeprefix("http://"))
    return outcome


async def _decide_inside(judge: DryRun, caller: Caller, result: Explanation,
                         opening: FirstBytes | None) -> str:
    """Decides about the tunnel, and about the request inside if a rule intercepts."""
    host = result.host
    opening = opening or FirstBytes("tls", "" if is_address(host) else host, "")
    authority = f"[{host}]:{result.port}" if ":" in host else f"{host}:{result.port}"
    connect = result.connect = Explanation(
        method="CONNECT", target=authority, user=caller.user, groups=caller.groups,
        client=caller.client, host=host, port=result.port, floor=result.floor)
    connect.outcome = await _decide(judge, caller, connect, opening)
    connect.status = STATUS[connect.outcome]
    connect.remedy = remedy_of(connect, bool(judge.policy.source))
    if connect.outcome != OK or not is_opened(connect):
        return connect.outcome
    around = None
    name = read_server_name(opening.sni)
    if is_address(host) and name != host and opening.sni:
        around, result.host = Request(caller, "CONNECT", host, result.port), name
    return await _decide(
        judge.inside(connect.route, connect.source, around), caller, result, None)


def is_opened(connect: Explanation) -> bool:
    return opens_tls(connect.tls)


async def _decide(judge: DryRun, caller: Caller, result: Explanation,
                  opening: FirstBytes | None) -> str:
    request = Request(caller, result.method, result.host, result.port,
                      result.for_origin)
    path = read_path(result.method, result.target)
    result.path = (path or b"").decode()
    result.readings = [reading.decode() for reading in readings_of(path or b"")]
    by_name = judge.judge_name(request, path=path)
    result.port_rule = _port_rule(judge.config, result.method)
    result.rule, result.report = by_name.rule, by_name.report
    result.by_name = by_name.outcome
    if by_name.address_dependent:
        result.by_name = "maybe"
    if by_name.outcome != OK:
        return by_name.outcome
    of_hook = ""
    if judge.snapshot.hook is not None:
        decision = await _ask_hook(judge.snapshot.hook, request)
        result.hook_outcome = _outcome_of(decision)
        result.hook = decision.reason if decision is not None else "no decision"
        if result.hook_outcome != OK or decision is None:
            return result.hook_outcome
        of_hook = decision.limits
        judge = judge.passing_tls() if decision.tls else judge
    _set_route(judge, caller, result, by_name)
    if result.for_origin:
        result.dns = "not needed: the servers of an origin are named"
        if by_name.address_dependent:
            return "destination_denied"
        outcome = _finish(judge, result, caller, of_hook, by_name, by_name)
        return outcome if result.origin else "no_origin"
    if judge.resolves_there(result.route) and not is_address(result.host):
        result.dns = "not needed: the parent resolves the name"
        if by_name.address_dependent:
            return "destination_denied"
        known = judge.judge_name(request, opening) if opening else by_name
        return _finish(judge, result, caller, of_hook, by_name, known)
    answer = await _resolve(judge, result)
    if isinstance(answer, str):
        return answer
    findings = [(text, judge.judge_address(request, text, path=path))
                for text in answer.texts()]
    result.addresses = [_place(text, finding) for text, finding in findings]
    # A worker tries none if one of them is its own (R20), else the allowed ones.
    outcomes = [finding.outcome for _, finding in findings]
    if "loop_detected" in outcomes:
        return "loop_detected"
    if OK not in outcomes:
        return outcomes[-1]
    text, first = findings[outcomes.index(OK)]
    known = judge.judge_address(request, text, opening) if opening else first
    return _finish(judge, result, caller, of_hook, first, known)


def _finish(judge: DryRun, result: Explanation, caller: Caller, of_hook: str,
            first: Finding, known: Finding) -> str:
    """Fills in the deciding rule's keys. `known`: the decision by the tunnel's first
    bytes, if they decide; `first`: the decision before."""
    last = known if first.waits else first
    if first.waits:
        result.tunnel = "maybe" if known.waits else known.outcome
        result.tunnel_rule = known.rule
        result.tls = known.tls.replace("pass", "")
        result.pinned = known.pinned.replace("refuse", "")
        result.client_certificate = known.client_certificate
        if known.outcome == OK and (known.source, known.route) != (
                first.source, first.route):
            result.tunnel = "destination_denied"        # it names another way
    result.report = last.report
    result.capture = last.capture
    result.source = first.source
    result.faults, result.filters = last.faults, last.filters
    result.headers = last.headers
    _set_route(judge, caller, result, first)
    result.limits = judge.limits_of(caller, last.limits, of_hook)
    result.limit_values = _values(judge.policy.limits.get(result.limits))
    return result.tunnel if result.tunnel not in ("", "maybe") else OK


def _set_route(judge: DryRun, caller: Caller, result: Explanation,
               finding: Finding) -> None:
    if result.for_origin:
        result.origin, result.origin_by = find_origin(
            judge.config, finding.route, finding.rule)
        result.server = judge.member_of(
            result.origin, caller, result.host, result.port) if result.origin else ""
        return
    result.route = judge.route_of(finding.route)
    result.route_by = (f"route of {finding.rule}" if finding.route
                       else "the option route" if judge.config.route else "no route")
    result.parent = judge.member_of(result.route, caller, result.host, result.port)


def _port_rule(config: Config, method: str) -> str:
    if method != "CONNECT":
        return "any"
    allowed = config.allowed_ports
    return "any" if allowed is None else " ".join(map(str, allowed))


async def _ask_hook(hook: Hook, request: Request) -> Decision | None:
    caller, method, host, port, _, own_method = request
    answer: asyncio.Future[HookAnswer] = asyncio.get_running_loop().create_future()
    hook.ask(caller.user.encode(), host.encode() + port.to_bytes(2, "big"),
             Details(caller.groups, caller.client, method,
                     own_method=own_method if method == "UPGRADE" else ""),
             answer.set_result)
    try:
        decision = await answer
        return None if isinstance(decision, str) else decision
    finally:
        await hook.close()


def _outcome_of(decision: Decision | None) -> str:
    if decision is None:
        return "policy_unavailable"
    return OK if decision.allow else "destination_denied"


async def _resolve(judge: DryRun, result: Explanation) -> Answer:
    """Resolves a name like a worker; an address needs no name server."""
    config, host = judge.config, result.host.encode()
    if judge.address:
        result.dns = "not needed: the tunnel goes to an address"
        return Addresses([judge.address])
    if is_address(result.host):
        result.dns = "not needed: it is an address"
        return Addresses([result.host])
    loop = asyncio.get_running_loop()
    resolver = make_resolver(loop, config, judge.policy.code)
    began = time.monotonic()
    try:
        known = resolver.cached(host)
        if known is None:
            answer: asyncio.Future[Answer] = loop.create_future()
            resolver.resolve(host, answer.set_result, port=result.port,
                             user=result.user.encode())
            known = await answer
            result.dns = " ".join(config.resolvers) or "/etc/hosts, /etc/resolv.conf"
            if config.dns_hook:
                result.dns = f"{config.dns_hook}, or {result.dns}"
        else:
            result.dns = "dns_overrides"
    finally:
        await resolver.close()
    result.dns_ms = round((time.monotonic() - began) * 1000, 1)
    return known


def _place(text: str, finding: Finding) -> Place:
    return Place(
        address=text, kind=class_of(text), ours=text in own_hosts(),
        outcome=finding.outcome, rule=finding.rule, report=finding.report,
        opens_floor=finding.opens_floor)


_NO_LIMITS = Limits()


def _values(limits: Limits | None) -> dict[str, float]:
    """The limits that are set."""
    if limits is None:
        return {}
    return {key: value for key, value in msgspec.structs.asdict(limits).items()
            if value != getattr(_NO_LIMITS, key)}


def show(result: Explanation, judge: DryRun) -> list[str]:
    """The explanation in lines: a keyword, and its value."""
    connect = result.connect
    if connect is None:
        return _show_explanation(result, judge)
    lines = _show_explanation(connect, judge)
    if connect.outcome == OK and is_opened(connect):
        return lines + [line for line in _show_explanation(result, judge)
                        if line.split()[0] not in OF_TUNNEL]
    if connect.outcome == OK:
        lines.append("inside   not judged: no rule that lets the tunnel pass opens TLS")
    return lines


def _show_explanation(result: Explanation, judge: DryRun) -> list[str]:
    config = judge.config
    groups = f" (groups: {', '.join(result.groups)})" if result.groups else ""
    lines = [("request", f"{result.method} {result.target}"),
             ("user", f"{result.user or NOBODY}{groups}"), ("client", result.client)]
    if result.host:
        lines.append(("name", f"{result.host} port {result.port}"))
    if result.remark:
        lines.append(("target", result.remark))
    if result.port_rule:
        lines.append(("ports", result.port_rule))
    if judge.has_paths and result.path not in ("", "*"):
        lines.append(("path", "  ".join(result.readings) or "unclear: servers differ "
                      "in reading it, and no rule with `paths` allows it"))
    if result.by_name:
        rule = result.rule or ("there are no rules" if result.by_name == OK
                             else "not checked: the port is refused")
        lines.append(("rule", f"{result.by_name}  {rule}"))
        hook_outcome = result.hook_outcome
        hook = f"{hook_outcome}  {result.hook}" if hook_outcome else "not called"
        if judge.config.policy_hook:
            lines.append(("hook", f"{hook}  ({judge.config.policy_hook})"))
        lines.append(("floor", "on" if result.floor else "off"))
    if result.dns:
        took = f"  {result.dns_ms} ms" if result.dns_ms else ""
        count = f"{len(result.addresses)} found  "
        addresses = "" if result.dns.startswith("not") else count
        lines.append(("dns", f"{addresses}{result.dns}{took}"))
    lines += [("address", text) for text in show_places(result)]
    if result.tunnel == "maybe":
        lines.append(("tunnel", "maybe  decided again when its first bytes are there: "
                      "--protocol, --sni, --ja4"))
    elif result.tunnel:
        lines.append(("tunnel", f"{result.tunnel}  {result.tunnel_rule}"))
    lines += [("tls", f"{result.tls}  if it is TLS")] if result.tls else []
    if result.client_certificate:
        lines.append(("shows", f"{result.client_certificate}  if the origin wants a "
                      "client certificate"))
    if result.pinned:
        lines.append(("pinned", "pass  for an hour, if a client of its network rejects "
                      "our certificate"))
    if result.outcome == OK:
        if result.origin:
            lines += show_origin(config, result)
        else:
            lines.append(("route", show_route(config, result.route, result.route_by)))
        if result.route not in ("", DIRECT):
            lines.append(("parent", show_parent(config, result.route, result.parent)))
        values = " ".join(
            f"{key}={value}" for key, value in result.limit_values.items())
        limits = f"{result.limits}  {values}" if result.limits else "none"
        lines.append(("limits", limits))
    if result.faults:
        lines.append(("faults", " ".join(result.faults)))
    if result.capture:
        lines.append(("capture", result.capture))
    if result.filters and result.method != "CONNECT":
        lines.append(("filters", " ".join(result.filters)))
    if result.headers and result.method != "CONNECT":
        lines.append(("headers", " ".join(result.headers)))
    if result.source:
        lines.append(("source", show_source(config, result.source)))
    verdict = "allowed" if result.outcome == OK else (
        f"refused {result.status}" if result.status else "closed after the 200")
    word = "  reported" if result.report and result.outcome == OK else ""
    lines.append(("verdict", f"{verdict}  {result.outcome}{word}"))
    if result.remedy:
        lines.append(("remedy", result.remedy))
    return [f"{word:<9}{printable(text).rstrip()}" for word, text in lines]
