"""Under attack: are regular clients still served? `python -m bench attack`.

Regular clients (regulars.py) send requests through two workers with a policy and bcrypt
users, at a fixed rate, in a network with `lo` alone. They are measured before, during
and for half a minute after each attack. 99 % of their requests must be served in time,
their p99 may at most double, memory must return to 1.1 times its earlier size, and no
process may grow by more than 300 MiB.

Prints a line for each attack, and stores it in bench/results/attack.json under --name;
exit status 1 if a goal was missed.
"""

from __future__ import annotations

import collections
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bcrypt
import psutil

from bench import lone
from bench.children import BenchError, Site, end, spawn
from bench.collect import describe_environment, resident_kib
from bench.origin import FILES, Origin
from bench.proxies import TREE
from bench.regulars import Record
from bench.rows import Row, format_row
from bench.running import Running, Target
from bench.storm import Program
from bench.tls import make_certificate

WORKERS, SECRET = 2, "a secret of theirs"
PORT = 3129  # of the second listener, in a network of its own
#: A request is in time if it is served within this many seconds of being due. A user's
#: first request must wait for a hash.
IN_TIME, FIRST_IN_TIME = 2.0, 5.0
LEAST_SHARE, MOST_RATIO, MOST_MEMORY = 0.99, 2.0, 1.1
MOST_GROWN_KIB = 300 << 10
#: A p99 of a few milliseconds is noise of the machine. Below this it counts as no
#: delay.
NO_DELAY = 0.05
RESULT = Path(__file__).parent / "results" / "attack.json"

POLICY = """
default = "deny"
[[rules]]
action = "deny"
hosts = ["*.blocked.test", ".ads.test"]
[[rules]]
action = "allow"
hosts = [".drop.test", ".hook.test"]
[[rules]]
action = "allow"
addresses = ["127.0.0.1"]
"""
HOOK = """
import asyncio
from cutthrough import Decision

async def decide(request):
    if request.host.endswith("hook.test"):
        await asyncio.sleep(30)
    return Decision(True)
"""


@dataclass(frozen=True)
class Attack:
    """One row: the attack, its program, and the configuration of the proxy."""

    about: str
    attacker: str = ""  # of bench.attackers; without one the operator does it
    users: int = 20
    cost: int = 10  # bcrypt's
    rate: int = 100
    options: tuple[str, ...] = ()
    hook: bool = False
    names: bool = False  # the regulars ask for names, not for an address
    newcomers: int = 0  # seconds between two users who come for the first time
    content: bool = False  # a rule that replays
    secure: bool = False  # a second listener, on PORT: TLS, and SOCKS without it
    more: dict[str, Any] = field(default_factory=dict)


ATTACKS = {
    "reload": Attack("reloads, a killed worker, an upgrade; 60 users of bcrypt 12",
                     users=60, cost=12),
    "guess": Attack("50 wrong passwords a second from the same address", "guess",
                    users=4, options=('auth_cache_ttl = "15s"',), newcomers=4,
                    more={"pace": 50}),
    "idle": Attack("9 900 connections without credentials, which stay", "idle",
                   options=("max_connections = 4800",),
                   more={"conns": 9900, "again": 500}),
    "heads": Attack("13 200 connections with an unfinished head behind a request",
                    "heads", more={"conns": 13200, "again": 500}),
    "names": Attack("names that nobody answers, from clients that reset", "leave",
                    names=True, more={"pace": 3000, "target": "n{turn}.drop.test"}),
    "hook": Attack("questions to the hook by reset clients of one user", "leave",
                   hook=True, names=True,
                   more={"pace": 1000, "target": "n{turn}.hook.test"}),
    "handshakes": Attack("whole handshakes of TLS 1.2, from 64 connections at a time",
                         "shake", secure=True, more={"port": PORT, "conns": 64}),
    "hellos": Attack("9 900 connections with a part of a ClientHello", "hellos",
                     secure=True, more={"port": PORT, "conns": 9900, "again": 500}),
    "greetings": Attack("9 900 greetings of SOCKS5 with 255 methods", "greetings",
                        secure=True,
                        more={"port": PORT, "conns": 9900, "again": 500}),
    **{f"body-{name}": Attack(about, "bodies", content=True,
                              more={"body": name, "conns": 8})
       for name, about in {
           "bomb": "12 KB of gzip that are 12 MB of JSON, to be matched",
           "charset": "gzip of 2 MB in the charset punycode, to be masked",
           "graphql": "60 KB of GraphQL whose strings do not end",
           "paths": "1 MB of empty lists, of which a JSONPath is left out",
           "deep": "150 lists inside each other, likewise",
           "partial": "3 000 lists, to be compared one by one",
           "masked": "3.9 MB of empty lists, to be masked"}.items()},
    "body-held": Attack("400 connections with 4 of 4.2 MB of a body that is collected",
                        "held", content=True, more={"conns": 400, "again": 50}),
}  # fmt: skip

