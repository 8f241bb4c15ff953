"""Proxies of others, as parents: each a process group of its own on a free port."""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.certificates import authority, localhost
from tests.support.folders import SharedFolder
from tests.support.nginx import free_port
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

USER, PASSWORD = "parent", "door"
PATH = os.environ.get("PATH", "") + ":/usr/sbin"

TINYPROXY = """
Listen 127.0.0.1
Port {port}
Timeout 600
LogFile "{base}/log"
LogLevel Critical
MaxClients 100
"""
SQUID = """
http_port 127.0.0.1:{port}
pid_filename none
cache deny all
cache_mem 0 MB
access_log none
cache_log {base}/log
cache_store_log none
coredump_dir {base}
shutdown_lifetime 0 seconds
pinger_enable off
cache_effective_user proxy
"""
SQUID_USERS = """
auth_param basic program /usr/lib/squid/basic_ncsa_auth {base}/users
auth_param basic children 1
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
"""
STUNNEL = """
foreground = yes
pid =
output = {base}/log
[in]
accept = 127.0.0.1:{port}
connect = 127.0.0.1:{inner}
cert = {made.certificate}
key = {made.key}
"""
DANTE = """
logoutput: {base}/log
internal: 127.0.0.1 port = {port}
external: 127.0.0.1
socksmethod: none
clientmethod: none
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
"""


class Kind(NamedTuple):
    program: str
    scheme: str
    # Writes its files below `base`, and returns its words: (base, port, with users)
    build: Callable[[Path, int, bool], list[str]]
    has_users: bool = True
    # The command that runs, if it is not the program
    words: tuple[str, ...] = ()

    @property
    def is_http(self) -> bool:
        return self.scheme.startswith("http")

    @property
    def table(self) -> str:
        """More of its table in the configuration."""
        return f'ca = "{authority().own.certificate}"\n' * (self.scheme == "https")

    @property
    def path(self) -> str | None:
        return shutil.which(self.program, path=PATH)


def build_tinyproxy(base: Path, port: int, with_users: bool) -> list[str]:
    users = f"BasicAuth {USER} {PASSWORD}\n" if with_users else ""
    (base / "conf").write_text(TINYPROXY.format(base=base, port=port) + users)
    return ["-d", "-c", str(base / "conf")]


def build_microsocks(base: Path, port: int, with_users: bool) -> list[str]:
    return ["-i", "127.0.0.1", "-p", str(port),
            *(("-u", USER, "-P", PASSWORD) if with_users else ())]


def build_ours(base: Path, port: int, with_users: bool) -> list[str]:
    (base / "conf").write_text(
        f'workers = 1\n[[listeners]]\naddress = "127.0.0.1:{port}"\n'
        + ("" if with_users else 'auth = "none"\n'))
    users = ("--user", USER, "--password", PASSWORD)
    return ["-m", "cutthrough", "serve", "-c", str(base / "conf"),
            *(users if with_users else ())]


def build_ours_with_tls(base: Path, port: int, with_users: bool) -> list[str]:
    words, made = build_ours(base, port, with_users), localhost()
    with open(base / "conf", "a") as file:
        file.write(f'certificates = ["{made.certificate}"]\n'
                   f'certificate_keys = ["{made.key}"]\n')
    return words


def build_stunnel(base: Path, port: int, with_users: bool) -> list[str]:
    """The words of a shell, which runs stunnel in front of tinyproxy."""
    inner = free_port()
    words = build_tinyproxy(base, inner, with_users)
    (base / "stunnel").write_text(
        STUNNEL.format(base=base, port=port, inner=inner, made=localhost()))
    return ["-c", f"tinyproxy {shlex.join(words)} & until nc -z 127.0.0.1 {inner}; do "
            f"sleep 0.05; done; exec stunnel4 {base}/stunnel"]


def build_squid(base: Path, port: int, with_users: bool) -> list[str]:
    # Verified by crypt(3): APR1 of PASSWORD
    hashed = subprocess.run(["openssl", "passwd", "-apr1", PASSWORD], check=True,
                            capture_output=True, text=True).stdout
    (base / "users").write_text(f"{USER}:{hashed}")
    (base / "conf").write_text((SQUID + (
        SQUID_USERS if with_users else "http_access allow all\n")).format(
            base=base, port=port))
    return ["-N", "-f", str(base / "conf")]


def build_dante(base: Path, port: int, with_users: bool) -> list[str]:
    (base / "conf").write_text(DANTE.format(base=base, port=port))
    return ["-f", str(base / "conf"), "-N", "1"]


KINDS = {
    "tinyproxy": Kind("tinyproxy", "http", build_tinyproxy),
    "microsocks": Kind("microsocks", "socks5", build_microsocks),
    "ours": Kind(sys.executable, "http", build_ours),
    "ours-tls": Kind(sys.executable, "https", build_ours_with_tls),
    "squid": Kind("squid", "http", build_squid),
    "dante": Kind("danted", "socks5", build_dante, has_users=False),
    "stunnel": Kind("stunnel4", "https", build_stunnel, words=("/bin/sh",))}


class Parent:
    """Runs once it is made; `close` ends it, and removes its files."""

    def __init__(self, kind: Kind, with_users: bool) -> None:
        assert kind.path, f"{kind.program} is not installed"
        # squid drops its privileges, and then reads and writes here
        self._folder = SharedFolder("cutthrough-parent-")
        self.base = self._folder.path
        self.base.chmod(0o777)
        self.port = free_port()
        self.url = f"{kind.scheme}://127.0.0.1:{self.port}"
        self.command = [*(kind.words or (kind.path,)),
                        *kind.build(self.base, self.port, with_users)]
        self.start()

    def start(self) -> None:
        with open(self.base / "output", "wb") as output:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=ROOT, env=clean_environment(), start_new_session=True)
        wait_until(self._answers, lambda: (self.base / "output").read_text(), 60)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.base / "output").read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def signal(self, number: int) -> None:
        """To all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(60)

    def close(self) -> None:
        self.kill()
        self._folder.close()
