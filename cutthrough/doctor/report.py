"""`cutthrough doctor`: checks this host for this configuration, with remedies.

It changes nothing. For a moment it opens sockets on free ports of the configured
addresses, and it sends one query to each name server. It sees the host as its user,
with the limits and inside the container of its process: run it like the service.

Exit status 0: the configuration will work; 1: something will not (`fail`).
"""

import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from cutthrough.config.config import Config
from cutthrough.config.settings import Settings
from cutthrough.doctor.capacity import check_room
from cutthrough.doctor.capture import check_capture_file
from cutthrough.doctor.certificates import (
    check_authority,
    check_certificates,
    check_certificates_of_parents,
    check_interception_authority,
)
from cutthrough.doctor.dns_and_clock import check_clock, check_names
from cutthrough.doctor.finding import Case, Finding, Host, Verdict
from cutthrough.doctor.kernel import check_kernel, check_sysctls
from cutthrough.doctor.postgres import check_database
from cutthrough.doctor.program import (
    check_admin,
    check_files,
    check_listeners,
    check_speed,
)
from cutthrough.doctor.redis import check_fleet
from cutthrough.doctor.rules import check_policy
from cutthrough.doctor.sources import check_sources
from cutthrough.policy.source import Policy
from cutthrough.process.cpus import count_workers

SECTIONS: dict[str, tuple[Callable[[Case], Iterable[Finding]], ...]] = {
    "kernel": (check_kernel,),
    "settings of the kernel": (check_sysctls,),
    "capacity": (check_room,),
    "names and time": (check_names, lambda case: [check_clock(case)], check_fleet),
    "fast paths": (check_speed,),
    "listeners": (check_listeners, check_certificates, check_authority,
                  check_interception_authority, check_admin),
    "files": (check_files, check_certificates_of_parents),
    "capture": (check_capture_file, check_database),
    "policy": (check_policy, check_sources),
}
COLOURS: dict[Verdict, str] = {
    "ok": "32", "note": "36", "warn": "33", "fail": "31"}
# Printed once if a setting differs from tuning/
APPLY = "tuning/apply prints what it would change of these; --yes changes it for good"
SEEN_CHARACTERS = 44


def run(config: Config, policy: Policy, settings: Settings, config_file: str,
        as_json: bool) -> int:
    """Prints the findings; returns the exit status."""
    case = Case(config, policy, settings, config_file, count_workers(config), Host())
    findings = list(examine(case))
    counts = Counter(finding.verdict for finding in findings)
    if as_json:
        print(json.dumps({
            "findings": msgspec.to_builtins(findings),
            **{verdict: counts[verdict] for verdict in COLOURS}}, indent=1))
    else:
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print("\n".join(show(findings, coloured)))
    return int(bool(counts["fail"]))


def examine(case: Case) -> Iterator[Finding]:
    for section, checks in SECTIONS.items():
        for check in checks:
            for finding in check(case):
                yield msgspec.structs.replace(finding, section=section)


def show(findings: list[Finding], coloured: bool = False) -> Iterator[str]:
    wide = max(len(finding.name) for finding in findings)
    for i, finding in enumerate(findings):
        if not i or finding.section != findings[i - 1].section:
            yield f"\n{finding.section}" if i else finding.section
        yield show_line(finding, wide, coloured)
        if finding.verdict != "ok" and finding.advice:
            yield from show_advice(finding.advice)
    if any("sysctl -w" in finding.advice for finding in findings):
        yield f"\n{APPLY}"
    counts = Counter(finding.verdict for finding in findings)
    yield "\n" + ", ".join(f"{counts[verdict]} {verdict}" for verdict in COLOURS)


def show_advice(advice: str) -> Iterator[str]:
    """Keeps a command on one line, to be copied; folds text and a command's `# why`."""
    command, mark, why = advice.partition("  # ")
    if mark:
        yield " " * 10 + f"-> {command}"
    yield textwrap.fill(
        f"# {why}" if mark else f"-> {command}", 96, break_long_words=False,
        break_on_hyphens=False, initial_indent=" " * (13 if mark else 10),
        subsequent_indent=" " * (15 if mark else 13))


def show_line(finding: Finding, wide: int, coloured: bool) -> str:
    verdict = f"{finding.verdict:<4}"
    if coloured:
        verdict = f"\x1b[{COLOURS[finding.verdict]}m{verdict}\x1b[0m"
    line = f"  {verdict}  {finding.name:<{wide}}  {finding.seen:<{SEEN_CHARACTERS}}"
    if finding.wanted and finding.verdict != "ok":
        line += f"  wanted: {finding.wanted}"
    return line.rstrip()