# Of recordings, of which there are none: what is read is the requests' content
CONTENT = """
[recording_routes.json]
paths = ["/json"]
body = "json"
[recording_routes.graphql]
paths = ["/graphql"]
body = "graphql"
[recording_routes.paths]
paths = ["/paths"]
body = "json"
ignored_paths = ["$..id"]
[recording_routes.partial]
paths = ["/partial"]
body = "partial_json"
"""
PLAYED = """
[[rules]]
action = "allow"
hosts = [".body.test"]
recording = "replay"
"""


def prepare(attack: Attack, directory: Path, cost: int) -> None:
    """Write the proxy's files."""
    made = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(cost)).decode()
    users = [f"user{n}" for n in range(attack.users)] + ["guest"]
    users += [f"new{n}" for n in range(500)]
    (directory / "users").write_text("".join(f"{name}:{made}\n" for name in users))
    begin, rules = POLICY.split("\n[[", 1)
    (directory / "policy.toml").write_text(
        f"{begin}{PLAYED * attack.content}\n[[{rules}")
    (directory / "decisions.py").write_text(HOOK)
    lines = [f'listen = ["{lone.PROXY}:0"]', f"workers = {WORKERS}",
             f'users_file = "{directory}/users"', f'policy = "{directory}/policy.toml"',
             f'resolvers = ["{lone.NAMES}"]', 'access_log = "off"',
             'connect_ports = "any"', "dns_cache_entries = 10000",
             *attack.options]  # fmt: skip
    if attack.secure:
        pem = directory / "both.pem"
        pem.touch(0o600)
        pem.write_bytes(make_certificate(directory))
        lines += ["[[listeners]]", f'address = "{lone.PROXY}:{PORT}"',
                  'protocols = ["http", "socks5", "tls"]', f'certificates = ["{pem}"]']
    elif attack.hook:
        lines.append('policy_hook = "decisions:decide"')
    elif attack.content:
        lines += [f'recording_directory = "{directory}/sessions"',
                  'recording_redact_json = ["$..password"]', CONTENT]
    (directory / "proxy.toml").write_text("".join(f"{line}\n" for line in lines))


@contextlib.contextmanager
def proxy_for(attack: Attack, authority: str, cost: int) -> Iterator[Program]:
    running = Running([], Target(Site(), authority))
    directory = running.make_directory()
    prepare(attack, directory, cost)
    config = directory / "proxy.toml"
    running.command = [sys.executable, "-m", "cutthrough", "serve", "-c", str(config)]
    with closing(running):
        running.start(cwd=TREE, env={"PYTHONPATH": str(directory)})
        running.port = int(running.await_line(r"listening on [^ ,]*:(\d+)"))
        with closing(Program(running, config)) as program:
            yield program


