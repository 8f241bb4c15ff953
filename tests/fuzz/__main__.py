"""python -m tests.fuzz [--seconds N] [--keep] [TARGET…]: fuzzes each target in turn.

The extensions are built by clang into build/fuzz, and nothing else looks there: each
edge of the C counts for libFuzzer, AddressSanitizer checks each access, undefined
behaviour traps, and assertions are on. Python runs libFuzzer (atheris, whose library
has the sanitizer's functions too): so a target is a function, and may use the twin and
sockets.

Findings lie in build/fuzz/findings. `--keep` adds the inputs that reached new edges to
the committed corpus, after libFuzzer has reduced them.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import add_to_corpus, unpack
from tests.support.compiled import built_doors
from tests.support.network import enter_alone

TREE = Path(__file__).resolve().parents[2]
WORK = TREE / "build" / "fuzz"
# The longest input: longer ones show nothing new, and take long to read twice.
MOST_BYTES = {"request": 2048, "response": 2048, "chunks": 512, "target": 300,
              "proxy_header": 600, "parents": 1200, "socks": 600,
              "hello": 800, "path": 400, "records": 600, "messages": 600,
              "session": 2048, "http2_fields": 800, "http2_frames": 2048,
              "http2_response": 800, "http2_origin": 2048, "names": 300,
              "body": 800, "imported": 3000}
CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 11, -1)))


class Run(NamedTuple):
    target: str
    status: int
    inputs: int
    per_second: int
    edges: int
    corpus: int


def build() -> Path:
    """Returns the directory of the fuzz build, made or brought up to date."""
    clang = next(filter(None, map(shutil.which, CLANGS)), None)
    if clang is None or find_spec("atheris") is None:
        sys.exit("fuzz: needs clang (apt-get install clang) and atheris "
                 "(.venv/bin/pip install atheris)")
    environment = os.environ | {"CC": clang, "CUTTHROUGH_BUILD": "fuzz"}
    library = WORK / "lib"
    subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py", "-q", "build",
         "--build-lib", library],
        cwd=TREE, env=environment, check=True)
    built_doors("fuzz", clang)
    return library


def child(target: str, library: Path, *flags: str | Path) -> list[str]:
    """The command; a file of its own, because libFuzzer starts itself by its name."""
    command = WORK / f"run-{target}"
    runtime = Path(sysconfig.get_path("platlib")) / "asan_with_fuzzer.so"
    command.write_text(
        "#!/bin/sh\nexec env ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 "
        + shlex.join([f"LD_PRELOAD={runtime}", sys.executable, "-m", "tests.fuzz.child",
                      target, str(library)])
        + ' "$0" "$@"\n')
    command.chmod(0o755)
    return [str(command), f"-max_len={MOST_BYTES[target]}", *map(str, flags)]


def fuzz(target: str, library: Path, seconds: int) -> Run:
    seeds, grown, findings = (
        WORK / name / target for name in ("seeds", "corpus", "findings"))
    shutil.rmtree(seeds, ignore_errors=True)
    unpack(target, seeds)
    grown.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    log = WORK / f"{target}.log"
    with log.open("w") as file:
        status = subprocess.run(
            child(target, library, f"-max_total_time={seconds}", "-timeout=20",
                  "-print_final_stats=1", f"-artifact_prefix={findings}/",
                  f"-dict={TREE}/tests/fuzz/http.dict", grown, seeds),
            cwd=TREE, stdout=file, stderr=subprocess.STDOUT).returncode
    said = log.read_text(errors="replace")
    if status:
        print("\n".join(said.splitlines()[-40:]), file=sys.stderr)
    inputs, rate = (
        int((re.findall(rf"stat::{name}: +([0-9]+)", said) or ["0"])[-1])
        for name in ("number_of_executed_units", "average_exec_per_sec"))
    edges = int((re.findall(r"\bcov: ([0-9]+)", said) or ["0"])[-1])
    return Run(target, status, inputs, rate, edges, len(list(grown.iterdir())))


def keep(target: str, library: Path) -> int:
    """The shortest inputs that reach all the edges go into the corpus.

    Edges only: without -use_counters=0 it would be one input more for each number of
    times that an edge is passed, and ten times as many.
    """
    reduced = WORK / "reduced" / target
    shutil.rmtree(reduced, ignore_errors=True)
    reduced.mkdir(parents=True)
    subprocess.run(
        child(target, library, "-merge=1", "-use_counters=0", reduced,
              WORK / "seeds" / target, WORK / "corpus" / target),
        cwd=TREE, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return add_to_corpus(target, [file.read_bytes() for file in reduced.iterdir()])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for all of them")
    parser.add_argument("--keep", action="store_true", help="add to the corpus")
    parser.add_argument("target", nargs="*", help=f"of {', '.join(MOST_BYTES)}")
    options = parser.parse_args()
    targets = options.target or list(MOST_BYTES)
    if unknown := set(targets) - set(MOST_BYTES):
        parser.error(f"no such target: {', '.join(unknown)}")
    library = build()
    if why := enter_alone():            # no packet leaves, at any dial
        print(f"fuzz: in the network of this host: {why}", file=sys.stderr)
    print(f"{'target':14}{'inputs':>12}{'inputs/s':>10}{'edges':>8}{'corpus':>8}")
    failed = False
    for target in targets:
        run = fuzz(target, library, max(1, options.seconds // len(targets)))
        failed = failed or run.status != 0
        print(f"{target:14}{run.inputs:12}{run.per_second:10}{run.edges:8}"
              f"{run.corpus:8}{'  FAILED' if run.status else ''}", flush=True)
        if options.keep and not run.status:
            print(f"{'':14}{keep(target, library)} new inputs kept")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
