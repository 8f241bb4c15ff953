"""The real program as a child process, observed from outside."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import tomllib
from collections import Counter
from datetime import datetime
from pathlib import Path

import psutil

from tests.support import starter
from tests.support.client import PASSWORD, USER, Client
from tests.support.lines import read_line
from tests.support.processes import children_of
from tests.support.wait import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
BANNER = re.compile(r'(?:^|")cutthrough (\S+) listening on .*$', re.MULTILINE)
# Without the refusal of an earlier reload (of certificates, by itself) because of this
# one
RELOADED = re.compile(
    r"^cutthrough: (reload refused(?!.*: another one was requested).*|generation .*)\n",
    re.MULTILINE)
ADDRESS = re.compile(r"(\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):(\d+)")

#: Most descriptors of free pipes that a worker keeps for the next bulk relay. Whether a
#: pipe is in use is checked by the worker's own counters (tests/leaks).
FREE_PIPES = 2 * 64

#: Labels seen in any access log of this run; tests/e2e/conftest.py reads it.
seen_labels: set[str] = set()


def clean_environment(**more: str) -> dict[str, str]:
    """Returns the environment without variables that configure a proxy or a client."""
    options = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("CUTTHROUGH_") and not key.lower().endswith("_proxy")
    }
    return {**options, **more}


def fd_kinds(pid: int) -> Counter[str]:
    """Counts descriptors by kind: socket, pipe, anon_inode, file. None: it ended."""
    kinds: Counter[str] = Counter()
    with contextlib.suppress(FileNotFoundError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                kind, colon, _ = os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")
                kinds[kind if colon else "file"] += 1
    return kinds


def command_of(process: psutil.Process) -> str:
    """Returns the command line of a process; "" if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:            # or it is a zombie
        return ""


def begin_of(record: dict) -> float:
    """Returns when a request began, because its line is written at its end."""
    end = datetime.fromisoformat(record["time"]).timestamp()
    return end - record["total_ms"] / 1000


