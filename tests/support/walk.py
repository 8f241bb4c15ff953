"""Follows a page of docs/ as a reader does: in an empty directory, from top to bottom.

    python -m tests.support.walk PAGE DIRECTORY [TREE]

A block of TOML, Python or shell whose first line is a comment with a file's name
becomes that file. Any other block of Python runs as a program, and any other one of
shell is not run. Each indented line is a command. A program that serves runs until the
next heading of level 2. What curl gets must be 2xx, or the status in the comment behind
the command; `exit 1`, or `exit 0 or 1`, there is the command's exit status. A page with
`./bench.sh` is followed in a tree.

Runs in namespaces of its own (`unshare`): the names in NAMES lead to origins here,
which answer with the request as JSON, and no packet leaves this host.
"""

import contextlib
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.network import raise_loopback
from tests.support.proxy import ROOT, clean_environment

NAMES = ("api.example.com", "www.example.com", "api.openai.com", "api.anthropic.com",
         "backend-a.example", "backend-b.example", "example.com", "example.org")
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid",
           "--fork", "--kill-child", "--mount-proc"]
MS_BIND = 0x1000
PATIENCE = 60
# Half a minute on two quiet cores, of which the load generators wait for none
MEASURES, PATIENCE_MEASURED = re.compile(r"bench\.sh|-m bench run"), 240
PARTS = re.compile(
    r"^```(\w*)\n(.*?)^```$|^## [^\n]*$|((?:^ {4}[^\n]+\n)+)", re.M | re.S)
FILE = re.compile(r"# ([\w.-]+\.(?:toml|py|sh))\n")
SERVES = re.compile(
    r"cutthrough (serve|inspect)\b(?!.* (?:--|--env)(?:[ )]|$))|import proxy")
STATUS = re.compile(r"^(\d{3}) (\d{3})$", re.M)
EXIT = re.compile(r"exit (\d+)(?: or (\d+))?\b")
# The origins are on this host, which a policy's floor refuses
FLOOR = {"CUTTHROUGH_ADDRESS_FLOOR": "off"}
CURLRC = r"""
silent
show-error
max-time = 20
write-out = "%{stderr}\n%{http_connect} %{http_code}\n"
"""


class Echo(BaseHTTPRequestHandler):
    """Answers with the request, as JSON."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        text = json.dumps({
            "method": self.command, "path": self.path, "body": body.decode(),
            "fields": {name: ", ".join(self.headers.get_all(name, []))
                       for name in self.headers}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Server", "origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yields what a reader does: ("toml", TEXT), ("python", TEXT), ("sh", TEXT),
    ("command", LINE) or ("section", HEADING)."""
    for part in PARTS.finditer(text):
        if part[2] is not None:
            if part[1] in ("toml", "python") or (
                    part[1] == "sh" and FILE.match(part[2])):
                yield part[1], part[2]
        elif part[3]:
            for line in re.sub(r"\\\n *", "", part[3]).splitlines():
                yield "command", line.strip()
        else:
            yield "section", part[0]


