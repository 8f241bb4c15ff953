"""What is measured: a table of scenarios, and the client that runs each.

A client answers with numbers only when it saw no error: a wrong status, a wrong or
short body, a lost connection void the run.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import dataclass

from bench.origin import HERE, BenchError, Origin
from bench.proxies import PASSWORD, USER, Running, build_tool


@dataclass(frozen=True)
class Scenario:
    """One row: `tool` is wrk, or the mode of bench/load.c."""

    about: str
    tool: str
    conns: int
    path: str = "/index.html"
    yardstick: str = "relay"

    @property
    def missing(self) -> str:
        """Why it cannot run here, or nothing."""
        needed = "wrk" if self.tool == "wrk" else "cc"
        return "" if shutil.which(needed) else f"{needed} not installed"


SCENARIOS = {
    "plain-keepalive": Scenario("index.html, keep-alive, 100 connections", "wrk", 100),
    "plain-keepalive-c1": Scenario("index.html, keep-alive, 1 connection", "wrk", 1),
    "plain-16k": Scenario("16 KiB, keep-alive, 100 connections", "wrk", 100, "/16k"),
    "plain-128k": Scenario("128 KiB, keep-alive, 20 connections", "wrk", 20, "/128k"),
    "plain-1m": Scenario(
        "1 MiB, keep-alive, 10 connections", "wrk", 10, "/1m", "relay-splice"
    ),
    "plain-new": Scenario("index.html, a client connection for each", "plain-new", 20),
    "connect-setup": Scenario("CONNECT, one request, close", "connect-setup", 20),
    "ping-c1": Scenario("index.html in 1 long tunnel", "ping", 1),
    "ping-c100": Scenario("index.html in 100 long tunnels", "ping", 100),
    "bulk": Scenario("1 MiB in 10 long tunnels", "bulk", 10, "/1m", "relay-splice"),
    "idle": Scenario("memory of 5000 tunnels at rest", "idle", 5000),
}


@dataclass
class Counted:
    """What the client counted; latencies in µs, bytes of bodies (wrk: heads too)."""

    requests: int
    seconds: float
    bytes: int
    latency_us: dict[str, float]


def _parse_result(text: str, command: list[str]) -> Counted:
    """Read the client's key=value line; raise when it is missing or tells errors."""
    for line in text.splitlines():
        if not line.startswith(("tool=wrk ", "mode=")):
            continue
        values = dict(pair.split("=", 1) for pair in line.split())
        if int(values["errors"]):
            raise BenchError(
                f"{values['errors']} errors, first {values['first_error']}"
            )
        if not int(values["requests"]):
            raise BenchError("no request was answered")
        latencies = {
            key.removeprefix("latency_").removesuffix("_us"): float(value)
            for key, value in values.items()
            if key.startswith("latency_")
        }
        return Counted(
            int(values["requests"]),
            float(values["seconds"]),
            int(values["bytes"]),
            latencies,
        )
    raise BenchError(f"no result from {' '.join(command)}: {text.strip()}")


def build_load_command(
    mode: str, proxy: Running, origin: Origin, path: str, *options: str
) -> list[str]:
    """Return the command of bench/load.c for one run through `proxy`."""
    command = [build_tool("load"), mode, "--port", str(proxy.port)]
    command += ["--target", origin.authority, "--path", path]
    command += ["--length", str(origin.lengths[path]), *options]
    command += ["--blind"] if proxy.blind else ["--user", f"{USER}:{PASSWORD}"]
    return command


def _run_client(command: list[str]) -> Counted:
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    counted = _parse_result(done.stdout + done.stderr, command)
    if done.returncode:
        raise BenchError(f"{command[0]} ended with {done.returncode}: {done.stderr}")
    return counted


def warm_up(scenario: Scenario, proxy: Running, origin: Origin) -> None:
    """Send some requests that are not counted: lazy imports, first allocations."""
    mode = "plain-new" if scenario.tool in ("wrk", "plain-new") else "connect-setup"
    options = ("--conns", "5", "--requests", "100")
    _run_client(build_load_command(mode, proxy, origin, scenario.path, *options))
    origin.skip_log()


def run_wrk(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: int
) -> tuple[Counted, list[str]]:
    """Run wrk; every response is checked by status and, in sum, by length."""
    command = ["wrk", "-t1", f"-c{scenario.conns}", f"-d{seconds}s", "--latency"]
    command += ["-s", str(HERE / "absolute.lua"), f"http://127.0.0.1:{proxy.port}"]
    if proxy.blind:
        command[-1] += scenario.path
    else:
        credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        command += ["--", f"{origin.authority}{scenario.path}", credentials]
    counted = _run_client(command)
    length = origin.lengths[scenario.path]
    if counted.bytes < counted.requests * length:
        raise BenchError(f"{counted.requests} responses in {counted.bytes} bytes")
    return counted, command


def run_load(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: int
) -> tuple[Counted, list[str]]:
    """Run the load generator, which checks every response itself."""
    options = ("--conns", str(scenario.conns), "--seconds", str(seconds))
    command = build_load_command(scenario.tool, proxy, origin, scenario.path, *options)
    return _run_client(command), command


class IdleTunnels:
    """Tunnels that have carried one request each and rest while the context is open."""

    def __init__(self, scenario: Scenario, proxy: Running, origin: Origin) -> None:
        options = ("--conns", str(scenario.conns))
        self.command = build_load_command(
            "idle", proxy, origin, scenario.path, *options
        )
        self._conns = scenario.conns
        self.counted: Counted | None = None

    def __enter__(self) -> IdleTunnels:
        pipe = subprocess.PIPE
        self._client = subprocess.Popen(
            self.command, stdin=pipe, stdout=pipe, text=True
        )
        assert self._client.stdout is not None
        ready = self._client.stdout.readline()
        if f"tunnels={self._conns} errors=0" not in ready:
            result, _ = self._client.communicate()
            raise BenchError(
                f"not all tunnels opened: {ready.strip()} {result.strip()}"
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        result = self._client.communicate()[0]  # closes its stdin: the tunnels end
        if kind is None:
            self.counted = _parse_result(result, self.command)


def tool_version(name: str) -> str:
    """Return the first line that a tool says of its version; empty if not installed."""
    flag = {"nginx": "-v", "wrk": "-v", "openssl": "version"}.get(name, "--version")
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        return ""
    said = subprocess.run([found, flag], capture_output=True, text=True)
    return (said.stdout + said.stderr).strip().split("\n")[0]
