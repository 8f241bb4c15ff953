"""What is long or many inside an interception: `python -m bench streams`.

    http2      h2load, CONNS tunnels with STREAMS requests in hand each, 1 KiB of nginx
    grpc       h2load likewise: calls with one message of 100 bytes, which grpcio echoes
    websocket  CONNS WebSockets, each with one such message in hand; aiohttp echoes it

CPU time of the proxy's processes for each request, call or message (an echo is two),
and their rate. Ours speaks HTTP/2 with the origin too; it runs without a capture, and
with `capture = "full"`. `blind` is the same through a tunnel that stays closed. One
worker or process each. All run at once, and each load goes round them several times, in
alternating order. h2load knows no proxy: socat opens a tunnel for each connection.

Prints a line for each proxy and one of ratios; exit status 1 if anything failed.
`--name NAME` keeps the lines in bench/results.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import aiohttp

from bench import tls
from bench.children import HERE, BenchError, Site, end, free_port, spawn, wait_for_port
from bench.collect import cpu_times
from bench.intercept import start_ours
from bench.origin import Origin
from bench.peers import OF_STREAMS
from bench.result import write_rows
from bench.rows import Row, format_row
from bench.running import PASSWORD, USER, Running, Target

CONNS, STREAMS, MESSAGE = 8, 10, 100
LOADS = ("http2", "grpc", "websocket")
OURS, BLIND = "cutthrough", "blind"
# What the rule of the inner requests has; None: the tunnel stays closed.
VARIANTS = {OURS: "", "cutthrough-full": 'capture = "full"', BLIND: None}
#: Requests that are not measured, and the fewest of a run.
WARM = 400
CALL = "/bench.Echo/Call"


class Carrier:
    """One proxy, and what was measured of it. `ports`: of the origin, by load."""

    def __init__(self, name: str, running: Running, ports: dict[str, int],
                 version: str = "this tree") -> None:  # fmt: skip
        self.name, self.running, self.version = name, running, version
        self.ports = ports
        self.failed = 0
        self.figures: dict[str, list[float]] = {}
        self._openers: dict[str, tuple[subprocess.Popen[str], int]] = {}

    def close(self) -> None:
        for opener, _ in self._openers.values():
            end(opener)
        self.running.close()

    def load(self, name: str, amount: int, warm: bool = False) -> float:
        """Send that many, and return their rate."""
        before, began = cpu_times(self.running.tree()).total, time.monotonic()
        done = (asyncio.run(self._send_messages(amount)) if name == "websocket"
                else self._send_requests(name, amount))
        rate = done / (time.monotonic() - began)
        spent = cpu_times(self.running.tree()).total - before
        if not done:
            raise BenchError(f"{self.name}, {name}: nothing came back")
        self.failed += amount - done
        if not warm:
            self.figures.setdefault(f"us_{name}", []).append(spent / done * 1e6)
            self.figures.setdefault(f"rate_{name}", []).append(rate)
        return rate

    def _opener(self, name: str) -> int:
        """The port on which socat opens tunnels to the origin of this load."""
        if name not in self._openers:
            port = free_port()
            child = spawn(
                # With socat's own backlog of 5 one of eight SYNs came again after 1 s
                ["socat", "-b65536",
                 f"TCP-LISTEN:{port},bind=127.0.0.1,fork,nodelay,backlog=128",
                 f"PROXY:127.0.0.1:localhost:{self.ports[name]},nodelay,"
                 f"proxyport={self.running.port},proxyauth={USER}:{PASSWORD}"])
            self._openers[name] = (child, port)
            wait_for_port(port, child)
        return self._openers[name][1]

    def _send_requests(self, name: str, amount: int) -> int:
        port = self._opener(name)
        assert self.running.directory is not None
        flags = ["-H", f":authority: localhost:{self.ports[name]}"]
        path = "/1k"
        if name == "grpc":
            path = CALL
            message = self.running.directory / "message"
            message.write_bytes(b"\0" + MESSAGE.to_bytes(4, "big") + b"m" * MESSAGE)
            flags += ["-H", "content-type: application/grpc", "-H", "te: trailers",
                      "-d", str(message)]  # fmt: skip
        said = subprocess.run(
            ["h2load", "-t1", f"-n{amount}", f"-c{CONNS}", f"-m{STREAMS}", *flags,
             f"https://127.0.0.1:{port}{path}"], capture_output=True, text=True)
        codes = re.search(r"status codes: (\d+) 2xx", said.stdout)
        if codes is None or codes[1] == "0" or (
                "Application protocol: h2" not in said.stdout):
            raise BenchError(f"{self.name}, {name}: {said.stdout} {said.stderr}")
        return int(codes[1])

    async def _send_messages(self, amount: int) -> int:
        text = "m" * MESSAGE
        url = f"https://localhost:{self.ports['websocket']}/echo"
        proxy = f"http://{USER}:{PASSWORD}@127.0.0.1:{self.running.port}"

        async def talk(session: aiohttp.ClientSession) -> int:
            came = 0
            async with session.ws_connect(url, proxy=proxy, ssl=False) as socket:
                for _ in range(amount // CONNS // 2):
                    await socket.send_str(text)
                    came += 2 * (await socket.receive_str() == text)
            return came

        async with aiohttp.ClientSession() as session:
            return sum(await asyncio.gather(*(talk(session) for _ in range(CONNS))))

    def row(self) -> Row:
        medians = {name: statistics.median(v) for name, v in self.figures.items()}
        return {"proxy": self.name, "version": self.version, **medians}


@contextlib.contextmanager
def carriers(origin: Origin) -> Iterator[list[Carrier]]:
    """Start the origins, ours, and the peers that are installed."""
    with contextlib.ExitStack() as stack:
        echoes = spawn([sys.executable, "-m", "bench.echoes", str(origin.directory)],
                       stdout=subprocess.PIPE, cwd=HERE.parent)
        stack.callback(end, echoes)
        assert echoes.stdout is not None
        websocket, grpc = map(int, echoes.stdout.readline().split())
        ports = {"http2": origin.ports["tls"], "grpc": grpc, "websocket": websocket}
        trusted = origin.directory / "origin.pem"
        target = Target(Site(), origin.authority_of("tls"))
        scratch = Running([], target)
        stack.callback(scratch.close)
        more = {"authority.pem": tls.make_certificate(scratch.make_directory()),
                "origin.pem": trusted.read_bytes()}
        started = []
        for name, peer in OF_STREAMS.items():
            if peer.missing():
                print(f"{name}: {peer.missing()}")
                continue
            running = peer.start(target, more)
            started.append(Carrier(name, running, ports, peer.read_version()))
            stack.callback(started[-1].close)
        for ours, rule in VARIANTS.items():
            running = start_ours(rule, target, trusted, "auto")
            started.append(Carrier(ours, running, ports))
            stack.callback(started[-1].close)
        yield started


def run_streams(options: argparse.Namespace) -> int:
    for program in ("h2load", "socat"):
        if shutil.which(program) is None:
            raise BenchError(f"{program} is not installed")
    with Origin() as origin, carriers(origin) as compared:
        amounts = {}
        for load in LOADS:
            for carrier in compared:
                carrier.load(load, WARM, warm=True)
                rate = carrier.load(load, WARM, warm=True)
                # Whole rounds of all connections
                rounds = max(WARM, int(rate * options.seconds)) // (2 * CONNS)
                amounts[carrier.name, load] = rounds * 2 * CONNS
        for turn in range(options.repetitions):
            for load in LOADS:
                for carrier in compared[:: -1 if turn % 2 else 1]:
                    carrier.load(load, amounts[carrier.name, load])
        rows = [carrier.row() for carrier in compared]
        failed = sum(carrier.failed for carrier in compared)
    for row in rows:
        print(format_row("perf_streams", row))
    ratio: Row = {**ratios(rows), "failed": failed}
    print(format_row("perf_streams_ratio", ratio))
    if options.name:
        write_rows(options.name, [*rows, ratio])
    return 1 if failed else 0


def ratios(rows: list[Row]) -> Row:
    """Return the CPU time of the others, of that of ours."""
    of = {row["proxy"]: row for row in rows}
    out: Row = {}
    for name, row in of.items():
        for load in LOADS:
            ours, theirs = of[OURS][f"us_{load}"], row[f"us_{load}"]
            assert isinstance(ours, float) and isinstance(theirs, float)
            if name != OURS:
                out[f"{load}_{name}"] = theirs / ours
    return out


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=1,
                        help="length of a run, about [1]")
    parser.add_argument("--repetitions", type=int, default=5,
                        help="rounds of each load [5]")
    parser.add_argument("--name", default="", help="name of the stored result")