class Walk:
    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory, self.environment = directory, environment
        self.serving: list[subprocess.Popen[str]] = []

    def step(self, kind: str, text: str) -> None:
        name = FILE.match(text) if kind != "command" else None
        if kind == "section":
            self.stop()
        elif name:
            file = self.directory / name[1]
            file.write_text(text)
            file.chmod(0o600)
        elif kind == "python":
            self.run([sys.executable, "-c", text], "0")
        elif kind == "command" and SERVES.search(text):
            self.serve(text)
        elif kind == "command":
            command, _, expected = text.partition("  # ")
            self.run(["bash", "-euo", "pipefail", "-c", command], expected or "0")
        else:
            raise AssertionError(f"a block without a file's name:\n{text}")

    def run(self, words: list[str], expected: str) -> None:
        floor = FLOOR if words[-1].startswith("cutthrough explain") else {}
        done = subprocess.run(
            words, cwd=self.directory, env=self.environment | floor,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_MEASURED if MEASURES.search(words[-1]) else PATIENCE)
        output = f"{words[-1]}\n{done.stdout}\n{done.stderr}"
        if ended := EXIT.match(expected):
            assert str(done.returncode) in ended.groups(), output
            return
        statuses = STATUS.findall(done.stderr)
        wanted = re.match(r"(\d{3})\b", expected)
        if statuses and wanted:
            assert wanted[1] in statuses[-1], output
            return
        assert done.returncode == 0, output
        assert all(status[1][0] == "2" for status in statuses), output

    def serve(self, command: str) -> None:
        """Waits until the program says where it listens.

        A policy lets `serve` reach the origins, though they are on this host; `inspect`
        refuses the variable, and needs none.
        """
        floor = FLOOR if " serve" in command else {}
        program = subprocess.Popen(
            ["bash", "-euc", f"exec {command}"] if "=" not in command.split()[0] else
            ["bash", "-euc", f"exec env {command}"], cwd=self.directory,
            env=self.environment | floor, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.serving.append(program)
        output = []
        for line in program.stdout:
            output.append(line)
            if "listening on" in line:
                threading.Thread(target=program.stdout.read, daemon=True).start()
                return
        raise AssertionError(f"{command}\n{''.join(output)}")

    def stop(self) -> None:
        for program in self.serving:
            program.send_signal(signal.SIGINT)
            status = program.wait(PATIENCE)
            assert status == 0, f"{program.args}: {status}"
        self.serving.clear()


def link_tree(place: Path, tree: Path) -> None:
    """Makes a tree of links, in which results are written beside those of the tree."""
    for path in tree.iterdir():
        if path.name != "bench":
            (place / path.name).symlink_to(path)
    shutil.copytree(tree / "bench", place / "bench", copy_function=os.symlink,
                    ignore=shutil.ignore_patterns("results", "__pycache__"))
    (place / "bench" / "results").mkdir()


def mount_hosts(directory: Path) -> None:
    hosts = directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(NAMES)}\n::1 localhost\n")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(hosts), b"/etc/hosts", None, MS_BIND, None):
        raise OSError(ctypes.get_errno(), "mount")


def start_origins(directory: Path) -> Path:
    """Returns the file of the authority that has signed for the names."""
    authority = Authority(folder=directory)
    leaf = authority.sign(*(f"DNS:{name}" for name in NAMES))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf.certificate, leaf.key)
    for port, tls in (80, False), (9000, False), (443, True):
        server = ThreadingHTTPServer(("127.0.0.1", port), Echo)
        if tls:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return authority.own.certificate


def follow(page: Path, directory: Path, module: str = "walk") -> None:
    """Follows the page in namespaces, for a test; skips it if there are none here.
    `module` says how: this one, or how_to."""
    if not shutil.which("unshare") or subprocess.run(
            [*UNSHARE, "true"], capture_output=True, check=False).returncode:
        # A container may forbid them, and a page may not reach the real network
        pytest.skip("unshare: no namespaces here")
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-m", f"tests.support.{module}", page, directory],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def plugins(tree: Path) -> dict[str, str]:
    """The variable that names the plugin to pytest. Of an installed package it is an
    entry point, and so it is once a wheel has been built in the tree: pytest refuses
    the second name of a plugin."""
    if (tree / "cutthrough.egg-info").exists():
        return {}
    return {"PYTEST_PLUGINS": "cutthrough.pytest_plugin"}


def main(page: str, directory: Path, tree: Path = ROOT) -> None:
    raise_loopback()
    home = directory / "home"
    place = directory / "place"
    for folder in home, place, directory / "authority":
        folder.mkdir()
    mount_hosts(directory)
    (home / ".curlrc").write_text(CURLRC)
    authority = start_origins(directory / "authority")
    walk = Walk(place, {
        "PATH": f"{tree / '.venv' / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8",
        "PYTHONPATH": str(tree), "HOME": str(home), "TMPDIR": str(directory),
        "SSL_CERT_FILE": str(authority)} | plugins(tree))
    written = Path(page).read_text()
    if "./bench.sh" in written:
        link_tree(place, tree)
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(walk.stop)
        for kind, text in steps(written):
            began = time.monotonic()
            walk.step(kind, text)
            print(f"{time.monotonic() - began:.2f} s {kind} {shlex.quote(text)}",
                  flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
