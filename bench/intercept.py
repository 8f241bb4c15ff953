"""TLS opened inside tunnels, beside other proxies: `python -m bench intercept`.

One worker or process each, and behind each an nginx with TLS, whose certificate it
verifies: towards a common one all would share 28 000 ports, and the kernel searches
longer for each the fewer are free. HTTP/1.1 on both sides, but HTTP/2 between
`cutthrough-http2` and the origin. CPU time of the proxy's processes for each kept
request inside a tunnel, and for each new tunnel with its handshakes and one request:
`new` to a host that is known, `fresh` to one whose name has never come, by ours alone.
cutthrough runs without and with capture, and with a filter that does nothing.
A proxy that hands on the origin's own certificate opens nothing: an error.
`listener` is the same request, by the same client, as an absolute URL through
cutthrough's TLS listener. All run at once, and each measurement goes round them several
times, in alternating order.

Prints a line for each proxy and a line of ratios; exit status 1 if a request failed.
`--name NAME` keeps the lines in bench/results, with the least and most of each figure.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import ssl
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509

from bench import tls
from bench.children import HERE, BenchError, Site
from bench.collect import cpu_times
from bench.origin import Origin, build_tool
from bench.peers import OF_INTERCEPTION
from bench.proxies import listening
from bench.result import write_rows
from bench.rows import Row, format_row
from bench.running import PASSWORD, USER, Running, Target

CONNS = {"kept": 32, "new": 8, "fresh": 8}
FRESH = "fresh.example"                      # names under it are new hosts
WARM_SECONDS = 1
OURS = "cutthrough"
LISTENER = "listener"
HTTP2 = "cutthrough-http2"                   # towards the origin
# What the deciding rule has beside tls = "intercept".
VARIANTS = {
    OURS: "", "cutthrough-head": 'capture = "head"',
    "cutthrough-full": 'capture = "full"', "cutthrough-filter": 'filters = ["nothing"]',
    HTTP2: "",
}  # fmt: skip

INTERCEPTED = 'tls = "intercept"\n'
FILTER = '''class Nothing:
    """Sees every head, and changes none."""

    async def on_request_head(self, flow):
        pass

    async def on_response_head(self, flow):
        pass
'''


def start_ours(rule: str | None, target: Target, trusted: Path, http2: str = "off"
               ) -> Running:  # fmt: skip
    """Start cutthrough with this line in the rule of the inner requests; None: tunnels
    stay closed."""
    running = Running([], target)
    directory = running.make_directory()
    ours = [sys.executable, "-m", "cutthrough"]
    command = subprocess.run([*ours, "ca", "init", "--dir", str(directory / "ca")],
                          cwd=HERE.parent, capture_output=True, text=True)
    if command.returncode:
        raise BenchError(f"ca init: {command.stderr.strip()}")
    (directory / "nothing.py").write_text(FILTER)
    policy = directory / "policy.toml"
    policy.write_text(
        '[filters.nothing]\ncode = "nothing:Nothing"\n'
        '[[rules]]\naction = "allow"\nmethods = ["CONNECT"]\n'
        f'{"" if rule is None else INTERCEPTED}'
        f'[[rules]]\naction = "allow"\n{rule or ""}\n')
    config = directory / "proxy.toml"
    config.write_text(
        f'user = "{USER}"\npassword = "{PASSWORD}"\nworkers = 1\naccess_log = "off"\n'
        'listen = ["127.0.0.1:0"]\naddress_floor = "off"\nconnect_ports = "any"\n'
        f'policy = "{policy}"\nintercept_ca = "{directory / "ca"}"\n'
        f'origin_ca = "{trusted}"\ncapture_file = "{directory / "flows.db"}"\n'
        f'origin_http2 = "{http2}"\n')
    running.command = [*ours, "serve", "-c", str(config)]
    path = os.pathsep.join([str(directory), str(HERE.parent)])
    running.command = ["env", f"PYTHONPATH={path}", *running.command]
    return listening(running)


class Opener:
    """One proxy that opens tunnels, and what was measured of it."""

    def __init__(self, name: str, running: Running, origin: str, version: str) -> None:
        self.name, self.running, self.version = name, running, version
        self.origin = origin
        self.failed = self.done = 0
        self.figures: dict[str, list[float]] = {}
        # A peer would have to look new names up, and finds none
        self.kinds = ["kept"] if name == LISTENER else [
            kind for kind in CONNS if kind != "fresh" or name in VARIANTS]

    def check_opens(self) -> None:
        """Raise BenchError if a tunnel ends at the origin: it would cost less."""
        unverified = ssl._create_unverified_context()
        tunnel = http.client.HTTPSConnection(
            "127.0.0.1", self.running.port, context=unverified)
        host, _, port = self.origin.rpartition(":")
        tunnel.set_tunnel(host, int(port), {"Proxy-Authorization": f"Basic {tls.WORD}"})
        with contextlib.closing(tunnel):
            tunnel.connect()
            leaf = x509.load_der_x509_certificate(tunnel.sock.getpeercert(True))
        if leaf.issuer == x509.Name.from_rfc4514_string("CN=origin.invalid"):
            raise BenchError(f"{self.name} does not open tunnels")

    def request(self, kind: str, seconds: float, warm: bool = False) -> None:
        """`kind`: of CONNS."""
        before = cpu_times(self.running.tree()).total
        to = self.origin
        if kind == "fresh":
            to = f"{FRESH}:{to.rpartition(':')[2]}"
        command = [build_tool("inside"), "127.0.0.1", str(self.running.port),
                   str(seconds), str(CONNS[kind]),
                   LISTENER if self.name == LISTENER else kind, to, "/1k", tls.WORD]
        done = subprocess.run(command, capture_output=True, text=True)
        figures = dict(pair.split("=") for pair in done.stdout.split())
        n = int(figures.get("requests", 0))
        if n == 0:
            raise BenchError(f"{self.name}, {kind}: {done.stdout} {done.stderr}")
        self.failed += int(figures["failed"])
        self.done += n
        if not warm:
            spent = cpu_times(self.running.tree()).total - before
            self.figures.setdefault(f"us_{kind}", []).append(spent / n * 1e6)
            self.figures.setdefault(f"rate_{kind}", []).append(
                n / float(figures["seconds"]))

    def row(self) -> Row:
        medians = {name: statistics.median(v) for name, v in self.figures.items()}
        return {"proxy": self.name, "version": self.version, **medians}

    def kept_row(self) -> Row:
        """The row of a stored result."""
        return {"line": "perf_intercept", **self.row(), "requests": self.done,
                "failed": self.failed, "runs": len(self.figures["us_kept"]),
                **spread(self.figures)}


def spread(figures: dict[str, list[float]]) -> Row:
    """Least and most of each."""
    return {f"{name}_{end}": pick(values) for name, values in figures.items()
            for end, pick in (("least", min), ("most", max))}


@contextlib.contextmanager
def openers() -> Iterator[list[Opener]]:
    """Start ours and those that are installed."""
    with contextlib.ExitStack() as stack:

        def start_origin() -> tuple[Target, str, Path]:
            origin = stack.enter_context(Origin())
            target = Target(Site(), origin.authority_of("tls"))
            name = f"localhost:{target.authority.rpartition(':')[2]}"
            return target, name, origin.directory / "origin.pem"

        started = []
        for full_name, peer in OF_INTERCEPTION.items():
            if peer.missing():
                print(f"{full_name}: {peer.missing()}")
                continue
            target, name, trusted = start_origin()
            more = {"authority.pem": tls.make_certificate(trusted.parent),
                    "origin.pem": trusted.read_bytes()}
            running = peer.start(target, more)
            stack.callback(running.close)
            started.append(Opener(full_name, running, name, peer.read_version()))
        for ours_name, rule in VARIANTS.items():
            target, name, trusted = start_origin()
            http2 = "auto" if ours_name == HTTP2 else "off"
            running = start_ours(rule, target, trusted, http2)
            stack.callback(running.close)
            started.append(Opener(ours_name, running, name, "this tree"))
        yield started


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--seconds", type=float, default=1,
                      help="length of a run; of wrk at least 1 [1]")
    verb.add_argument("--repetitions", type=int, default=5,
                      help="runs of each proxy [5]")
    verb.add_argument("--name", default="", help="name of the stored result")


def run_intercept(options: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        compared = stack.enter_context(openers())
        origin = stack.enter_context(Origin())
        pem = tls.make_certificate(origin.directory)
        running = tls.start_ours(pem, Target(Site(), origin.authority))
        stack.callback(running.close)
        for opener in compared:
            opener.check_opens()
        compared.insert(0, Opener(LISTENER, running, origin.authority, "this tree"))
        for opener in compared:
            for kind in opener.kinds:
                opener.request(kind, WARM_SECONDS, warm=True)
        for turn in range(options.repetitions):
            for kind in CONNS:
                for opener in compared[:: -1 if turn % 2 else 1]:
                    if kind in opener.kinds:
                        opener.request(kind, options.seconds)
    failed = sum(opener.failed for opener in compared)
    ratio: Row = {**ratios(compared), "failed": failed}
    for opener in compared:
        print(format_row("perf_intercept", opener.row()))
    print(format_row("perf_intercept_ratio", ratio))
    if options.name:
        write_rows(options.name, [*(opener.kept_row() for opener in compared),
                                  {"line": "perf_intercept_ratio", **ratio}])
    return 1 if failed else 0


def ratios(compared: list[Opener]) -> Row:
    """Return ours to the listener, and the peers' medians to ours."""
    of = {opener.name: opener.row() for opener in compared}
    ours = of[OURS]
    out: Row = {"kept_to_listener": (
        _number(ours["us_kept"]) / _number(of[LISTENER]["us_kept"]))}
    for name, row in of.items():
        if name not in VARIANTS and name != LISTENER:
            short = name.partition("-")[0]
            for kind in ("kept", "new"):
                out[f"rate_{kind}_to_{short}"] = (
                    _number(ours[f"rate_{kind}"]) / _number(row[f"rate_{kind}"]))
    return out


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value
