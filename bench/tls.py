"""TLS between client and proxy, beside other servers: `python -m bench tls`.

One worker or thread each, one ECDSA certificate, tickets and no cache of sessions, the
same nginx behind them. CPU time of the server's processes for each handshake (TLS 1.2
full and resumed, 1.3 full and resumed), for each kept request of wrk, for each MiB, and
private memory of a connection at rest. All servers run at once, and each measurement
goes round them several times, in alternating order.

Prints a line for each server and a line of ratios to the best of the others; exit
status 1 if a handshake or request failed.
"""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.children import HERE, BenchError, Site
from bench.collect import cpu_times, private_bytes
from bench.origin import FILES, Origin, build_tool
from bench.peers import OF_TLS
from bench.proxies import listening
from bench.rows import Row, format_row
from bench.running import PASSWORD, USER, Running, Target

CONNS = 8  # that shake hands at a time
WARM_SECONDS = 0.3
WORD = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
KINDS = ("1.2 full", "1.2 resumed", "1.3 full", "1.3 resumed")
OURS = "cutthrough"


def make_certificate(directory: Path) -> bytes:
    """Return a key and a certificate of it, in PEM."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
    command += " -nodes -days 2 -subj /CN=proxy.invalid -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)
    parts = [(directory / name).read_bytes() for name in ("key.pem", "cert.pem")]
    return b"".join(parts)


def start_ours(pem: bytes, target: Target, options: str = "", policy: str = "",
               login: bool = True, tables: str = "") -> Running:
    """Start cutthrough with a TLS listener; `options` are lines of its file, `tables`
    its last ones."""
    running = Running([], target)
    directory = running.make_directory()
    both = directory / "both.pem"
    both.touch(0o600)
    both.write_bytes(pem)
    config = directory / "proxy.toml"
    if policy:
        (directory / "policy.toml").write_text(policy)
        options += f'\npolicy = "{directory / "policy.toml"}"'
    config.write_text(
        f'user = "{USER}"\npassword = "{PASSWORD}"\nworkers = 1\naccess_log = "off"\n'
        f'{options}\n'
        '[[listeners]]\naddress = "127.0.0.1:0"\n'
        f'certificates = ["{both}"]\n'
        'protocols = ["http", "http2"]\n'
        + ("" if login else 'auth = "none"\n') + tables)
    running.command = [sys.executable, "-m", "cutthrough", "serve", "-c", str(config)]
    return listening(running)


class Server:
    """One server, and what was measured of it."""

    def __init__(self, name: str, running: Running, origin: str,
                 version: str = "this tree") -> None:  # fmt: skip
        self.name, self.running, self.version = name, running, version
        self.origin = origin
        self.failed = 0
        self.figures: dict[str, list[float]] = {}

    def _cpu(self) -> float:
        return cpu_times(self.running.tree()).total

    def note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def shake(self, kind: str, seconds: float, warm: bool = False) -> None:
        version, how = kind.split()
        before = self._cpu()
        said = _run(build_tool("handshakes"), "127.0.0.1", str(self.running.port),
                    str(seconds), str(CONNS), version, how)
        result = dict(pair.split("=") for pair in said.split())
        n = int(result["handshakes"])
        self.failed += int(result["failed"])
        if n == 0 or int(result["resumed"]) != (n if how == "resumed" else 0):
            raise BenchError(f"{self.name}, {kind}: {said.strip()}")
        if not warm:
            self.note(f"us_{version}_{how}", (self._cpu() - before) / n * 1e6)
            self.note(f"rate_{version}_{how}", n / float(result["seconds"]))

    def request(self, path: str, conns: int, seconds: float) -> None:
        """Kept requests for a file of the origin, CPU for each and for each MiB."""
        size = FILES[path.rpartition("/")[2]]
        target = self.origin + path
        before = self._cpu()
        said = _run("wrk", "-t1", f"-c{conns}", f"-d{seconds:g}s", "-s",
                    str(HERE / "users.lua"), f"https://127.0.0.1:{self.running.port}",
                    "--", target, WORD)
        row = re.search(r"^requests=(\d+) errors=(\d+) seconds=(\S+)", said, re.M)
        if row is None or int(row[1]) == 0:
            raise BenchError(f"{self.name}: wrk said {said}")
        n, spent = int(row[1]), self._cpu() - before
        self.failed += int(row[2])
        if size >= 1 << 20:
            self.note("us_mib", spent / (n * size >> 20) * 1e6)
        else:
            self.note("us_kept", spent / n * 1e6)
            self.note("rate_kept", n / float(row[3]))

    def rest(self, conns: int) -> None:
        """Private memory of a connection after a request."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        head = (f"GET http://{self.origin}/1k HTTP/1.1\r\nHost: {self.origin}\r\n"
                f"Proxy-Authorization: Basic {WORD}\r\n\r\n").encode()
        with contextlib.ExitStack() as stack:
            def call() -> None:
                sock = socket.create_connection(("127.0.0.1", self.running.port))
                client = stack.enter_context(context.wrap_socket(sock))
                client.sendall(head)
                left = b""
                while len(left) < FILES["1k"]:
                    data = client.recv(65536)
                    if not data:
                        raise BenchError(f"{self.name} closed a connection")
                    left += data

            for _ in range(20):  # buffers and caches that all of them share
                call()
            before = private_bytes(self.running.tree())
            for _ in range(conns):
                call()
            # A server frees buffers after its last answer, at no event of the client's
            time.sleep(0.2)
            used = private_bytes(self.running.tree()) - before
        self.note("kib_at_rest", used / conns / 1024)

    def row(self) -> Row:
        medians = {name: statistics.median(v) for name, v in self.figures.items()}
        return {"server": self.name, "version": self.version, **medians}


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{Path(command[0]).name}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def servers(target: Target) -> Iterator[list[Server]]:
    """Start ours and those that are installed."""
    with contextlib.ExitStack() as stack:
        ours = Running([], target)
        stack.callback(ours.close)
        pem = make_certificate(ours.make_directory())
        started = []
        for full_name, peer in OF_TLS.items():
            name = full_name.removesuffix("-tls")
            if peer.missing():
                print(f"{name}: {peer.missing()}")
                continue
            running = peer.start(target, {"both.pem": pem})
            stack.callback(running.close)
            started.append(
                Server(name, running, target.authority, peer.read_version()))
        running = start_ours(pem, target)
        stack.callback(running.close)
        yield [*started, Server(OURS, running, target.authority)]


