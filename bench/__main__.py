"""Measures the proxy beside yardsticks and other proxies. See docs/benchmarking.md."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

from bench import (
    attack,
    balance,
    compare,
    content_soak,
    fleet,
    fleet_postgres,
    handover,
    http2,
    inspection,
    inspection_picture,
    install,
    instructions,
    intercept,
    intercept_soak,
    micro,
    page_memory,
    plan,
    policy,
    recording,
    report,
    report_readme,
    scrape,
    short,
    slowloris,
    start,
    storm,
    streams,
    tls,
    users,
)
from bench.blocks import Part
from bench.children import BenchError, Namespaces
from bench.micro import capture
from bench.micro import policy as shapes
from bench.proxies import PROXIES
from bench.result import warn_of_changes
from bench.run import RESULTS, interrupt, run_all
from bench.scenarios import GROUPS, SCENARIOS, most_files

#: Default length of a run in seconds, by (field, guard).
SECONDS = {(True, False): 1.5, (False, True): 2.0, (False, False): 3.0}


def print_tables() -> None:
    """Print every scenario and proxy, with the reason if it cannot run here."""
    for group, about in GROUPS.items():
        print(f"{group}. {about}")
        for name, row in SCENARIOS.items():
            if row.group == group:
                skipped = f"  [skipped: {row.missing}]" if row.missing else ""
                print(f"  {name:22} {row.about} (against {row.yardstick}){skipped}")
        if group == 6:
            print(f"  {'--features':22} {', '.join(plan.FEATURES)}")
    print("proxies")
    for name, proxy in PROXIES.items():
        skipped = f"  [skipped: {proxy.missing}]" if proxy.missing else ""
        print(f"  {name:22} {proxy.about}{skipped}")


def need_wrk() -> None:
    if shutil.which("wrk") is None:
        raise BenchError("wrk is not installed")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _run(options: argparse.Namespace) -> int:
    most_files()  # the children inherit the limit, and open thousands of connections
    site = None
    if options.netns:
        if missing := Namespaces.missing():
            raise BenchError(missing)
        site = Namespaces()
    if options.guard:
        parts = plan.guard()
    elif options.field:
        parts = plan.field()
        micro.find_benches()  # compile before the time is measured
    elif options.asked:
        parts = plan.asked()
    elif options.features:
        parts = plan.features()
    else:
        parts = [Part(options.scenarios, options.proxies)]
    return run_all(
        parts,
        seconds=options.seconds or SECONDS[options.field, options.guard],
        repetitions=options.repetitions,
        name=options.name,
        site=site,
        command="python -m bench " + shlex.join(sys.argv[1:]),
        minutes=options.minutes,
        after=micro.run_micro if options.field else None,
    )


def _short(options: argparse.Namespace) -> int:
    return short.print_short(options.seconds, options.conns, options.flags)


def _slowloris(options: argparse.Namespace) -> int:
    if most_files() < options.conns + 2000:
        raise BenchError(f"needs {options.conns + 2000} descriptors")
    return slowloris.run_slowloris(options.conns, options.seconds)


def _scrape(options: argparse.Namespace) -> int:
    if most_files() < options.conns + 2000:
        raise BenchError(f"needs {options.conns + 2000} descriptors")
    return scrape.run_scrape(options.conns, options.seconds)


def _attack(options: argparse.Namespace) -> int:
    most_files()
    return attack.run_attack(options.only, options.seconds, options.settle,
                             options.cost, options.name)


def _storm(options: argparse.Namespace) -> int:
    most_files()
    return storm.run_storm(options.seconds, options.conns, options.kill_every)


def _handover(options: argparse.Namespace) -> int:
    if most_files() < 2 * options.tunnels + 1000:
        raise BenchError(f"needs {2 * options.tunnels + 1000} descriptors")
    return handover.run_handover(options.tunnels, options.replacements,
                                 options.upgrades, options.interval, options.workers)


def _fleet_simulation(options: argparse.Namespace) -> int:
    from bench import fleet_simulation  # simpy is of no other verb

    return fleet_simulation.run_simulation(measure=options.measure)


def _policy(options: argparse.Namespace) -> int:
    need_wrk()
    return policy.run_policy(options.seconds, options.repetitions)


def _tls(options: argparse.Namespace) -> int:
    need_wrk()
    most_files()
    return tls.run_tls(options.seconds, options.repetitions, options.conns)


def _intercept(options: argparse.Namespace) -> int:
    need_wrk()
    return intercept.run_intercept(options)


def _intercept_soak(options: argparse.Namespace) -> int:
    return intercept_soak.run_soak(options.exchanges)


def _content_soak(options: argparse.Namespace) -> int:
    most_files()
    return content_soak.run_soak(options.minutes, options.log)


def _fleet(options: argparse.Namespace) -> int:
    if options.postgres:
        return fleet_postgres.run(options.writers, options.seconds)
    return fleet.run_fleet(options)


def _users(options: argparse.Namespace) -> int:
    need_wrk()
    return users.run_users(options)


def _compare(options: argparse.Namespace) -> int:
    return compare.main(options.base, options.new)


def _report(options: argparse.Namespace) -> int:
    target = options.output or options.result.with_suffix(".html")
    lines = target.with_name(f"{target.stem}-lines.html")
    target.write_text(report.build_report(options.result, lines.name))
    lines.write_text(report.build_lines(options.result))
    print(f"written to {target} and {lines}")
    return 0


def _peers(options: argparse.Namespace) -> int:
    if options.install:
        install.install_peers(options.names)
    return install.print_peers(options.names)


def _micro(options: argparse.Namespace) -> int:
    if options.names == ["policy"]:
        return shapes.run_shapes()
    if options.names == ["capture-postgres"]:
        if not (url := os.environ.get("CUTTHROUGH_CAPTURE_URL", "")):
            raise BenchError("set CUTTHROUGH_CAPTURE_URL to an empty database")
        return capture.run_loads(capture.LOADS, url=url)
    loads = {"capture": capture.LOADS, "capture-soak": capture.SOAKS,
             "capture-zstd": capture.COMPRESSED}
    if len(options.names) == 1 and options.names[0] in loads:
        return capture.run_loads(loads[options.names[0]])
    micro.run_micro(options.names, repetitions=options.repetitions)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--list", action="store_true",
                        help="list scenarios and proxies")
    verbs = parser.add_subparsers(dest="verb")

    run = verbs.add_parser("run", help="run scenarios; print and store results")
    run.set_defaults(act=_run)
    what = run.add_mutually_exclusive_group()
    what.add_argument("--scenarios", type=_names, default=plan.SCENARIOS,
                      metavar="NAME,…", help="scenarios [a short selection]")
    what.add_argument("--field", action="store_true", help="all scenarios and peers")
    what.add_argument("--asked", action="store_true",
                      help="scenarios of the report's first table")
    what.add_argument("--guard", action="store_true",
                      help="scenarios of `make bench-guard`")
    what.add_argument("--features", action="store_true",
                      help="the cost of each feature")
    run.add_argument("--proxies", type=_names, default=plan.PROXIES,
                     metavar="NAME,…", help="proxies [a short selection]")
    run.add_argument("--seconds", type=float,
                     help="length of a run [3; less with --field, --guard]")
    run.add_argument("--repetitions", type=int, default=3,
                     help="runs of each scenario and proxy [3]")
    run.add_argument("--name", default="", help="name of the stored result")
    run.add_argument("--minutes", type=float, default=0,
                     help="total time limit; later runs are skipped")
    run.add_argument("--netns", action="store_true",
                     help="run in three network namespaces joined by veth")

    compared = verbs.add_parser("compare",
                                help="compare two results; exit status 1 if worse")
    compared.set_defaults(act=_compare)
    compared.add_argument("base", type=Path)
    compared.add_argument("new", type=Path)

    readme = verbs.add_parser("readme", help="write README's table, of asked.json")
    readme.set_defaults(act=lambda _: report_readme.main())
    reported = verbs.add_parser("report", help="write a result as an HTML page")
    reported.set_defaults(act=_report)
    reported.add_argument(
        "result", type=Path, nargs="?", default=RESULTS / "field.json"
    )
    reported.add_argument("-o", "--output", type=Path)

    peers = verbs.add_parser("peers", help="list or install other proxies")
    peers.set_defaults(act=_peers)
    peers.add_argument("names", nargs="*")
    peers.add_argument("--install", action="store_true", help="install what is missing")

    small = verbs.add_parser("micro",
                             help="micro-benchmarks: a head, a chunk, a log line")
    small.set_defaults(act=_micro)
    small.add_argument("names", nargs="*",
                       help="prefixes of names; `policy`: large policies, by shape; "
                            "`capture`, `capture-soak`, `capture-zstd`, "
                            "`capture-postgres`: the writer of captures")
    small.add_argument("--repetitions", type=int, default=5)

    slow = verbs.add_parser("slowloris", help="wrk's p99 and RSS beside slow clients")
    slow.set_defaults(act=_slowloris)
    slow.add_argument("--conns", type=int, default=10_000,
                      help="number of slow clients [10000]")
    slow.add_argument("--seconds", type=int, default=14, help="length of a run [14]")

    seen = verbs.add_parser("scrape",
                            help="workers' CPU if /metrics is read twice a second")
    seen.set_defaults(act=_scrape)
    seen.add_argument("--conns", type=int, default=10_000,
                      help="number of idle connections [10000]")
    seen.add_argument("--seconds", type=int, default=4, help="length of a turn [4]")

    ruled = verbs.add_parser("policy",
                             help="CPU with 100 000 names and 10 000 networks")
    ruled.set_defaults(act=_policy)
    ruled.add_argument("--seconds", type=int, default=3, help="length of a run [3]")
    ruled.add_argument("--repetitions", type=int, default=7,
                       help="runs of each proxy [7]")

    secure = verbs.add_parser("tls",
                              help="TLS between client and proxy, beside nginx, "
                              "haproxy and hitch")
    secure.set_defaults(act=_tls)
    secure.add_argument("--seconds", type=float, default=0.7,
                        help="length of a run; of wrk at least 1 [0.7]")
    secure.add_argument("--repetitions", type=int, default=5,
                        help="runs of each server [5]")
    secure.add_argument("--conns", type=int, default=500,
                        help="connections at rest [500]")

    among = verbs.add_parser("streams", help="HTTP/2, gRPC and WebSockets inside "
                             "interceptions, beside other proxies")
    among.set_defaults(act=streams.run_streams)
    streams.add_options(among)
    between = verbs.add_parser("http2", help="HTTP/2 between client and proxy, beside "
                                             "haproxy and nghttpx")
    between.set_defaults(act=http2.run_http2)
    http2.add_options(between)
    shown = verbs.add_parser("fingerprint", help="what fingerprints of clients cost")
    shown.set_defaults(act=http2.run_fingerprint)
    http2.add_options(shown)
    shared = verbs.add_parser("balance", help="three servers of one origin: shares and "
                                              "latency")
    shared.set_defaults(act=balance.run_balance)
    balance.add_options(shared)

    begun = verbs.add_parser("start", help="from the start to the first answer, "
                                           "beside nginx")
    begun.set_defaults(act=start.run_start)
    start.add_options(begun)
    counted = verbs.add_parser("instructions", help="of a request, by valgrind")
    counted.set_defaults(act=instructions.run_instructions)
    instructions.add_options(counted)

    opened = verbs.add_parser("intercept",
                              help="requests inside opened tunnels, beside squid's "
                              "ssl_bump and mitmproxy")
    opened.set_defaults(act=_intercept)
    intercept.add_options(opened)

    shower = verbs.add_parser("inspect", help="`cutthrough inspect` beside mitmproxy: "
                                              "memory, CPU, start, latency; its page")
    shower.set_defaults(act=inspection.run_inspect)
    inspection.add_options(shower)
    watched = verbs.add_parser("page", help="an hour of traffic: does the memory "
                                            "of the pages' tabs stay flat?")
    watched.set_defaults(act=page_memory.run_page)
    page_memory.add_options(watched)
    drawer = verbs.add_parser("inspect-picture", help="draw a result of `inspect`")
    drawer.set_defaults(act=inspection_picture.run_picture)
    inspection_picture.add_options(drawer)

    lasting = verbs.add_parser("intercept-soak",
                               help="a million captured requests in opened tunnels: "
                               "does memory stay flat?")
    lasting.set_defaults(act=_intercept_soak)
    lasting.add_argument("--exchanges", type=int, default=1_000_000,
                         help="requests in all [1000000]")

    mixed = verbs.add_parser("content-soak",
                             help="captured, recorded and filtered requests, one in a "
                             "hundred hostile: is anything lost?")
    mixed.set_defaults(act=_content_soak)
    mixed.add_argument("--minutes", type=float, default=10, help="length [10]")
    mixed.add_argument("--log", default="", metavar="FILE",
                       help="a copy of the proxy's error log")

    kept = verbs.add_parser("recording", help="record and replay, beside replayproxy, "
                                              "hoverfly and mitmproxy")
    kept.set_defaults(act=recording.run_recording)
    recording.add_options(kept)

    known = verbs.add_parser("users", help="p99 of cached users in a password attack")
    known.set_defaults(act=_users)
    users.add_options(known)

    joined = verbs.add_parser("fleet", help="what many hosts cost Redis, or what they "
                                            "store together in PostgreSQL")
    joined.set_defaults(act=_fleet)
    fleet.add_options(joined)
    fleet_postgres.add_options(joined)

    struck = verbs.add_parser("attack",
                              help="service to regular clients during attacks")
    struck.set_defaults(act=_attack)
    struck.add_argument("--only", type=_names, default=(),
                        help=f"attacks, of {', '.join(attack.ATTACKS)} [all]")
    struck.add_argument("--seconds", type=float, default=20,
                        help="length of the quiet span and of each attack [20]")
    struck.add_argument("--settle", type=float, default=30,
                        help="seconds of observation after an attack [30]")
    struck.add_argument("--cost", type=int, default=0, help="bcrypt cost "
                        "[12 for reload, else 10]")
    struck.add_argument("--name", default="", help="name of the stored result")

    blown = verbs.add_parser("storm",
                             help="failed requests during reloads, kills and upgrades")
    blown.set_defaults(act=_storm)
    blown.add_argument("--conns", type=int, default=100,
                       help="connections of wrk; 0: no wrk [100]")
    blown.add_argument("--seconds", type=float, default=60, help="total length [60]")
    blown.add_argument("--kill-every", type=float, default=5,
                       help="seconds between kills [5]")

    moved = verbs.add_parser("handover",
                             help="pauses of tunnels when workers are replaced")
    moved.set_defaults(act=_handover)
    moved.add_argument("--tunnels", type=int, default=2000,
                       help="number of active tunnels [2000]")
    moved.add_argument("--replacements", type=int, default=10,
                       help="worker replacements [10]")
    moved.add_argument("--upgrades", type=int, default=2,
                       help="upgrades of the program [2]")
    moved.add_argument("--workers", type=int, default=2,
                       help="workers of the proxy [2]")
    moved.add_argument("--interval", type=float, default=1.0,
                       help="seconds between messages of a tunnel [1]")

    many = verbs.add_parser("fleet-simulation",
                            help="what a hundred hosts do when one dies, by simulation")
    many.set_defaults(act=_fleet_simulation)
    many.add_argument("--measure", action="store_true", help="measure the costs of a "
                      "reconnecting client before")

    table = verbs.add_parser("short", help="the table at the end of bench.sh")
    table.set_defaults(act=_short)
    table.add_argument("--seconds", type=float, default=2)
    table.add_argument("--conns", type=int, default=50)
    table.add_argument("flags", nargs="*", help="options of the proxy, after --")

    options = parser.parse_args()
    if options.verb is None:
        print_tables()
        return 0
    signal.signal(signal.SIGTERM, interrupt)
    if name := getattr(options, "name", ""):
        warn_of_changes(name)
    try:
        return int(options.act(options))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # by now every child process has ended
        print("bench: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
