"""The clients: wrk, siege, and the load generator of bench/load.

A client's numbers count only if it saw no error: a wrong status, a wrong or short body
or a lost connection voids the run.
"""

from __future__ import annotations

import base64
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.children import HERE, BenchError, end, spawn
from bench.cores import USABLE
from bench.origin import Origin, build_tool
from bench.running import PASSWORD, USER, Running
from bench.scenarios import Scenario

#: A client that has not ended this long after its time is killed.
PATIENCE = 30
CREDENTIALS = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

#: Processes of the load generator, if cores are left for a proxy and an origin; and the
#: modes that can be divided among processes.
PROCESSES = max(1, len(USABLE) // 3)
SHARED = {
    "plain", "plain-new", "connect-setup", "socks-setup", "ping", "bulk", "up", "both",
    "tls-setup", "tls-ping",
}  # fmt: skip
SIEGE_RC = (HERE / "siege.rc").read_text()


@dataclass
class Counted:
    """The client's counts; latencies in µs, bytes of bodies (wrk: heads too)."""

    requests: int
    seconds: float
    bytes: int
    latency_us: dict[str, float]
    more: dict[str, float] = field(default_factory=dict)

    def latencies_ms(self) -> dict[str, float]:
        """Return the latencies in the form of a row."""
        return {f"latency_{key}_ms": us / 1e3 for key, us in self.latency_us.items()}


#: Keys of load besides the common ones that are passed on: of page and rate.
MORE = re.compile(r"page|rate$|waited|backlog|up_bytes")


def parse_result(text: str, command: list[str]) -> Counted:
    """Read the client's key=value line; raise if it is missing or reports errors."""
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
        more = {key: float(values[key]) for key in values if MORE.match(key)}
        return Counted(
            int(values["requests"]), float(values["seconds"]), int(values["bytes"]),
            latencies, more,
        )  # fmt: skip
    raise BenchError(f"no result from {' '.join(command)}: {text.strip()}")


def build_load_command(
    mode: str, proxy: Running, origin: Origin, path: str, *options: str,
    endpoint: str = "web",
) -> list[str]:  # fmt: skip
    """Return the command of bench/load for one run through `proxy`."""
    command = [build_tool("load"), mode, "--host", proxy.ip]
    command += ["--port", str(proxy.port), "--target", origin.authority_of(endpoint)]
    if mode == "page":
        command += ["--pages", str(origin.pages)]
    else:
        command += ["--path", path, "--length", str(origin.lengths[path])]
    command += options
    command += ["--blind"] if proxy.blind else ["--user", f"{USER}:{PASSWORD}"]
    return command


def run_client(command: list[str], proxy: Running, seconds: float) -> str:
    """Run it to its end; return its output. Raises if it takes far too long."""
    with tempfile.TemporaryFile("w+") as out:
        client = spawn(proxy.site.within("client", command), stdout=out, stderr=out)
        try:
            client.wait(seconds + PATIENCE)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{Path(command[0]).name} did not end") from None
        finally:
            end(client)
        out.seek(0)
        return out.read()


def run_load_command(command: list[str], proxy: Running, seconds: float) -> Counted:
    return parse_result(run_client(command, proxy, seconds), command)


def run_rate(
    proxy: Running, origin: Origin, rate: float, conns: int, seconds: float
) -> tuple[Counted, list[str]]:
    """Request index.html at a fixed rate."""
    options = ["--conns", f"{conns}", "--rate", f"{rate:g}"]
    options += ["--seconds", f"{seconds:g}"]
    command = build_load_command("rate", proxy, origin, "/index.html", *options)
    return run_load_command(command, proxy, seconds), command


def warm_up(scenario: Scenario, proxy: Running, origin: Origin) -> None:
    """Send some requests that are not counted: lazy imports, first allocations."""
    modes = {"sink": scenario.mode, "tls": "tls-setup"}
    new = "plain" if scenario.keeps else "plain-new"
    mode = modes.get(scenario.endpoint, "connect-setup" if scenario.tunnel else new)
    mode = "socks-setup" if scenario.socks else mode
    path = scenario.path if scenario.path in origin.lengths else "/index.html"
    options = ("--conns", "5", "--requests", "100")
    command = build_load_command(
        mode, proxy, origin, path, *options, endpoint=scenario.endpoint
    )
    run_load_command(command, proxy, 5)
    origin.skip_log(scenario.endpoint)


def run_wrk(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> tuple[Counted, list[str]]:
    """Run wrk; every response is checked by status and, in sum, by length."""
    command = ["wrk", "-t1", f"-c{scenario.conns}", f"-d{max(1, round(seconds))}s"]
    command += ["--latency", "-s", str(HERE / "absolute.lua")]
    if scenario.mode == "new":
        command += ["-H", "Connection: close"]
    command += [f"http://{proxy.ip}:{proxy.port}"]
    if proxy.blind:
        command[-1] += scenario.path
    else:
        command += ["--", f"{origin.authority}{scenario.path}", CREDENTIALS]
    counted = parse_result(run_client(command, proxy, seconds), command)
    length = origin.lengths[scenario.path]
    if counted.bytes < counted.requests * length:
        raise BenchError(f"{counted.requests} responses in {counted.bytes} bytes")
    return counted, command


def run_load(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> tuple[Counted, list[str]]:
    """Run the load generator, which checks every response itself."""
    options = ["--conns", str(scenario.conns), "--seconds", f"{seconds:g}"]
    if PROCESSES > 1 and scenario.mode in SHARED and scenario.conns >= PROCESSES:
        options += ["--processes", str(PROCESSES)]
    if scenario.rate:
        options += ["--rate", f"{scenario.rate:g}"]
    if scenario.mode == "page" and not proxy.closes:
        options += ["--hang-up"]
    command = build_load_command(
        scenario.mode, proxy, origin, scenario.path, *options,
        endpoint=scenario.endpoint,
    )  # fmt: skip
    return run_load_command(command, proxy, seconds), command


def _siege_number(text: str, name: str) -> float:
    found = re.search(rf"^{name}:\s*([\d.]+)", text, re.MULTILINE)
    if found is None:
        raise BenchError(f"no {name!r} in the output of siege: {text.strip()[-300:]}")
    return float(found[1])


def run_siege(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> tuple[Counted, list[str]]:
    """Run siege -b as a client of the proxy, a number of requests and not a time.

    With a time limit siege cancels its threads wherever they are. If there are many,
    one dies with a lock held, and siege hangs.
    """
    each = int(seconds * 2000 / scenario.conns) + 1
    with tempfile.TemporaryDirectory(prefix="bench-siege.") as home:
        rc = Path(home, "siege.rc")
        url = f"http://{origin.authority}{scenario.path}"
        if proxy.blind:
            url = f"http://{proxy.ip}:{proxy.port}{scenario.path}"
            rc.write_text(SIEGE_RC)
        else:
            address = f"proxy-host = {proxy.ip}\nproxy-port = {proxy.port}\n"
            rc.write_text(SIEGE_RC + address)
        command = ["siege", f"--rc={rc}", "-b", f"-c{scenario.conns}", f"-r{each}"]
        command += ["-H", f"Proxy-Authorization: Basic {CREDENTIALS}", url]
        began = time.monotonic()
        text = run_client(["env", f"HOME={home}", *command], proxy, 10 * seconds)
        took = time.monotonic() - began
    if failed := _siege_number(text, "Failed transactions"):
        raise BenchError(f"siege: {failed:g} failed")
    requests = int(_siege_number(text, "Transactions"))
    latencies = {
        "avg": _siege_number(text, "Response time") * 1e6,
        "max": _siege_number(text, "Longest transaction") * 1e6,
    }
    bytes_ = requests * origin.lengths[scenario.path]
    said = _siege_number(text, "Data transferred")  # of bodies, MiB to a hundredth
    if abs(said - bytes_ / (1 << 20)) > 0.01:
        raise BenchError(f"siege: {requests} responses in {said} MiB")
    return Counted(requests, took, bytes_, latencies), command


class Held:
    """A client that works until its stdin ends, while the context is open."""

    def __init__(self, command: list[str], proxy: Running) -> None:
        self.command = command
        self._within = proxy.site.within("client", command)
        self.result = ""

    def __enter__(self) -> Held:
        pipe = subprocess.PIPE
        self._client = spawn(self._within, stdin=pipe, stdout=pipe)
        return self

    def read_line(self) -> str:
        assert self._client.stdout is not None
        return self._client.stdout.readline()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.result = self._client.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            self.result = ""
        finally:
            end(self._client)


class IdleTunnels(Held):
    """Tunnels, or connections, that carried one request each and are then idle."""

    def __init__(
        self, scenario: Scenario, proxy: Running, origin: Origin, mode: str = "idle"
    ) -> None:
        options = ("--conns", str(scenario.conns))
        command = build_load_command(mode, proxy, origin, scenario.path, *options)
        super().__init__(command, proxy)
        self._conns = scenario.conns
        self.counted: Counted | None = None

    def __enter__(self) -> IdleTunnels:
        super().__enter__()
        ready = self.read_line()
        if f"tunnels={self._conns} errors=0" not in ready:
            super().__exit__(None)
            raise BenchError(
                f"not all tunnels opened: {ready.strip()} {self.result.strip()}"
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        super().__exit__(kind)
        if kind is None:
            self.counted = parse_result(self.result, self.command)
