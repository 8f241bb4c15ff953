"""In the storm: does a request fail if an operator does everything at once?

wrk runs with a hundred connections, and callers that record each failed request
(callers.py) run beside it. Meanwhile the proxy reloads once a second, alternately an
option of running workers and one that needs new workers, a worker is killed every five
seconds, and the program is upgraded twice. Only requests on a killed worker's
connections may fail.

These connections are known: the worker is stopped first (SIGSTOP), its connections are
read from the kernel's tables, and then it is killed. Each failed request of the callers
must have been on one of them, and each of them accounts for one failure. wrk does not
report which of its requests failed; it may have as many failures as it had connections
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.callers import Callers, Failure, Tally
from bench.children import HERE, BenchError, end, spawn
from bench.clients import CREDENTIALS, PATIENCE
from bench.origin import Origin
from bench.proxies import start_configured
from bench.rows import format_row
from bench.running import Running, Target
from bench.sockets import ports_at, sockets_of

WORKERS = 2
RELOAD_EVERY = 1.0
#: How many callers of each kind: see callers.py.
CALLERS = {"steady": 12, "fresh": 6, "thinking": 12, "tunnels": 4}
PATH = "/index.html"
#: Seconds for upgrades that a busy machine has not done by the end.
MOST_LATE = 60.0
#: Endings caused by clients: wrk hangs up at the end of its time.
CLIENTS_OWN = {"client_closed", "client_reset", "ok", "keepalive_timeout"}
SERVES = re.compile(r"pid (\d+) serves; this program drains")
ACCOUNT = re.compile(r"cutthrough: served .*; failures: (.*)")
#: Lines that the error log must not contain.
WRONG = re.compile(
    r".*(?:Traceback|does not answer|cannot apply|cannot be started|internal error"
    r"|upgrade failed|stays in force: (?!another one was requested)|ended by status).*"
)
STILL = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
WRK = re.compile(r"connect:(\d+),read:(\d+),write:(\d+),timeout:(\d+),status:(\d+)")


@dataclass
class Kill:
    """A killed worker, and the ports of its clients at that time."""

    at: float
    ports: set[int]
    wrk_ports: set[int]


@dataclass
class Storm:
    """The operations on the proxy."""

    kills: list[Kill] = field(default_factory=list)
    upgrades: int = 0


def explain(failures: Iterable[Failure], kills: Iterable[Kill]) -> list[Failure]:
    """Return the failures that no kill explains. A killed connection explains one
    failure, of the caller that had it open."""
    left = [(kill.at, set(kill.ports)) for kill in kills]
    unexplained = []
    for failure in sorted(failures, key=lambda failure: failure.at):
        for at, ports in left:
            if failure.port in ports and failure.opened_at < at <= failure.at:
                ports.remove(failure.port)
                break
        else:
            unexplained.append(failure)
    return unexplained


def explain_wrk(said: str, kills: Iterable[Kill]) -> tuple[int, int, int]:
    """Return wrk's requests, its failures, and the failures that no kill explains. A
    failure that did not end its connection counts as unexplained."""
    found = re.search(r"requests=(\d+) errors=(\d+) first_error=(\S+)", said)
    if found is None:
        raise BenchError(f"wrk: {said.strip()}")
    requests, failed = int(found[1]), int(found[2])
    counts = WRK.search(found[3])
    cut = int(counts[2]) + int(counts[3]) if counts else 0
    explained = min(cut, sum(len(kill.wrk_ports) for kill in kills))
    return requests, failed, failed - explained


class Program:
    """The program that serves now: the first, or a successor."""

    def __init__(self, running: Running, config: Path) -> None:
        assert running.process is not None
        self._running, self._config = running, config
        self.process = psutil.Process(running.process.pid)
        self.generation = 1
        self.coming = False  # a successor that does not serve yet

    @property
    def port(self) -> int:
        return self._running.port

    def said(self) -> str:
        return (self._config.parent / "said").read_text(errors="replace")

    def look(self) -> None:
        """Has a successor taken over?"""
        found = SERVES.findall(self.said())
        if found and int(found[-1]) != self.process.pid:
            self.process = psutil.Process(int(found[-1]))
            self.coming = False

    def reload(self) -> None:
        self.generation += 1
        write_config(self._config, self.generation)
        self.process.send_signal(signal.SIGHUP)

    def upgrade(self, owed: int) -> bool:
        """Begin an upgrade if one is due and none runs; return whether it began."""
        if not owed or self.coming:
            return False
        self.coming = True
        self.process.send_signal(signal.SIGUSR2)
        return True

    def workers(self) -> list[psutil.Process]:
        found = []
        for child in self.process.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends just now
                if "cutthrough.worker.main" in child.cmdline():
                    found.append(child)
        return found

    def kill_worker(self, wrk: int) -> Kill | None:
        """Kill a worker; None if no worker has clients."""
        found = self.workers()
        random.shuffle(found)
        for worker in found:
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
                at = time.monotonic()
                worker.suspend()
                while worker.status() not in STILL:
                    time.sleep(0.0005)  # the signal is on its way
                inodes = sockets_of(worker.pid)
                wrks = sockets_of(wrk) if wrk else set()
                ports, theirs = ports_at(self._running.port, inodes, wrks)
                if not ports:
                    worker.resume()
                    continue
                worker.kill()
                return Kill(at, ports, theirs)
        return None

    def close(self) -> None:
        """End the serving program, unless it is the first, which its starter ends."""
        self.look()
        tree = [self.process]
        with contextlib.suppress(psutil.NoSuchProcess):
            tree += self.process.children(recursive=True)
            self.process.terminate()
        _, left = psutil.wait_procs(tree, timeout=20)
        for one in left:
            one.kill()


def write_config(path: Path, generation: int) -> None:
    """Change an option of running workers, or one that needs new workers, in turn;
    every other time the latter is their number."""
    text = path.read_text()
    name, value = "keepalive_timeout", f'"{60 + generation % 30}s"'
    if generation % 4 == 1:
        name, value = "dns_cache_entries", f"{1000 + generation}"
    elif generation % 4 == 3:
        name, value = "workers", f"{WORKERS + generation // 4 % 2}"
    text = re.sub(rf"^{name} = .*", f"{name} = {value}", text, flags=re.M)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


async def blow(program: Program, seconds: float, kill_every: float, wrk: int) -> Storm:
    """Run all operations and faults for this long."""
    storm = Storm()
    owed = 0  # upgrades; one that is due while another is under way waits for it
    began = time.monotonic()
    due = sorted(
        [(RELOAD_EVERY * n, "reload") for n in range(1, int(seconds / RELOAD_EVERY))]
        + [(kill_every * n, "kill") for n in range(1, int(seconds / kill_every) + 1)]
        + [(seconds / 3, "upgrade"), (2 * seconds / 3, "upgrade")]
    )  # fmt: skip
    for at, act in due:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        program.look()
        if act == "reload":
            program.reload()
        elif act == "kill":
            kill = program.kill_worker(wrk)
            if kill is not None:
                storm.kills.append(kill)
        else:
            owed += 1
        storm.upgrades += program.upgrade(owed - storm.upgrades)
    await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
    deadline = time.monotonic() + MOST_LATE
    while program.coming or storm.upgrades < owed:
        if time.monotonic() > deadline:
            break  # what the proxy said tells why
        program.look()
        storm.upgrades += program.upgrade(owed - storm.upgrades)
        await asyncio.sleep(0.05)  # between looks
    return storm


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError), closing(writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


def wrk_command(
    conns: int, seconds: float, proxy: Running, origin: Origin
) -> list[str]:
    # Its own 2 s are less than a worker's second death in a row holds its slot up
    command = ["wrk", "-t1", f"-c{conns}", f"-d{seconds:.0f}s", "--timeout", "10s"]
    command += ["-s", str(HERE / "absolute.lua"), f"http://{proxy.ip}:{proxy.port}"]
    return [*command, "--", f"{origin.authority}{PATH}", CREDENTIALS]


async def sail(program: Program, proxy: Running, origin: Origin, conns: int,
               seconds: float, kill_every: float) -> tuple[Storm, Tally, str]:
    """Run load and storm; return the operations, and the results of callers and wrk."""
    body = (origin.directory / "files" / PATH.strip("/")).read_bytes()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    callers = Callers(
        (proxy.ip, proxy.port), CREDENTIALS, origin.authority, PATH, body,
        "{}:{}".format(*server.sockets[0].getsockname()),
    )  # fmt: skip
    callers.start(**CALLERS)
    with tempfile.TemporaryFile("w+") as out:
        wrk = None
        if conns:
            command = wrk_command(conns, seconds, proxy, origin)
            wrk = spawn(command, stdout=out, stderr=out)
        try:
            storm = await blow(program, seconds, kill_every, wrk.pid if wrk else 0)
            await callers.stop()
            if wrk is not None:
                await asyncio.to_thread(wrk.wait, PATIENCE)
        except subprocess.TimeoutExpired:
            raise BenchError("wrk did not end") from None
        finally:
            if wrk is not None:
                end(wrk)
        server.close()
        out.seek(0)
        return storm, callers.tally, out.read()


def failures_of_proxy(said: str) -> dict[str, int]:
    """Return the endings that all programs counted and no client caused."""
    found: dict[str, int] = {}
    for account in ACCOUNT.findall(said):
        for label, count in re.findall(r"(\w+) (\d+)", account):
            if label not in CLIENTS_OWN:
                found[label] = found.get(label, 0) + int(count)
    return found


def run_storm(seconds: float, conns: int, kill_every: float) -> int:
    """Print one line and the mistakes; return 0 if there are none."""
    with Origin() as origin:
        options = ('keepalive_timeout = "60s"', "dns_cache_entries = 1000")
        proxy = start_configured(WORKERS, *options)(
            Target(origin.site, origin.authority))
        with closing(proxy):
            assert proxy.directory is not None
            program = Program(proxy, proxy.directory / "proxy.toml")
            began = time.monotonic()
            with closing(program):
                storm, tally, out = asyncio.run(
                    sail(program, proxy, origin, conns, seconds, kill_every))
            said = program.said()
    requests = failed = unexplained = 0
    if conns:
        requests, failed, unexplained = explain_wrk(out, storm.kills)
    strays = explain(tally.failures, storm.kills)
    programs = len(ACCOUNT.findall(said))
    wrong = [f"not explained: {one.what}, port {one.port}, "
             f"{one.at - began:.3f} s from the begin" for one in strays]
    if unexplained:
        wrong.append(f"not explained: {unexplained} of wrk: {out.strip()}")
    wrong += [f"the proxy said: {line}" for line in WRONG.findall(said)]
    wrong += [f"the proxy counted: {label} {count}"
              for label, count in failures_of_proxy(said).items()]
    if programs != storm.upgrades + 1:
        wrong.append(f"{programs} programs ended as they should")
    row: dict[str, object] = {
        "scenario": "storm", "seconds": seconds, "conns": conns,
        "reloads": len(re.findall(r"cutthrough: generation \d+: ", said)),
        "reloads_waited": said.count("reload postponed"),
        "kills": len(storm.kills), "upgrades": storm.upgrades,
        "killed_connections": sum(len(kill.ports) for kill in storm.kills),
        "killed_connections_of_wrk": sum(len(kill.wrk_ports) for kill in storm.kills),
        "requests": requests + tally.served,
        "failed": failed + len(tally.failures),
        "failed_of_wrk": failed,
        "unexplained": unexplained + len(strays),
        "crossed": tally.crossed, "longest_s": tally.longest,
        "wrong": len(wrong),
    }  # fmt: skip
    print(format_row("perf_storm", row))
    for line in wrong[:20]:
        print(f"wrong: {line}")
    return int(bool(wrong))