def run_tls(seconds: float, repetitions: int, conns: int) -> int:
    with Origin() as origin, servers(Target(Site(), origin.authority)) as compared:
        for server in compared:  # first: a load leaves free memory, which hides it
            server.rest(conns)
        for server in compared:
            for kind in KINDS:
                server.shake(kind, WARM_SECONDS, warm=True)
        for turn in range(repetitions):
            order = compared[:: -1 if turn % 2 else 1]
            for kind in KINDS:
                for server in order:
                    server.shake(kind, seconds)
            for path, many in (("/1k", 32), ("/1m", 4)):
                for server in order:
                    server.request(path, many, max(1, seconds))
    failed = sum(server.failed for server in compared)
    for server in compared:
        print(format_row("perf_tls", server.row()))
    print(format_row("perf_tls_ratio", {**ratios(compared), "failed": failed}))
    return 1 if failed else 0


def ratios(compared: list[Server]) -> Row:
    """Return ours to the best of the others, of every figure that is a cost: of those
    whose median is lowest, the median of the ratios of two runs of one turn. hitch, a
    relay that has dialled its origin by then, is none of them for handshakes."""
    out: Row = {}
    *others, ours = compared
    for name, runs in ours.figures.items():
        peers = [server.figures[name] for server in others
                 if not (server.name == "hitch" and name.startswith("us_1."))]
        if name.startswith(("us_", "kib_")) and peers:
            best = min(peers, key=statistics.median)
            out[name] = statistics.median(
                mine / theirs for mine, theirs in zip(runs, best, strict=True))
    return out
