"""Runs tlsfuzzer's scripts against our TLS and against nginx's, and compares them.

    python -m bench.tlssuite --source ~/tlsfuzzer

Exit status 1: a conversation has another verdict than with nginx, and no line of
known.toml says why; or a line says so of one that has not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.children import end, spawn
from bench.curlsuite.servers import ROOT
from bench.tlssuite.cases import (
    WHOLE,
    Verdicts,
    arguments_of,
    differences,
    list_scripts,
    read_options,
    read_table,
    read_verdicts,
)
from bench.tlssuite.report import report
from bench.tlssuite.servers import Server, running

WORK = ROOT / "build/peers-tls"
SPEAK = Path(__file__).with_name("speak.py")
SEED = "1"


def main() -> int:
    parser = argparse.ArgumentParser(prog="peers-tls",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path, required=True, metavar="DIR",
                        help="a checkout of tlsfuzzer")
    parser.add_argument("--jobs", type=int, default=2, help="scripts at a time [2]")
    parser.add_argument("--most", type=int, default=40, metavar="N",
                        help="conversations of a script, chosen by chance [40]")
    parser.add_argument("--seconds", type=float, default=120, metavar="S",
                        help="that a script may take [120]")
    parser.add_argument("--scripts", default="", metavar="NAME,NAME",
                        help="only these, without `test-`")
    parser.add_argument("--servers", default="", metavar="TEXT",
                        help="only servers that have this in their names, and nginx")
    parser.add_argument("--again", action="store_true",
                        help="run nothing: report the last run's results")
    given = parser.parse_args()
    whole = not given.scripts and not given.servers
    if given.again:
        results = json.loads((WORK / "results.json").read_text())
        return report(results, whole)
    source = given.source.resolve()
    if not (source / "tlsfuzzer/_apps").is_dir():
        parser.error(f"--source: {source} has no tlsfuzzer/_apps")
    if subprocess.run([sys.executable, "-c", "import tlslite"]).returncode:
        parser.error("tlslite-ng is missing: scripts/bootstrap.sh tlsfuzzer")
    skipped, _ = read_table()
    chosen = [name for name in given.scripts.split(",") if name] or [
        name for name in list_scripts(source) if name not in skipped]
    with running(WORK / "servers") as servers:
        used = [one for one in servers if one.is_nginx or given.servers in one.name]
        results = run_all(used, source, chosen, given)
    return report(results, whole)


def run_all(servers: list[Server], source: Path, scripts: list[str],
            given: argparse.Namespace) -> dict[str, dict[str, Verdicts]]:
    """Verdicts by the server's name and the script's."""
    _, own = read_table()
    results: dict[str, dict[str, Verdicts]] = {one.name: {} for one in servers}

    def run_one(server: Server, script: str) -> None:
        arguments = arguments_of(script, read_options(source, script), server.key,
                                 own.get(script, ()), given.most)
        if arguments is not None:
            results[server.name][script] = run(server, source, script, arguments,
                                               given.seconds)

    with ThreadPoolExecutor(given.jobs) as pool:
        for server in servers:
            began = time.monotonic()
            list(pool.map(lambda script, one=server: run_one(one, script), scripts))
            try_again(server, results, run_one)
            (WORK / "results.json").write_text(json.dumps(results, indent=1))
            some = results[server.name].values()
            print(f"peers-tls: {server.name}: {len(some)} scripts, "
                  f"{sum(map(len, some))} conversations, "
                  f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return results


def try_again(server: Server, results: dict[str, dict[str, Verdicts]],
              run_one: Callable[[Server, str], None]) -> None:
    """Run scripts with other verdicts than nginx's once more, alone: tlsfuzzer waits
    five seconds for an answer, and a loaded machine may take longer."""
    ours, theirs = results[server.name], results[server.like]
    for script in [name for name, some in ours.items()
                   if differences(some, theirs.get(name, {}))]:
        first = ours[script]
        run_one(server, script)
        agreed = first.keys() - differences(first, theirs[script])
        ours[script] |= {name: first[name] for name in agreed & ours[script].keys()}


def run(server: Server, source: Path, script: str, arguments: list[str],
        seconds: float) -> Verdicts:
    directory = WORK / "said" / server.name
    directory.mkdir(parents=True, exist_ok=True)
    said = directory / f"{script}.txt"
    command = [sys.executable, str(SPEAK), str(source), f"test-{script}", SEED,
               str(server.tunnel or "-"), server.key,
               "-h", "127.0.0.1", "-p", str(server.port), *arguments]
    with open(said, "w") as out:
        out.write(f"{command}\n")
        out.flush()
        process = spawn(command, stdout=out, stderr=out, cwd=source,
                        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1",
                             "PYTHONHASHSEED": SEED})
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end(process)
    verdicts = read_verdicts(said.read_text(errors="replace"), status)
    if status is None:
        verdicts[WHOLE] = f"more than {seconds:g} s"
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