class Watched:
    """Runs the regulars while it is entered; then `records` has their results."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.records: list[Record] = []
        self._out = tempfile.TemporaryFile("w+")
        command = [sys.executable, "-m", "bench.regulars"]
        self._child = spawn(command, stdin=subprocess.PIPE, stdout=self._out, cwd=TREE)
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(spec) + "\n")
        self._child.stdin.flush()

    def __enter__(self) -> Watched:
        while not self._said().startswith("warm"):
            if self._child.poll() is not None:
                raise BenchError("the regulars are not served in peace")
            time.sleep(0.1)  # between looks: ten a second cost nothing beside the load
        return self

    def _said(self) -> str:
        self._out.seek(0)
        return self._out.read()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                assert self._child.stdin is not None
                self._child.stdin.close()
                self._child.wait(30)
                lines = self._said().splitlines()[1:]
                self.records = [tuple(json.loads(line)) for line in lines]
        finally:
            end(self._child)
            self._out.close()


def operate(program: Program, seconds: float) -> Row:
    """Reload without a change, reload with new workers, kill one, upgrade, in turn."""
    done = 0
    began = time.monotonic()
    program.generation = 4  # the next one changes dns_cache_entries
    acts: list[Callable[[], object]] = [
        lambda: program.process.send_signal(signal.SIGHUP),
        program.reload,
        lambda: program.workers()[0].kill(),
        lambda: program.process.send_signal(signal.SIGUSR2),
    ]  # fmt: skip
    for turn, act in enumerate(acts):
        # Acts are spread evenly over the span, however long each of them takes
        time.sleep(max(0.0, began + turn * seconds / len(acts) - time.monotonic()))
        program.look()
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            act()
            done += 1
    # The span that is compared with the quiet one is as long as that
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    program.look()
    return {"done": done}


def strike(attack: Attack, spec: dict[str, Any], program: Program,
           seconds: float) -> Row:  # fmt: skip
    """Run the attack for this long; return the attackers' reports."""
    if not attack.attacker:
        return operate(program, seconds)
    command = [sys.executable, "-m", "bench.attackers", attack.attacker,
               json.dumps(spec | attack.more), str(seconds)]  # fmt: skip
    # Its traceback, if it has one, is seen
    child = spawn(command, stdout=subprocess.PIPE, stderr=None, cwd=TREE)
    try:
        said, _ = child.communicate(timeout=seconds + 60)
        return dict(json.loads(said))
    except subprocess.TimeoutExpired:
        raise BenchError(f"the attacker of {attack.about} does not end") from None
    except ValueError:
        raise BenchError(f"the attacker of {attack.about} failed") from None
    finally:
        end(child)


def memory_of(program: Program) -> int:
    program.look()
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = [program.process, *program.process.children(recursive=True)]
        return resident_kib(tree)
    return 0


class Largest(threading.Thread):
    """Looks for the largest process of the program four times a second, in KiB."""

    def __init__(self, program: Program) -> None:
        super().__init__(daemon=True)
        self.program, self.kib = program, 0
        self._over = threading.Event()

    def look(self) -> int:
        with contextlib.suppress(psutil.Error):
            tree = [self.program.process,
                    *self.program.process.children(recursive=True)]
            for process in tree:
                with contextlib.suppress(psutil.Error):
                    self.kib = max(self.kib, process.memory_info().rss >> 10)
        return self.kib

    def run(self) -> None:
        while not self._over.wait(0.25):
            self.look()

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.kib


def p99(records: list[Record]) -> float:
    """Return figures of the requests that the origin answered, except first logins."""
    served = sorted(took for _, kind, seen, took in records
                    if seen == "ok" and kind != "first")  # fmt: skip
    return served[min(len(served) - 1, int(len(served) * 0.99))] if served else 0.0


def in_time(record: Record) -> bool:
    _, kind, seen, took = record
    return seen == "ok" and took <= (FIRST_IN_TIME if kind == "first" else IN_TIME)


def share(records: list[Record]) -> float:
    return sum(map(in_time, records)) / len(records) if records else 0.0


def judge(
    quiet: list[Record], beside: list[Record], before: int, after: int, grown: int = 0
) -> list[str]:
    """Return the names of the missed goals. `grown`: KiB, of one process."""
    missed = []
    if share(quiet) < LEAST_SHARE:
        missed.append("in_peace")
    if share(beside) < LEAST_SHARE:
        missed.append("share")
    if p99(beside) > max(MOST_RATIO * p99(quiet), NO_DELAY):
        missed.append("p99")
    if after > MOST_MEMORY * before:
        missed.append("memory")
    if grown > MOST_GROWN_KIB:
        missed.append("process")
    return missed


