"""The servers that are compared: nginx, and ours with both kinds of records.

One nginx has a port for each key, another that returns what it receives, and is the
origin of interception. Of ours there are two processes, one for each value of
`tls_records`: a listener for each key, and one for CONNECT, whose tunnels are opened.
All have the same suites, groups and versions of TLS, and the same two certificates; an
intercepted client gets one of our authority's, always with an ECDSA key.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.children import HERE, end, spawn
from bench.curlsuite.servers import free_port, wait_for

# Of a listener: our choice, and behind it what many scripts are written for. Level 0 is
# for ClientHellos without signature_algorithms, which stand for SHA-1. No DHE: we have
# no option for its parameters.
WIDE = ("ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES256+SHA384:ECDHE+AES128+SHA256:"
        "ECDHE+AES:kRSA+AESGCM:kRSA+AES:@SECLEVEL=0")
# Of an intercepted client: our choice, as in net/tls/context.pyx
STRONG = "ECDHE+AESGCM:ECDHE+CHACHA20"
NGINX = """\
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/nginx.log info;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_prefer_server_ciphers on;
    ssl_conf_command Options PrioritizeChaCha;
    ssl_ecdh_curve X25519:prime256v1:secp384r1;
    ssl_session_timeout 2h;
    large_client_header_buffers 4 64k;
{servers}
}}
"""
HTTP = """\
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_ciphers {ciphers};
        ssl_certificate {dir}/{key}.pem;
        ssl_certificate_key {dir}/{key}.key;
        location / {{ return 200 "ok\\n"; }}
    }}
"""
OURS = """\
user = "nobody"
password = "unused-by-all-listeners"
workers = 1
access_log = "{dir}/{records}.log"
access_log_format = "json"
tls_records = "{records}"
address_floor = "off"
connect_ports = "any"
policy = "{dir}/policy.toml"
intercept_ca = "{dir}/ca"
intercept_http2 = "off"
origin_ca = "{dir}/ecdsa.pem"
"""
LISTENER = """\
[[listeners]]
address = "127.0.0.1:{port}"
auth = "none"
"""
OVER_TLS = """\
certificates = ["{dir}/{key}.pem"]
certificate_keys = ["{dir}/{key}.key"]
ciphers = "{ciphers}"
"""
POLICY = """\
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
protocol = ["tls"]
tls = "intercept"

[[rules]]
action = "allow"
methods = ["GET"]
"""
# Name, kind of key, suites
NGINX_SERVERS = (("rsa", "rsa", WIDE), ("ecdsa", "ecdsa", WIDE),
                 ("ecdsa, our suites", "ecdsa", STRONG))
KEYS = {"rsa": ["rsa:2048"],
        "ecdsa": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]}


@dataclass(frozen=True)
class Server:
    name: str
    like: str               # name of nginx with the same key and suites
    key: str                # rsa, ecdsa
    port: int               # that a script connects to
    tunnel: int | None = None   # a proxy that it goes through

    @property
    def is_nginx(self) -> bool:
        return self.name == self.like


def make_files(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for key, kind in KEYS.items():
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "3",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", directory / f"{key}.key", "-out", directory / f"{key}.pem"],
            check=True, capture_output=True)
        (directory / f"{key}.key").chmod(0o600)
    subprocess.run([sys.executable, "-m", "cutthrough", "ca", "init", "--dir",
                    directory / "ca"], cwd=HERE.parent, check=True, capture_output=True)
    (directory / "policy.toml").write_text(POLICY)


@contextlib.contextmanager
def running(directory: Path) -> Iterator[list[Server]]:
    """Each server, until the context ends. Its files are in the directory."""
    make_files(directory)
    with contextlib.ExitStack() as stack:
        theirs = [Server(f"nginx, {name}", f"nginx, {name}", key, free_port())
                  for name, key, _ in NGINX_SERVERS]
        strong = theirs[-1]
        servers = list(theirs)
        (directory / "nginx.conf").write_text(NGINX.format(
            dir=directory, servers="".join(
                HTTP.format(dir=directory, key=one.key, port=one.port, ciphers=suites)
                for one, (_, _, suites) in zip(theirs, NGINX_SERVERS, strict=True))))
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
        if program is None:
            raise SystemExit("peers-tls: nginx is missing: scripts/bootstrap.sh test")
        start(stack, directory, "nginx", strong.port,
              [program, "-p", str(directory), "-c", str(directory / "nginx.conf")])
        for records in ("own", "libssl"):
            ports = {key: free_port() for key in KEYS}
            plain = free_port()
            text = OURS.format(dir=directory, records=records)
            text += LISTENER.format(port=plain)
            for key, port in ports.items():
                text += LISTENER.format(port=port) + OVER_TLS.format(
                    dir=directory, key=key, ciphers=WIDE)
                servers.append(Server(f"listener, {key}, {records}", f"nginx, {key}",
                                      key, port))
            servers.append(Server(f"interception, {records}", strong.name, "ecdsa",
                                  strong.port, plain))
            config = directory / f"{records}.toml"
            config.write_text(text)
            start(stack, directory, records, plain,
                  [sys.executable, "-m", "cutthrough", "serve", "-c", str(config)])
        yield servers


def start(stack: contextlib.ExitStack, directory: Path, name: str, port: int,
          command: list[str]) -> None:
    said = stack.enter_context(open(directory / f"{name}.said", "w"))
    process = spawn(command, stdout=said, stderr=said, cwd=HERE.parent)
    stack.callback(end, process)
    wait_for(port, process)
