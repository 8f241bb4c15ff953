"""A soak with hostile content: `python -m bench content-soak`.

One proxy with two workers, USERS hashed users, and a policy: all requests are captured
with redaction; a quarter each is captured alone, recorded, cached, and filtered. They
are plain, or inside opened tunnels by HTTP/1.1 and HTTP/2, or WebSockets. One message
in a hundred is hostile (content_corpus.py). The network has `lo` alone.

Prints a row for each tenth, the memory of each process, and a row for each guardrail;
exit status 1 if one failed:

    lost        each regular exchange that was answered is stored, as often as it came
    hostile     each hostile one is stored, or counted in a metric of losses
    recorded    each regular exchange that the origin answered is recorded, no other is
    failed      no regular request failed
    memory      no process's own memory (USS) grew by more than MOST_GROWTH
    processes   no worker, writer or process for hashes has ended
    log         the error log has no traceback
    secrets     no file has a secret of regular messages; files have what is no secret
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import re
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import bcrypt
import psutil

from bench import lone
from bench.children import BenchError, Site
from bench.content_clients import Clients
from bench.content_origin import MARK, SHOWN, Origin, make_certificate
from bench.proxies import TREE
from bench.rows import Row, format_row
from bench.running import Running, Target

STEPS = 10
USERS, COST, VISITORS = 100, 5, 24
PAUSE = 0.05  # of a visitor, behind each visit
MOST_GROWTH = 0.10
#: Bytes that a small process may grow by: pages of an allocator.
LEAST_GROWTH = 2 << 20
SETTLE_SECONDS = 60.0
#: Of the metric of exchanges: what is lost
LOSSES = ("dropped", "unwritten", "failed")
#: Roles of processes that must not end. Those for long work come and go (R65).
LASTING = {"serve", "main", "writer", "hash_process"}

RULE = """
[[rules]]
action = "allow"
paths = ["/{route}/*", "/{route}/*/*"]
capture = "full"
{more}
"""
ROUTES = {"keep": "", "record": 'recording = "record"', "cache": 'recording = "cache"',
          "filter": 'filters = ["both"]'}  # fmt: skip
FILTER = '''class Both:
    """Reads both bodies whole, and changes the answer's."""

    async def on_request_body(self, flow, body):
        return body

    async def on_response_body(self, flow, body):
        return body + b" "
