"""The debuggers of `python -m bench inspect`, each as its user starts it: it opens
every tunnel and keeps all that passes."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509

from bench import tls
from bench.children import HERE, BenchError, end, free_port, spawn
from bench.paced import Answers, Task
from bench.peers import OF_INSPECTION
from bench.rows import Row
from bench.running import Running, Target

OURS = "cutthrough"
#: Three answers of four are small
PATHS = ("/1k", "/1k", "/1k", "/16k")
#: What a first start leaves, the authority's file first
FIRST_FILES = {"mitmproxy": ("mitmproxy-ca-cert.pem", "mitmproxy-*", "flows"),
               "httptoolkit": ("config/ca.pem", "config")}
START_SECONDS = 60.0
LOOK_SECONDS = 0.002                         # between looks at what a start has made

Span = contextlib.AbstractContextManager[object]


@dataclass
class Debugger:
    """`word`: its credentials, in Base64. `first_files`: the patterns of what its
    first start leaves in its directory, the authority's file before all others."""

    name: str
    running: Running
    version: str
    word: Callable[[], str]
    first_files: tuple[str, ...]
    cwd: Path
    has_page: bool

    @property
    def directory(self) -> Path:
        assert self.running.directory is not None
        return self.running.directory

    def start(self, origin_port: int) -> None:
        """Return when it has answered a request, for which all its processes run."""
        self.running.start(cwd=self.cwd)
        self._await(self._listens)
        self._await(lambda: self._serves(origin_port))

    def start_page(self) -> None:
        """Return when its page answers; it has seen no request."""
        self.running.start(cwd=self.cwd)
        self._await(self._shows)

    def forget(self) -> None:
        """The next start is a first one."""
        for pattern in self.first_files:
            for path in self.directory.glob(pattern):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def time_start(self, origin_port: int, is_first: bool) -> Row:
        """Milliseconds from exec(2) until each part is there; it has been stopped."""
        if is_first:
            self.forget()
        row: Row = {"proxy": self.name, "start": "first" if is_first else "again"}
        began = time.monotonic()

        def note(name: str) -> None:
            row[f"{name}_ms"] = (time.monotonic() - began) * 1e3

        self.running.start(cwd=self.cwd)
        if is_first:
            authority = self.first_files[0]
            self._await(lambda: any(
                path.stat().st_size for path in self.directory.glob(authority)))
            note("authority")
        self._await(self._listens)
        note("listen")
        if self.has_page:
            self._await(self._shows)
            note("page")
        self._await(lambda: self._serves(origin_port))
        note("request")
        return row

    def _await(self, has_come: Callable[[], bool]) -> None:
        process, until = self.running.process, time.monotonic() + START_SECONDS
        assert process is not None
        while not has_come():
            if process.poll() is not None or time.monotonic() > until:
                raise BenchError(f"{self.name} did not start: {self.running.said()}")
            time.sleep(LOOK_SECONDS)         # between two tries to connect

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.running.port)) == 0

    def _shows(self) -> bool:
        """Does its page's server answer? mitmweb's asks for a password."""
        page = http.client.HTTPConnection("127.0.0.1", self.running.admin_port)
        with contextlib.closing(page):
            try:
                page.request("GET", "/traffic" if self.name == OURS else "/")
                return bool(page.getresponse().read())
            except OSError:
                return False

    def _serves(self, origin_port: int) -> bool:
        """One request in a tunnel. False: HTTP Toolkit has not yet got its rules.
        Raises BenchError unless the tunnel is opened."""
        tunnel = http.client.HTTPSConnection(
            "127.0.0.1", self.running.port, context=ssl._create_unverified_context())
        tunnel.set_tunnel("localhost", origin_port,
                          {"Proxy-Authorization": f"Basic {self.word()}"})
        with contextlib.closing(tunnel):
            tunnel.request("GET", "/1k")
            leaf = x509.load_der_x509_certificate(tunnel.sock.getpeercert(True))
            status = tunnel.getresponse().status
        if leaf.issuer == x509.Name.from_rfc4514_string("CN=origin.invalid"):
            raise BenchError(f"{self.name} does not open tunnels")
        if status not in (200, 503):
            raise BenchError(f"{self.name}: status {status}")
        return status == 200

    def send(self, origin_port: int, rate: float, seconds: float, conns: int,
             during: Span) -> Answers:
        return send(Task(self.running.port, origin_port, self.word(), PATHS, rate,
                         seconds, conns), during)


def send(task: Task, during: Span) -> Answers:
    """Send the task's requests from a process of their own. `during` is entered when
    its connections are open, and left when all answers have come."""
    client = spawn([sys.executable, "-m", "bench.paced"], cwd=HERE.parent,
                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE)  # fmt: skip
    try:
        assert client.stdin and client.stdout and client.stderr
        client.stdin.write(json.dumps(asdict(task)) + "\n")
        client.stdin.flush()
        if client.stdout.readline():
            with during:
                client.stdin.write("\n")
                client.stdin.flush()
                result = client.stdout.readline()
            if result:
                return Answers(**json.loads(result))
        raise BenchError(f"the client: {client.stderr.read().strip()[-300:]}")
    finally:
        end(client)


def make_ours(target: Target, trusted: Path, env: Mapping[str, str] = {}) -> Debugger:
    """`cutthrough inspect` with files of its own, which is not started."""
    running = Running([], target, port=free_port())
    running.admin_port = free_port()
    directory = running.make_directory()
    running.command = [
        "env", *(f"{name}={value}" for name, value in env.items()),
        sys.executable, "-m", "cutthrough", "inspect",
        f"--listen=127.0.0.1:{running.port}", f"--admin=127.0.0.1:{running.admin_port}",
        f"--directory={directory / 'state'}", f"--ca={directory / 'ca'}",
        f"--origin-ca={trusted}"]

    def word() -> str:
        password = (directory / "state/password").read_text().strip()
        return base64.b64encode(f"inspect:{password}".encode()).decode()

    return Debugger(OURS, running, "this tree", word, ("ca/ca.pem", "ca", "state"),
                    HERE.parent, True)


@contextlib.contextmanager
def debuggers(target: Target, trusted: Path, names: Sequence[str] = ()
              ) -> Iterator[list[Debugger]]:
    """Ours and those that are installed, or `names` of them; none of them runs."""
    with contextlib.ExitStack() as stack:
        compared = []
        if not names or OURS in names:
            compared.append(make_ours(target, trusted))
            stack.callback(compared[0].running.close)
        for name, peer in OF_INSPECTION.items():
            if names and name not in names:
                continue
            if peer.missing():
                print(f"{name}: {peer.missing()}")
                continue
            running = peer.start(target, {"origin.pem": trusted.read_bytes()})
            stack.callback(running.close)
            running.stop()
            assert running.directory is not None
            compared.append(Debugger(
                name, running, peer.read_version(), lambda: tls.WORD,
                FIRST_FILES.get(name, FIRST_FILES["mitmproxy"]), running.directory,
                name == "mitmweb"))
        yield compared