def outcomes(records: list[Record]) -> dict[str, int]:
    counted = collections.Counter(
        seen if seen != "ok" or in_time(record) else "late"
        for record in records for seen in (record[2],)
    )  # fmt: skip
    return dict(counted.most_common())


def run_one(
    name: str, seconds: float, settle: float, cost: int, authority: str
) -> Row:
    """Run one attack; return its row, in which `missed` names the missed goals."""
    attack = ATTACKS[name]
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(lone.NameServer())
        proxy = proxy_for(attack, authority, cost or attack.cost)
        program = stack.enter_context(proxy)
        port = authority.rpartition(":")[2]
        hosts = [f"ok{{turn}}.test:{port}"] if attack.names else [authority]
        spec: dict[str, Any] = {
            "host": lone.PROXY, "port": program.port, "source": lone.REGULARS,
            "attacker": lone.ATTACKER, "hosts": hosts, "bytes": FILES["1k"],
            "users": [f"user{n}" for n in range(attack.users)], "secret": SECRET,
            "guest": "guest", "rate": attack.rate, "newcomers": attack.newcomers,
        }  # fmt: skip
        with Watched(spec) as watched:
            time.sleep(1)  # first connects are no part of the quiet span
            began = time.monotonic()
            time.sleep(seconds)  # the quiet span that the attack is compared with
            before = memory_of(program)
            largest = Largest(program)
            begin = largest.look()
            largest.start()
            struck = time.monotonic()
            did = strike(attack, spec, program, seconds)
            peak = memory_of(program)
            ended = time.monotonic()
            grown = largest.end() - begin
            time.sleep(settle)  # what came of it afterwards counts as well
            after = memory_of(program)
    quiet = [record for record in watched.records if began <= record[0] < struck]
    beside = [record for record in watched.records if struck <= record[0]]
    missed = judge(quiet, beside, before, after, grown)
    return {
        "scenario": name, "requests": len(beside),
        "share_quiet": share(quiet), "share": share(beside),
        "p99_quiet_ms": 1e3 * p99(quiet), "p99_ms": 1e3 * p99(beside),
        "p99_ratio": p99(beside) / (p99(quiet) or 1.0),
        "longest_s": max((record[3] for record in beside), default=0.0),
        "rss_before_kib": before, "rss_end_kib": peak, "rss_after_kib": after,
        "grown_kib": grown, "rss_ratio": after / (before or 1),
        "attack_seconds": ended - struck,
        "questions": names.unanswered, "question_ports": len(names.ports),
        "outcomes": outcomes(beside), "attacker": did,
        "missed": ",".join(missed) or "nothing",
    }  # fmt: skip


def flat(row: Row) -> Row:
    """Return the tables in a row as they are printed: name:count,…"""
    return {key: ",".join(f"{name}:{count}" for name, count in value.items())
            for key, value in row.items() if isinstance(value, dict)}  # fmt: skip


def keep(name: str, rows: list[Row]) -> None:
    """Add the rows to the file, replacing those of the same name and attack."""
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    old = kept.get(name, {}).get("rows", [])
    new = {str(row["scenario"]) for row in rows}
    kept[name] = {"environment": describe_environment(Site()),
                  "rows": [row for row in old if row["scenario"] not in new] + rows}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")


def run_attack(
    only: tuple[str, ...], seconds: float, settle: float, cost: int, name: str
) -> int:
    """Print a line for each attack; return 0 if no goal was missed."""
    unknown = set(only) - ATTACKS.keys()
    if unknown:
        raise BenchError(f"no such attack: {', '.join(unknown)}; {', '.join(ATTACKS)}")
    lone.enter()
    rows = []
    with Origin() as origin:
        for attack in only or tuple(ATTACKS):
            row = run_one(attack, seconds, settle, cost, origin.authority)
            print(format_row("perf_attack", {**row, **flat(row)}), flush=True)
            rows.append(row)
            if name:
                keep(name, rows)
    return int(any(row["missed"] != "nothing" for row in rows))