class Proxy:
    """`python -m cutthrough serve` with `flags`, on a free port; stopped by `stop`."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        loop: str = "auto",
        command: tuple[str, ...] = ("-m", "cutthrough", "serve"),
        user: bool = True,
        env: dict[str, str] | None = None,
        config: str | None = None,
        executed: bool = False,
    ) -> None:
        """`config`: the text of a file, then the only source; see `write_config`.
        `executed`: no process of it is a fork (tests.support.starter)."""
        directory.mkdir(parents=True, exist_ok=True)
        self.log_path = directory / "access.log"
        self._stderr = directory / "stderr"
        self._mark = 0
        self._since = 0.0
        self.baseline: dict[int, Counter[str]] = {}
        self._loop = loop
        self._config = self.config_file = directory / "cutthrough.toml"
        argv = [*command]
        if config is not None:
            self.write_config(config)
            argv += ["-c", str(self._config)]
        else:
            argv += ["--listen", "127.0.0.1:0", "--loop", loop]
            argv += ["--access-log", str(self.log_path), "--access-log-format", "json"]
            if user:
                argv += ["--user", USER, "--password", PASSWORD]
            if "--workers" not in flags:
                argv += ["--workers", "1"]
        with open(directory / "stdout", "wb") as out, open(self._stderr, "wb") as err:
            self.process = starter.start(
                [*argv, *flags], clean_environment(**(env or {})), str(ROOT), out, err,
                executed)
        try:
            wait_until(self._has_banner, lambda: f"a banner: {self.stderr()}", 60)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.banner = BANNER.search(self.stderr())[0]  # type: ignore[index]
        self.ports = [int(port) for _, port in ADDRESS.findall(self.banner)]
        self.port = self.ports[0]

    def _has_banner(self) -> bool:
        assert self.process.poll() is None, f"the proxy ended: {self.stderr()}"
        return bool(BANNER.search(self.stderr()))

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -- configuration

    def write_config(self, text: str) -> None:
        """Writes the file: `text`, and the tests' defaults for options not in it."""
        usual = {
            "listen": ["127.0.0.1:0"], "loop": self._loop, "workers": 1,
            "access_log": str(self.log_path), "access_log_format": "json",
            "user": USER, "password": PASSWORD,
        }
        said = tomllib.loads(text)
        if "listeners" in said:
            del usual["listen"]
        lines = [f"{key} = {json.dumps(value)}\n"
                 for key, value in usual.items() if key not in said]
        self._config.write_text("".join(lines) + text)

    def reload(self, text: str) -> str:
        """Rewrites the file and reloads; returns the line that reports the reload."""
        self.write_config(text)
        return self.hup()

    def hup(self) -> str:
        """Reloads; returns the line that reports the reload."""
        before = len(RELOADED.findall(self.stderr()))
        self.signal(signal.SIGHUP)
        wait_until(lambda: len(RELOADED.findall(self.stderr())) > before, self.stderr)
        return RELOADED.findall(self.stderr())[-1]

    # -- clients

    @property
    def url(self) -> str:
        return f"http://{USER}:{PASSWORD.replace(':', '%3A')}@127.0.0.1:{self.port}"

    def client(self, receive_buffer: int = 0) -> Client:
        return Client(self.port, receive_buffer=receive_buffer)

    # -- logs

    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def _whole_lines(self) -> bytes:
        """A writer's line that goes over a page may be seen in part."""
        try:
            text = self.log_path.read_bytes()
        except FileNotFoundError:
            return b""
        return text[: text.rfind(b"\n") + 1]

    def lines(self) -> list[str]:
        """Returns the access log's whole lines since `mark`."""
        return self._whole_lines()[self._mark :].decode().splitlines()

    def log(self, **wanted: object) -> list[dict]:
        """Returns the records since `mark` that have these values."""
        records = [read_line(line) for line in self.lines()]
        seen_labels.update(record["reason"] for record in records)
        records = [record for record in records if begin_of(record) > self._since]
        return [r for r in records if all(r.get(k) == v for k, v in wanted.items())]

    def wait_log(self, n: int = 1, **wanted: object) -> list[dict]:
        """Waits for n records with these values, and returns them."""
        return wait_until(
            lambda: len(records := self.log(**wanted)) >= n and records,
            lambda: f"{n} log records with {wanted}: {self.lines()}",
        )

    def wait_reason(self, label: str, **wanted: object) -> dict:
        return self.wait_log(1, reason=label, **wanted)[0]

    def mark(self) -> None:
        """Ignores requests that began before now, even if their line comes later."""
        self._since = time.time() - 0.002  # the log counts in milliseconds
        self._mark = len(self._whole_lines())

    # -- resources

    def workers(self) -> list[psutil.Process]:
        workers = []
        for child in children_of(self.process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    workers.append(child)
        return workers

    @property
    def worker(self) -> psutil.Process:
        (only,) = self.workers()
        return only

    def helpers(self, pid: int) -> list[psutil.Process]:
        """Returns the worker's hash helpers, each at the other end of a socket."""
        return children_of(pid)

    def census(self) -> dict[int, Counter[str]]:
        return {worker.pid: fd_kinds(worker.pid) for worker in self.workers()}

    def private_kib(self) -> int:
        """Returns the private memory of the only worker: its tunnels and buffers."""
        text = Path(f"/proc/{self.worker.pid}/smaps_rollup").read_text()
        return sum(int(n) for n in re.findall(r"^Private_\w+:\s+(\d+)", text, re.M))

    def sockets(self) -> int:
        return sum(kinds["socket"] for kinds in self.census().values())

    def take_baseline(self) -> None:
        self.baseline = self.census()

    def leaked(self, *only: str) -> str:
        """Returns descriptors that the workers hold beyond the baseline; "" if none."""
        told = []
        for pid, kinds in self.census().items():
            allowed = self.baseline.get(pid, kinds) + Counter(pipe=FREE_PIPES)
            allowed += Counter(socket=len(self.helpers(pid)))
            more = kinds - allowed
            kept = {kind: n for kind, n in more.items() if not only or kind in only}
            told += [f"worker {pid}: {n} {kind}" for kind, n in kept.items()]
        return ", ".join(told)

    def wait_settled(self, *only: str) -> None:
        """Raises AssertionError if descriptors stay; then resets the baseline."""
        try:
            wait_until(
                lambda: not self.leaked(*only), lambda: f"none: {self.leaked(*only)}"
            )
        except AssertionError:
            self.take_baseline()
            raise

    # -- end

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_exit(self, seconds: float = PATIENCE) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"still running after {seconds} s: {self.stderr()}"
            ) from None

    def stop(self) -> None:
        """Stops it at once, kills processes that are left, and reads its log a last
        time."""
        workers = self.workers()
        if self.process.poll() is None:
            self.signal(signal.SIGINT)
        try:
            self.wait_exit()
        finally:
            for left in (self.process, *workers):
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    left.kill()
            self.process.wait()
            self._mark, self._since = 0, 0.0
            with contextlib.suppress(ValueError):  # another format, or a torn line
                self.log()
