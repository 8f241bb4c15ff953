"""The command line: `python -m bench run …`, `… slowloris`, and `… --list`."""

from __future__ import annotations

import argparse
import resource
import sys

from bench.hostile import run_slowloris
from bench.measure import run_all
from bench.origin import BenchError
from bench.proxies import PROXIES
from bench.scenarios import SCENARIOS, Scenario

#: What `run` does when nothing is named: the acceptance figures of the data plane.
DEFAULT_SCENARIOS = [
    "plain-keepalive",
    "plain-16k",
    "plain-new",
    "connect-setup",
    "ping-c1",
    "ping-c100",
    "bulk",
    "idle",
]
DEFAULT_PROXIES = ["direct", "relay", "relay-splice", "cutthrough"]


def print_tables() -> None:
    """Print every scenario and proxy, and why one cannot run here."""
    for title, table in (("scenarios", SCENARIOS), ("proxies", PROXIES)):
        print(f"{title}:")
        for name, row in table.items():
            skipped = f"  [skipped: {row.missing}]" if row.missing else ""
            yardstick = (
                f" (against {row.yardstick})" if isinstance(row, Scenario) else ""
            )
            print(f"  {name:20} {row.about}{yardstick}{skipped}")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _present(names: list[str], table: dict[str, object]) -> list[str]:
    """Return the names that can run here; say which are skipped; refuse others."""
    present = []
    for name in names:
        if name not in table:
            raise BenchError(f"unknown: {name}; see python -m bench --list")
        if missing := getattr(table[name], "missing", ""):
            print(f"skipped {name}: {missing}", file=sys.stderr)
        else:
            present.append(name)
    return present


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="what can be measured here")
    verbs = parser.add_subparsers(dest="verb")
    run = verbs.add_parser("run", help="measure, print, write bench/results/")
    run.add_argument("--scenarios", type=_names, default=DEFAULT_SCENARIOS)
    run.add_argument("--proxies", type=_names, default=DEFAULT_PROXIES)
    run.add_argument("--seconds", type=int, default=3, help="of each run [3]")
    run.add_argument("--repetitions", type=int, default=3, help="of each pair [3]")
    run.add_argument("--name", default="", help="keep the result under this name")
    slow = verbs.add_parser("slowloris", help="wrk beside slow clients: its p99, RSS")
    slow.add_argument("--conns", type=int, default=10_000, help="slow clients [10000]")
    slow.add_argument("--seconds", type=int, default=14, help="of each run [14]")
    options = parser.parse_args()
    if options.verb is None:
        print_tables()
        return 0
    # Thousands of connections: the children inherit all that may be had.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if options.verb == "slowloris" and hard < options.conns + 2000:
        hard = options.conns + 2000             # for each process; root's to raise
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        print(f"bench: nofile {hard}: {error}", file=sys.stderr)
        return 2
    try:
        if options.verb == "slowloris":
            return run_slowloris(options.conns, options.seconds)
        return run_all(
            _present(options.scenarios, dict(SCENARIOS)),
            _present(options.proxies, dict(PROXIES)),
            seconds=options.seconds,
            repetitions=options.repetitions,
            name=options.name,
        )
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
