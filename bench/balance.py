"""Requests to one named origin of three servers: `python -m bench balance`.

For each way to choose a server (`choose` of origins and groups): the share of each of
three nginx, as their own logs have it, beside the share that its weight asks for; rate,
latency, and the proxy's CPU time for a request. `one` is an origin of one server. The
hashes see a thousand hosts, and one client and no user, whose requests all go to one.

Prints a line for each way; exit status 1 if a request failed, or if a share in turns is
not its weight's. `--name NAME` keeps the lines in bench/results.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
from collections.abc import Sequence

from bench.children import HERE, BenchError, Site
from bench.collect import cpu_times
from bench.origin import Origin
from bench.proxies import listening
from bench.result import write_rows
from bench.rows import Row, format_row
from bench.running import Running, Target

WEIGHTS = (3, 1, 1)
HOSTS, CONNS = 1000, 50
#: Each way, and whether its shares are the weights of servers that are equally quick.
WAYS = {
    "one": False, "round_robin": True, "least_connections": False, "fastest": False,
    "failover": False, "hash_destination": False, "hash_client": False,
}  # fmt: skip
UNWEIGHTED = ("fastest", "failover")
EXACT = 0.01


def start(way: str, origins: Sequence[Origin]) -> Running:
    used = origins[:1] if way == "one" else origins
    running = Running([], Target(Site(), origins[0].authority))
    directory = running.make_directory()
    policy = directory / "policy.toml"
    policy.write_text('[[rules]]\naction = "allow"\nhosts = ["*.bench.example"]\n'
                      'origin = "bench"\n')
    config = directory / "proxy.toml"
    config.write_text(
        f'policy = "{policy}"\nworkers = 1\naccess_log = "off"\n'
        '[[listeners]]\naddress = "127.0.0.1:0"\nauth = "none"\n[origins.bench]\n'
        f"urls = {[f'http://{origin.authority}' for origin in used]}\n"
        + ("" if way in UNWEIGHTED else f"weights = {list(WEIGHTS[:len(used)])}\n") +
        f'choose = "{"round_robin" if way == "one" else way}"\n')
    running.command = [sys.executable, "-m", "cutthrough", "serve", "-c", str(config)]
    return listening(running)


def measure(way: str, origins: Sequence[Origin], seconds: float) -> Row:
    running = start(way, origins)
    with contextlib.closing(running):
        load(running, 1)
        for origin in origins:
            origin.skip_log()
        before = cpu_times(running.tree()).total
        figures = load(running, seconds)
        spent = cpu_times(running.tree()).total - before
    # wrk hangs up at its end: requests that it does not count were answered
    counts = [origin.count_requests(0, "/index.html", CONNS) for origin in origins]
    return {"choose": way, **figures, "us": spent / sum(counts) * 1e6,
            **{f"share_{n}": count / sum(counts) for n, count in enumerate(counts, 1)}}


def load(running: Running, seconds: float) -> Row:
    done = subprocess.run(
        ["wrk", "-t1", f"-c{CONNS}", f"-d{seconds:g}s", "-s", str(HERE / "hosts.lua"),
         f"http://127.0.0.1:{running.port}", "--", str(HOSTS)],
        capture_output=True, text=True)  # fmt: skip
    result = re.search(r"^requests=(\d+) errors=(\d+) seconds=(\S+) (.*)", done.stdout,
                      re.M)
    if result is None or int(result[1]) == 0:
        raise BenchError(f"wrk said {done.stdout} {done.stderr}")
    latency = dict(pair.split("=") for pair in result[4].split())
    return {"requests": int(result[1]), "errors": int(result[2]),
            "rate": int(result[1]) / float(result[3]),
            **{key: float(value) for key, value in latency.items()}}


def has_failed(row: Row) -> bool:
    """Was a request refused, or is a share not the one that was asked for?"""
    if row["errors"]:
        return True
    wanted = [weight / sum(WEIGHTS) for weight in WEIGHTS]
    return WAYS[str(row["choose"])] and any(
        abs(float(str(row[f"share_{n}"])) - share) > EXACT
        for n, share in enumerate(wanted, 1))


def run_balance(options: argparse.Namespace) -> int:
    rows = []
    with contextlib.ExitStack() as stack:
        origins = [stack.enter_context(Origin()) for _ in WEIGHTS]
        for way in WAYS:
            rows.append(measure(way, origins, options.seconds))
            print(format_row("perf_balance", rows[-1]), flush=True)
    if options.name:
        write_rows(options.name, rows)
    return 1 if any(map(has_failed, rows)) else 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=3, help="length of a run [3]")
    parser.add_argument("--name", default="", help="name of the stored result")
