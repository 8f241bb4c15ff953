"""The proxies that are compared, on a port of loopback.

Neither keeps connections to origins: runtests.pl's server holds a lock as long as it
has one, and waiting for that takes five seconds a case. A curl that has left in the
middle of a response is noticed by a byte that is sent to it, or by the deadline, so
theirs is short. Both ask for credentials.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What curl's pytest suite calls its servers
HOSTS = [f"{name}.http.curl.se"
         for name in ("one", "two", "brotli.one", "ftp", "expired")]
SQUID = """\
http_port 127.0.0.1:{port}
pid_filename none
cache deny all
access_log none
cache_log {dir}/cache.log
cache_store_log none
coredump_dir {dir}
hosts_file {dir}/hosts
shutdown_lifetime 0 seconds
pinger_enable off
server_persistent_connections off
read_timeout 10 seconds
auth_param basic program {helper} {dir}/users
auth_param basic children 1
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
cache_effective_user proxy
"""
HELPER = Path("/usr/lib/squid/basic_ncsa_auth")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


def cutthrough(directory: Path, port: int) -> list[str]:
    command = [sys.executable, "-m", "cutthrough", "serve", "--workers", "1",
               "--listen", f"127.0.0.1:{port}",
               "--user", "proxy", "--password", "proxy",
               "--upstream-idle-per-origin", "0", "--idle-timeout", "10s",
               "--connect-ports", "any",
               "--access-log", str(directory / "access.log"),
               "--access-log-format", "json"]
    for host in HOSTS:
        command += ["--dns-overrides", f"{host}=127.0.0.1"]
    return command


def squid(directory: Path, port: int) -> list[str]:
    program = shutil.which("squid", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None:
        raise SystemExit("peers-curl: squid is missing: scripts/bootstrap.sh curl")
    hosts = Path("/etc/hosts").read_text()
    (directory / "hosts").write_text(hosts + f"127.0.0.1 {' '.join(HOSTS)}\n")
    crypted = subprocess.run(["openssl", "passwd", "-apr1", "proxy"],
                             capture_output=True, text=True, check=True)
    (directory / "users").write_text(f"proxy:{crypted.stdout}")
    (directory / "squid.conf").write_text(
        SQUID.format(port=port, dir=directory, helper=HELPER))
    for path in (directory, *directory.iterdir()):
        shutil.chown(path, "proxy", "proxy")
    return [program, "-N", "-f", str(directory / "squid.conf")]


COMMANDS = {"cutthrough": cutthrough, "squid": squid}


@contextlib.contextmanager
def running(name: str, directory: Path) -> Iterator[int]:
    """This proxy, until the context ends: its port."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = free_port()
    with open(directory / "said", "wb") as said:
        process = subprocess.Popen(
            COMMANDS[name](directory, port), cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=said, stderr=said)
    try:
        wait_for(port, process)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"peers-curl: {process.args!r} does not serve")
        time.sleep(0.02)  # between looks at the port: nothing tells when it is open
