"""Runs h2spec, a client of HTTP/2 that breaks the rules, against our TLS listener.

    python -m bench.h2spec [--source ~/h2spec]

h2spec asks the proxy as a web server, so its requests go to the `origin`, which answers
each with 110 octets. Exit status 1: a case failed. Cases: docs/http2.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer

from bench.children import end, spawn
from bench.curlsuite.servers import ROOT, free_port, wait_for

WORK = ROOT / "build/h2spec"
MODULE = "github.com/summerwind/h2spec/cmd/h2spec"
CONFIG = """\
user = "nobody"
password = "unused"
workers = 1
address_floor = "off"
access_log = "{dir}/access.log"
access_log_format = "json"
origin = "http://127.0.0.1:{origin}"
[[listeners]]
address = "127.0.0.1:{port}"
auth = "none"
protocols = ["http", "http2"]
certificates = ["{dir}/proxy.pem"]
certificate_keys = ["{dir}/proxy.key"]
"""


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "110")
        self.send_header("Connection", "close")     # a body may stand before the next
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"hello world" * 10)

    do_POST = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


class Origin(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client has gone in the middle, as h2spec does: no news."""


def build(source: Path | None) -> Path:
    """The program, from a checkout, or as the proxy of Go modules has it."""
    if shutil.which("go") is None:
        raise SystemExit("h2spec: go is missing")
    program = WORK / "h2spec"
    if source is not None:
        subprocess.run(["go", "build", "-o", program, "./cmd/h2spec"], cwd=source,
                       check=True)
    elif not program.exists():
        subprocess.run(["go", "install", f"{MODULE}@latest"], check=True,
                       env={**os.environ, "GOBIN": str(WORK)})
    return program


def make_certificate() -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
         WORK / "proxy.key", "-out", WORK / "proxy.pem"],
        check=True, capture_output=True)
    (WORK / "proxy.key").chmod(0o600)


@contextlib.contextmanager
def serving(server: BaseServer):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="h2spec", description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path, metavar="DIR",
                        help="a checkout of h2spec [the newest module]")
    parser.add_argument("cases", nargs="*", help="as h2spec has them [all]")
    given = parser.parse_args()
    if given.source is not None and not (given.source / "cmd/h2spec").is_dir():
        parser.error(f"--source: {given.source} has no cmd/h2spec")
    WORK.mkdir(parents=True, exist_ok=True)
    program = build(given.source)
    make_certificate()
    with contextlib.ExitStack() as stack:
        origin = Origin(("127.0.0.1", 0), Answer)
        stack.enter_context(serving(origin))
        port = free_port()
        config = WORK / "proxy.toml"
        config.write_text(CONFIG.format(dir=WORK, port=port, origin=origin.server_port))
        said = stack.enter_context(open(WORK / "proxy.said", "w"))
        proxy = spawn([sys.executable, "-m", "cutthrough", "serve", "-c", str(config)],
                      stdout=said, stderr=said, cwd=ROOT)
        stack.callback(end, proxy)
        wait_for(port, proxy)
        done = subprocess.run(
            [program, "--strict", "--tls", "--insecure", "--host", "127.0.0.1",
             "--port", str(port), *given.cases],
            capture_output=True, text=True, check=False)
    (WORK / "said").write_text(done.stdout)
    _, failures, rest = done.stdout.partition("Failures:")
    print(failures + rest if failures else "", end="")
    counts = re.findall(r"^\d+ tests, .*$", done.stdout, re.MULTILINE)
    print(*counts or [done.stderr.strip()], sep="\n")
    return 0 if counts and ", 0 failed" in counts[-1] else 1


if __name__ == "__main__":
    sys.exit(main())
