"""A private nginx: plain and TLS, files, a store for PUT, a git repository."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import trustme

from tests.support.wait import wait_until

PROGRAM = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")

#: Name -> payload. Incompressible and all different, so that a mix-up is detected.
PAYLOADS = {
    "1k": 1 << 10,
    "16k": 16 << 10,
    "128k": 128 << 10,
    "1m": 1 << 20,
    "100m": 100 << 20,
}

CONFIG = """
{user}
daemon off;
worker_processes 1;
pid {base}/pid;
error_log {base}/error.log;
events {{ worker_connections 512; }}
http {{
    log_format plain '$status $request_method $request_uri $http_host';
    access_log {base}/access.log plain;
    client_body_temp_path {base}/body;
    proxy_temp_path {base}/tmp;
    fastcgi_temp_path {base}/tmp;
    uwsgi_temp_path {base}/tmp;
    scgi_temp_path {base}/tmp;
    client_max_body_size 0;
    sendfile on;
    tcp_nodelay on;
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{plain};
        listen 127.0.0.1:{tls} ssl;
        server_name localhost;
        ssl_certificate {base}/cert.pem;
        ssl_certificate_key {base}/key.pem;
        {tls_options}
        root {base}/root;
        location /store/ {{
            dav_methods PUT DELETE;
            create_full_put_path on;
        }}
        location = /empty {{ return 204; }}
        location = /echo-host {{ return 200 "$http_host"; }}
    }}
}}
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Nginx:
    """Starts when constructed, in its own directory; `close` stops it."""

    def __init__(self, base: Path, tls_options: str = "", *, http2: bool = False
                 ) -> None:
        assert PROGRAM, "nginx is not installed"
        self.base = base
        self.root = base / "root"
        self.ca = base / "ca.pem"
        self.port, self.tls_port = free_port(), free_port()
        self._make_certificates()
        self._make_files()
        config = base / "nginx.conf"
        # If root starts it, nginx would change to a user that may not read these files.
        user = "user root root;" if os.geteuid() == 0 else ""
        ports = {"plain": self.port, "tls": self.tls_port}
        text = CONFIG.format(base=base, user=user, tls_options=tls_options, **ports)
        config.write_text(text.replace(" ssl;", " ssl http2;") if http2 else text)
        command = [
            PROGRAM,
            "-p",
            str(base),
            "-c",
            str(config),
            "-e",
            str(base / "error.log"),
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers, lambda: f"nginx: {(base / 'error.log').read_text()}")

    def _make_certificates(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        cert = authority.issue_cert("localhost", "127.0.0.1", "::1")
        cert.private_key_pem.write_to_path(str(self.base / "key.pem"))
        for number, pem in enumerate(cert.cert_chain_pems):
            pem.write_to_path(str(self.base / "cert.pem"), append=number > 0)

    def _make_files(self) -> None:
        self.root.mkdir()
        store = self.root / "store"
        store.mkdir()
        (self.root / "index.html").write_text("<!doctype html><title>origin</title>\n")
        for name, size in PAYLOADS.items():
            block = os.urandom(min(size, 1 << 20))
            with open(self.root / name, "wb") as file:
                for _ in range(size // len(block)):
                    file.write(block)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.base / "error.log").read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.authority}{path}"

    def tls_url(self, path: str = "/") -> str:
        return f"https://localhost:{self.tls_port}{path}"

    def payload(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def stored(self, name: str) -> bytes:
        return (self.root / "store" / name).read_bytes()

    def hits(self, path: str) -> list[re.Match[str]]:
        """Returns the access-log lines of one path: status, method, Host."""
        pattern = rf"^(?P<status>\d+) (?P<method>\S+) {re.escape(path)} (?P<host>.*)$"
        return list(re.finditer(pattern, (self.base / "access.log").read_text(), re.M))

    def make_repository(self) -> bytes:
        """Makes a bare /repo.git for git's dumb protocol; returns its file."""
        work, bare = self.base / "work", self.root / "repo.git"
        content = os.urandom(256 << 10)
        work.mkdir()
        (work / "file").write_bytes(content)
        env = {**os.environ, "HOME": str(self.base), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        for command in (
            ["git", "init", "-q", str(work)],
            ["git", "-C", str(work), "add", "file"],
            ["git", "-C", str(work), *identity, "commit", "-q", "-m", "one"],
            ["git", "clone", "-q", "--bare", str(work), str(bare)],
            ["git", "-C", str(bare), "update-server-info"],
        ):
            subprocess.run(command, check=True, env=env, timeout=30)
        return content

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