'''


def configure(directory: Path, authority: Path) -> Path:
    """Write the proxy's files."""
    names = [f"user{n}" for n in range(USERS)]
    (directory / "users").write_text("".join(
        f"{name}:{bcrypt.hashpw(name.encode(), bcrypt.gensalt(COST)).decode()}\n"
        for name in names))  # fmt: skip
    (directory / "both.py").write_text(FILTER)
    (directory / "policy.toml").write_text(
        '[filters.both]\ncode = "both:Both"\non_fault = "pass"\nbudget = "1s"\n'
        '[[rules]]\naction = "allow"\nmethods = ["CONNECT"]\ntls = "intercept"\n'
        + "".join(RULE.format(route=name, more=more) for name, more in ROUTES.items()))
    config = directory / "proxy.toml"
    config.write_text(f"""
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
workers = 2
users_file = "{directory}/users"
auth_cache_ttl = "1h"
access_log = "{directory}/access.log"
address_floor = "off"
connect_ports = "any"
policy = "{directory}/policy.toml"
intercept_ca = "{directory}/ca"
origin_ca = "{authority}"
capture_file = "{directory}/flows.db"
capture_count = 0
capture_bytes = 0
capture_body = "64KiB"
recording_directory = "{directory}/recordings"
recording_count = 2000
redact_query = ["token", "password"]
redact_json = ["$..password"]
redact_body = ['sk_live_[A-Za-z0-9]+']
[recording_routes.cache]
paths = ["/cache/*"]
body = "json"
""")
    return config


def start(directory_of: Running, authority: Path) -> int:
    """Start it; return the port of its admin listener."""
    running, directory = directory_of, directory_of.make_directory()
    ours = [sys.executable, "-m", "cutthrough"]
    done = subprocess.run([*ours, "ca", "init", "--dir", str(directory / "ca")],
                          cwd=TREE, capture_output=True, text=True)  # fmt: skip
    if done.returncode:
        raise BenchError(f"ca init: {done.stderr.strip()}")
    config = configure(directory, authority)
    running.command = [*ours, "serve", "-c", str(config)]
    running.start(cwd=TREE, env={"PYTHONPATH": f"{directory}:{TREE}"})
    running.port = int(running.await_line(r"listening on [^ ,]*:(\d+)"))
    return int(running.await_line(r"admin listener on [\d.]+:(\d+)"))


def read_metrics(port: int, name: str, label: str) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as got:
        text = got.read().decode()
    return {key: int(float(value)) for key, value in re.findall(
        rf'^{name}\{{{label}="(\w+)"\}} (\S+)$', text, re.M)}  # fmt: skip


def role_of(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    found = re.search(r"cutthrough[.\w]*\.(\w+)|-m cutthrough (\w+)", words)
    return (found[1] or found[2]) if found else process.name()


class Memory:
    """`seen`: by process, its own memory at each look, in bytes."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.seen: dict[int, list[int]] = {}
        self.total = 0  # at the last look
        self.roles: dict[int, str] = {}

    def look(self) -> None:
        total = 0
        for process in self._running.tree():
            with contextlib.suppress(psutil.Error, OSError):
                uss = process.memory_full_info().uss
                self.roles[process.pid] = role_of(process)
                self.seen.setdefault(process.pid, []).append(uss)
                total += uss
        self.total = total

    def rows(self, warm: int) -> list[Row]:
        """`warm`: looks of the warm-up. Of the rest, the first fifth and the last."""
        looks = max(map(len, self.seen.values()))
        rows: list[Row] = []
        for pid, seen in self.seen.items():
            if len(seen) < looks:
                continue
            rest = seen[warm:]
            fifth = max(1, len(rest) // 5)
            begin, end = (int(statistics.median(part))
                          for part in (rest[:fifth], rest[-fifth:]))
            flat = end - begin <= max(begin * MOST_GROWTH, LEAST_GROWTH)
            rows.append({"process": self.roles[pid], "pid": pid,
                         "begin_kib": begin >> 10, "end_kib": end >> 10,
                         "most_kib": max(seen) >> 10, "growth": end / begin - 1,
                         "ok": flat, "tenths_kib": ",".join(
                             str(int(statistics.median(part)) >> 10)
                             for part in tenths(seen))})
        return rows


def tenths(seen: list[int]) -> list[list[int]]:
    each = max(1, len(seen) // STEPS)
    return [seen[at:at + each] for at in range(0, len(seen), each)]


def stored_numbers(directory: Path) -> collections.Counter[str]:
    with contextlib.closing(sqlite3.connect(directory / "flows.db")) as database:
        urls = database.execute("SELECT url FROM flows WHERE method != 'CONNECT'")
        found = (re.search(r"/\w+/([fx]\d+)", url or "") for (url,) in urls)
        return collections.Counter(one[1] if one else "?" for one in found)


def count_recordings(directory: Path) -> int:
    """Return how many were ever added."""
    total = 0
    for path in (directory / "recordings").glob("*.session"):
        with contextlib.closing(sqlite3.connect(path)) as database:
            row = database.execute(
                "SELECT seq FROM sqlite_sequence WHERE name = 'recordings'").fetchone()
            total += row[0] if row else 0
    return total


def files_with(directory: Path, word: str) -> list[str]:
    done = subprocess.run(["grep", "-rlaF", word, str(directory)], text=True,
                          capture_output=True)  # fmt: skip
    return [name.removeprefix(f"{directory}/") for name in done.stdout.split()]


async def send_all(clients: Clients, minutes: float, memory: Memory, port: int) -> int:
    """Send for so long; return the number of looks of the warm-up."""
    began = time.monotonic()
    until = began + minutes * 60
    visits = [asyncio.create_task(clients.visit(until, PAUSE)) for _ in range(VISITORS)]
    warm, each = 0, minutes * 60 / STEPS
    for step in range(1, STEPS + 1):
        while time.monotonic() < began + step * each:
            await asyncio.sleep(min(2.0, each / 5))
            await asyncio.to_thread(memory.look)
            warm += step <= STEPS // 5
        metrics = await asyncio.to_thread(
            read_metrics, port, "cutthrough_capture_exchanges_total", "result")
        numbers = clients.answered
        print(format_row("perf_content_soak", {
            "seconds": time.monotonic() - began,
            "regular": sum(one[0] == "f" for one in numbers),
            "hostile": sum(one[0] == "x" for one in numbers),
            "failed": clients.failures.total(),
            "uss_kib": memory.total >> 10,
            **metrics}), flush=True)  # fmt: skip
    await asyncio.gather(*visits)
    return warm


async def settle(directory: Path, port: int) -> dict[str, int]:
    """Wait until the stores have all that was counted; return the metrics."""
    until = time.monotonic() + SETTLE_SECONDS
    before: tuple[object, ...] = ()
    while time.monotonic() < until:
        metrics = await asyncio.to_thread(
            read_metrics, port, "cutthrough_capture_exchanges_total", "result")
        with contextlib.closing(sqlite3.connect(directory / "flows.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM flows").fetchone()
        now = (metrics, count, count_recordings(directory))
        due = metrics["captured"] - metrics["unwritten"] - metrics["failed"]
        if now == before and count >= due:
            break
        before = now
        await asyncio.sleep(1)  # between looks at the stores
    return metrics


def judge(
    running: Running, clients: Clients, memory: Memory, warm: int,
    metrics: dict[str, int],
) -> list[Row]:  # fmt: skip
    """Return a row for each guardrail."""
    directory = running.directory
    assert directory is not None
    stored = stored_numbers(directory)
    regular = {number: 1 + clients.repeated[number]
               for number, status in clients.answered.items()
               if number[0] == "f" and status == 200}
    lost = sum(max(0, n - stored[number]) for number, n in regular.items())
    twice = sum(max(0, stored[number] - n) for number, n in regular.items())
    hostile = {number for number in clients.answered if number[0] == "x"}
    absent = {number for number in hostile if not stored[number]}
    losses = sum(metrics[name] for name in LOSSES)
    served = clients.origin.served
    recorded = count_recordings(directory)
    least = served["record", "f"] + served["cache", "f"]
    most = least + served["record", "x"] + served["cache", "x"]
    rows = memory.rows(warm)
    for row in rows:
        print(format_row("perf_content_soak_memory", row))
    now = {one.pid for one in running.tree()}
    gone = [memory.roles[pid] for pid in memory.seen.keys() - now]
    said = (directory / "said").read_text(errors="replace")
    secrets = files_with(directory, MARK)
    return [
        {"rule": "lost", "regular": sum(regular.values()), "lost": lost, "twice": twice,
         "ok": not lost and not twice},
        {"rule": "hostile", "sent": len(hostile), "absent": len(absent),
         "counted": losses, "ok": len(absent) <= losses,
         "of": ",".join(sorted(absent)[:8]) or "none"},
        {"rule": "recorded", "recorded": recorded, "least": least, "most": most,
         "ok": least <= recorded <= most},
        {"rule": "failed", **clients.failures, "ok": not clients.failures},
        {"rule": "memory", "processes": len(rows),
         "ok": all(row["ok"] for row in rows)},
        {"rule": "processes", "running": len(now), **collections.Counter(gone),
         "ok": not LASTING.intersection(gone)},
        {"rule": "log", "tracebacks": said.count("Traceback"),
         "lines": said.count("\n"), "ok": "Traceback" not in said},
        {"rule": "secrets", "files": ",".join(secrets) or "none",
         "shown": ",".join(files_with(directory, SHOWN)) or "none",
         "ok": not secrets and bool(files_with(directory, SHOWN))},
    ]  # fmt: skip


async def soak(running: Running, directory: Path, minutes: float) -> list[Row]:
    async with contextlib.AsyncExitStack() as stack:
        origin = Origin(directory)
        await origin.start(stack)
        port = start(running, directory / "origin.pem")
        assert running.directory is not None
        users = {f"user{n}": f"user{n}" for n in range(USERS)}
        clients = Clients(running.port, origin, running.directory / "ca" / "ca.pem",
                          users)  # fmt: skip
        memory = Memory(running)
        warm = await send_all(clients, minutes, memory, port)
        metrics = await settle(running.directory, port)
        print(format_row("perf_content_soak_hostile", dict(sorted(
            clients.names.items()))))
        print(format_row("perf_content_soak_answers", dict(sorted(
            clients.hostile_failures.items()))))
        print(format_row("perf_content_soak_metrics", dict(metrics)))
        return judge(running, clients, memory, warm, metrics)


def run_soak(minutes: float, keep: str = "") -> int:
    """`keep`: a file for the error log of the proxy."""
    lone.enter()
    with contextlib.ExitStack() as stack:
        running = Running([], Target(Site(), "127.0.0.1:1"))
        stack.callback(running.close)
        held = Running([], Target(Site(), "127.0.0.1:1"))
        stack.callback(held.close)
        directory = held.make_directory()
        make_certificate(directory)
        rows = asyncio.run(soak(running, directory, minutes))
        if keep and running.directory is not None:
            Path(keep).write_bytes((running.directory / "said").read_bytes())
    for row in rows:
        print(format_row("perf_content_soak_rule", row))
    return int(not all(row["ok"] for row in rows))
