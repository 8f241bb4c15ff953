#!/usr/bin/env python3
"""Boots systemd in a container and looks at deploy/systemd/ there.

    deploy/check_image.py --work DIRECTORY --keep && deploy/check_unit.py DIRECTORY/last

The root is the image's, to which systemd is added. Under the unit's whole confinement
it shows: the first caller starts the program (socket activation), READY is told, a bad
file fails a reload; a reload, upgrades that feed the watchdog, and restarts, all under
load without a request that fails. A system call outside the filter kills the process
here, where the unit only refuses it, so that none goes unseen.

Needs root, systemd-nspawn and what check_image.py needs. The network is the host's.
"""

import base64
import contextlib
import http.server
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from check_image import TREE, Root, children_of, require

WATCHDOG_S = 4
PASSWORD = "of-the-unit-check"
PATIENCE_S = 120


def prepare(root: Root, port: int) -> None:
    root.run("apt-get update && apt-get install -y --no-install-recommends "
             "systemd systemd-sysv dbus libseccomp2 procps")
    etc = root.path / "etc"
    (etc / "cutthrough").mkdir(exist_ok=True)
    (etc / "cutthrough/password").write_text(PASSWORD)
    (etc / "cutthrough/password").chmod(0o600)
    (etc / "cutthrough/cutthrough.toml").write_text(
        'user = "ann"\nworkers = 2\naccess_log = "/var/log/cutthrough/access.log"\n'
        'admin = "unix:/run/cutthrough/admin"\n')
    units = etc / "systemd/system"
    for path in (TREE / "deploy/systemd").iterdir():
        shutil.copy(path, units)
    address = f"ListenStream=127.0.0.1:{port}\n"
    write(units / "cutthrough.socket.d/check.conf",
          f"[Socket]\nListenStream=\n{address}{address}")
    write(units / "cutthrough.service.d/check.conf",
          f"[Service]\nWatchdogSec={WATCHDOG_S}\nSystemCallErrorNumber=kill\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


class Machine:
    """The booted container."""

    def __init__(self, root: Path, log: Path) -> None:
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                ["systemd-nspawn", "--register=no", "--keep-unit", "--boot",
                 "--console=pipe", "--directory", root],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        self.init = 0
        try:
            wait_for(self.is_up, "systemd")
        except BaseException:
            self.stop()
            raise

    def is_up(self) -> bool:
        """nspawn's first child is a helper that ends before systemd's start."""
        self.init = next(iter(children_of(self.process.pid)), 0)
        return self.init > 0 and self.run(
            "systemctl", "is-system-running", check=False).strip() in (
            "running", "degraded")

    def run(self, *argv: str, check: bool = True) -> str:
        return subprocess.run(
            ["nsenter", "--target", str(self.init), "--mount", "--uts", "--ipc",
             "--pid", "--cgroup", "--root", "--wd=/", *argv],
            capture_output=True, text=True, timeout=PATIENCE_S + 20, check=check).stdout

    def show(self, what: str) -> str:
        return self.run("systemctl", "show", "-P", what, "cutthrough.service").strip()

    def signal_main(self, name: str) -> None:
        self.run("systemctl", "kill", f"--signal={name}", "--kill-whom=main",
                 "cutthrough.service")

    def upgrade(self) -> None:
        before = self.show("MainPID")
        self.signal_main("SIGUSR2")
        wait_for(lambda: self.show("MainPID") not in (before, "0"), "an upgrade")

    def stop(self) -> None:
        self.run("systemctl", "--no-block", "poweroff", check=False)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def metrics(machine: Machine) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        inside = Path(f"/proc/{machine.init}", "root")
        sock.connect(str(inside / "run/cutthrough/admin"))
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        data = b""
        while more := sock.recv(65536):
            data += more
    return data.decode()


def wait_for(true, what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.05)


class Load:
    """Requests on new connections, by four threads; `answers` counts what came."""

    def __init__(self, port: int, origin: int, user: str = "ann",
                 password: str = PASSWORD) -> None:
        word = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.port, self.answers = port, Counter[str]()
        rest = (f"Host: x\r\nProxy-Authorization: Basic {word}\r\n"
                "Connection: close\r\n\r\n")
        self.request = f"GET http://127.0.0.1:{origin}/ HTTP/1.1\r\n{rest}".encode()
        self.connect = f"CONNECT 127.0.0.1:{origin} HTTP/1.1\r\n{rest}".encode()

    def ask(self) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 20) as sock:
                sock.sendall(self.request)
                data = b""
                while more := sock.recv(65536):
                    data += more
        except OSError as error:
            return repr(error)
        return data[9:12].decode() or "nothing"

    def tunnel(self) -> socket.socket:
        """A tunnel to the origin, through which nothing has gone."""
        sock = socket.create_connection(("127.0.0.1", self.port), 20)
        sock.sendall(self.connect)
        head = sock.recv(4096)
        assert head[9:12] == b"200" and head.endswith(b"\r\n\r\n"), head
        return sock

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        over = threading.Event()

        def go() -> None:
            while not over.wait(0.02):
                self.answers[self.ask()] += 1

        threads = [threading.Thread(target=go) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


class Origin(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def check(machine: Machine, load: Load) -> None:
    machine.run("systemctl", "start", "cutthrough.socket")
    assert machine.show("ActiveState") == "inactive", "nobody has called yet"
    assert load.ask() == "200"
    # A worker answers its first caller a moment before the program says that all do
    wait_for(lambda: machine.show("ActiveState") == "active", "READY=1")
    print("started by its first caller:", machine.show("StatusText"))
    inside = Path(f"/proc/{machine.init}", "root")
    status = inside / "proc" / machine.show("MainPID") / "status"
    facts = dict(re.findall(r"^(\w+):\t(\S+)", status.read_text(), re.MULTILINE))
    assert facts["Seccomp"] == "2" and int(facts["CapBnd"], 16) == 0, facts
    assert facts["NoNewPrivs"] == "1" and int(facts["Uid"]) > 60000, facts
    check_reload(machine, load, inside / "etc/cutthrough/cutthrough.toml")
    with load.running():
        machine.run("systemctl", "reload", "cutthrough.service")
        machine.upgrade()
        main = machine.show("MainPID")
        time.sleep(2 * WATCHDOG_S)           # the watchdog's own time
        assert machine.show("MainPID") == main, "the watchdog is fed by the new program"
        for _ in range(2):
            machine.run("systemctl", "restart", "cutthrough.service")
            machine.upgrade()
    print("reload, 3 upgrades, 2 restarts:", dict(load.answers))
    assert set(load.answers) == {"200"}
    resident = re.findall(r"resident_memory_bytes\S+ (\S+)", metrics(machine))
    print("resident MB of each process:", [int(float(n) / 1e6) for n in resident])
    assert len(resident) == 3, "/metrics sees the supervisor and both workers"
    machine.run("systemctl", "stop", "cutthrough.service")
    assert machine.show("Result") == "success", machine.show("Result")
    said = machine.run("journalctl", "-b", "--no-pager", "-u", "cutthrough.service")
    assert "generation 2: no changes" in said, said
    assert "SIGSYS" not in said and "died:" not in said, said
    print(machine.run("systemd-analyze", "security", "--offline=true", "--no-pager",
                      "/etc/systemd/system/cutthrough.service").splitlines()[-1])


def check_reload(machine: Machine, load: Load, file: Path) -> None:
    """A mistake in the file fails `systemctl reload`, and the service goes on."""
    good = file.read_text()
    file.write_text(good + 'head_timeut = "1s"\n')
    try:
        machine.run("systemctl", "reload", "cutthrough.service")
        raise AssertionError("a reload of a bad file did not fail")
    except subprocess.CalledProcessError as error:
        print("a bad file:", error.stderr.splitlines()[0])
    file.write_text(good)
    said = machine.run("journalctl", "-b", "--no-pager", "-u", "cutthrough.service")
    assert "head_timeut: no such option; did you mean head_timeout?" in said, said
    assert machine.show("ActiveState") == "active" and load.ask() == "200"


def main() -> int:
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} ROOT, which check_image.py --keep made")
    require("systemd-nspawn", "unshare")
    root = Root(Path(sys.argv[1]).resolve())
    if not (root.path / "opt/cutthrough").is_dir():
        raise SystemExit(f"{sys.argv[0]}: {root.path} is no root of check_image.py")
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    # Below the ephemeral ports, where a caller cannot meet itself.
    port = next(n for n in range(18900, 19900) if is_free(n))
    prepare(root, port)
    machine = Machine(root.path, root.path.with_suffix(".log"))
    try:
        check(machine, Load(port, origin.server_port))
    except BaseException:
        print(machine.run("journalctl", "-b", "--no-pager", "-u", "cutthrough*"))
        raise
    finally:
        machine.stop()
        origin.shutdown()
    return 0


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


if __name__ == "__main__":
    sys.exit(main())
