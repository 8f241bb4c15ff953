"""`cutthrough explain --log`: the logged verdicts that a policy would change.

A line is judged by its name, by the address of its connection, and by the first bytes
of its tunnel. If the log has no such address, the name is not resolved, because its
addresses may have changed. The hook is not called. Exit status 0: nothing would change,
1: something would.
"""

from collections import Counter
from typing import NamedTuple

import msgspec

from cutthrough.config.config import Config
from cutthrough.policy.answer import Caller
from cutthrough.policy.source import Policy
from cutthrough.tools.dry_run import (
    NOBODY,
    DryRun,
    Finding,
    FirstBytes,
    Request,
    is_address,
    printable,
)
from cutthrough.tools.log_reader import DENIED, Line, LogReader
from cutthrough.wire.proxy_header import TLVS, pack_tlvs

MAYBE = "maybe"


class Change(NamedTuple):
    user: str
    method: str
    place: str
    old: str                    # allow, report, deny
    new: str
    old_rule: str
    new_rule: str


def run(config: Config, policy: Policy, path: str, as_json: bool) -> int:
    """Prints the changes, most frequent first; returns the exit status."""
    log = LogReader(path)
    changes, undecided = replay(DryRun(config, policy), log)
    log.tell_unreadable()
    ranked = sorted(changes.items(), key=lambda item: (-item[1], item[0]))
    if as_json:
        for change, count in ranked:
            print(msgspec.json.encode({"count": count, **change._asdict()}).decode())
        return int(bool(changes))
    cells = [(str(count), c.user or NOBODY, c.method, c.place, f"{c.old} -> {c.new}",
              f"{c.old_rule} -> {c.new_rule}") for c, count in ranked]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *rest in cells:
        padded = [printable(text).ljust(width)
                  for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.rjust(widths[0]), *padded]).rstrip())
    print(f"{sum(changes.values())} of {log.read} lines would change, {undecided} "
          "depend on an address, a path or first bytes that are not in the log")
    return int(bool(changes))


def replay(judge: DryRun, log: LogReader) -> tuple[Counter[Change], int]:
    """The changes with their counts, and the number of lines without a decision."""
    changes: Counter[Change] = Counter()
    undecided = 0
    known: dict[bytes, Finding] = {}
    for line in log:
        if line.hook is not None and line.reason in DENIED:
            continue                        # assume that the hook refuses it again
        key = msgspec.json.encode(msgspec.structs.replace(
            line, reason="", rule="", report=False, hook=None,
            url=line.url if judge.has_paths else ""))
        new = known.get(key)
        if new is None:
            if len(known) >= 100_000:       # bounds the memory
                known.clear()
            try:
                new = known[key] = judge_line(judge, line)
            except ValueError:              # an invalid host or address
                log.unreadable += 1
                continue
        old = "deny" if line.reason in DENIED else "report" if line.report else "allow"
        if new.outcome == MAYBE or (old == "deny" and _is_about_address(judge, line)
                                    and new.action != "deny"):
            undecided += 1
        elif old != new.action:
            changes[Change(
                line.who, line.kind, line.place, old=old, new=new.action,
                old_rule=line.rule or line.reason,
                new_rule=new.rule or new.outcome)] += 1
    return changes, undecided


def judge_line(judge: DryRun, line: Line) -> Finding:
    """The decision by the host, by the path and, if the line has them, by the peer's
    address and by the tunnel's first bytes."""
    host, caller = line.host or "", _caller(judge, line)
    request = Request(caller, line.kind, host, line.port, bool(line.origin),
                      line.method)
    path = line.path if judge.has_paths else None
    if judge.has_paths and path is None and line.kind != "CONNECT":
        return Finding(MAYBE)
    by_name = judge.judge_name(request, path=path)
    if by_name.outcome != "ok" or line.origin:
        return by_name
    address = host if is_address(host) else line.peer
    if not address and (by_name.address_dependent or (
            not judge.resolves_there(judge.route_of(by_name.route))
            and judge.may_refuse_address(request, path))):
        return by_name._replace(outcome=MAYBE)
    finding = judge.judge_address(request, address, path=path) if address else by_name
    if finding.outcome != "ok" or not finding.waits:
        return finding
    if not line.tunnel_protocol:
        return finding._replace(outcome=MAYBE)
    opening = FirstBytes(line.tunnel_protocol, line.sni, line.ja4)
    return judge.judge_address(request, address, opening) if address else (
        judge.judge_name(request, opening))


def _caller(judge: DryRun, line: Line) -> Caller:
    # The log escapes octet by octet; a value that it has cut ends in another character
    tlvs = {name: value.encode("latin-1") for name, value in line.proxy_tlvs.items()
            if name in TLVS and max(value, default="\u0100") < "\u0100"}
    return Caller(line.who, judge.policy.groups_of(line.who), line.client,
                  pack_tlvs(tlvs), line.client_ja4, line.http2_fingerprint)


def _is_about_address(judge: DryRun, line: Line) -> bool:
    """Whether the floor refused an address that is not in the log, and is still on."""
    return (line.reason == "address_denied" and judge.snapshot.address_floor
            and not is_address(line.host or ""))
