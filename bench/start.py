"""From the start to the first answered request: `python -m bench start`.

Each start is of a fresh process with one worker. A client connects again and again
until it is accepted, and sends one request through the proxy. Wall time ends with the
last byte of the answer; CPU time is that of all processes until then. nginx, which
forwards to the same origin, takes turns with it.

Prints a line for each start and one with the medians; `--name NAME` keeps them in
bench/results.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import socket
import statistics
import sys
import time

from bench.children import BenchError, Site, free_port
from bench.collect import cpu_times
from bench.origin import Origin
from bench.proxies import TREE
from bench.result import write_rows
from bench.rows import Row, format_row
from bench.running import PASSWORD, USER, Running, Target

#: The longest that a start may take, in seconds
MOST = 30.0
NGINX = """\
daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/errors;
events {{ }}
http {{
  access_log off; client_body_temp_path {directory}; proxy_temp_path {directory};
  fastcgi_temp_path {directory}; uwsgi_temp_path {directory};
  scgi_temp_path {directory};
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{origin}; }} }}
}}
"""


def prepare(server: str, origin: Origin) -> Running:
    running = Running([], Target(Site(), origin.authority), port=free_port())
    directory = running.make_directory()
    if server == "nginx":
        config = directory / "nginx.conf"
        config.write_text(NGINX.format(
            directory=directory, port=running.port, origin=origin.authority))
        running.command = ["nginx", "-c", str(config)]
    else:
        running.command = [
            sys.executable, "-m", "cutthrough", "serve", "--workers", "1",
            "--listen", f"127.0.0.1:{running.port}", "--user", USER,
            "--password", PASSWORD, "--origin", f"http://{origin.authority}",
            "--access-log", "off"]
    return running


def ask(running: Running) -> None:
    """Send one request as soon as somebody listens. Raises BenchError if it is not
    answered with 200."""
    user = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request = (f"GET /index.html HTTP/1.1\r\nHost: {running.ip}\r\n"
               f"Connection: close\r\nProxy-Authorization: Basic {user}\r\n\r\n")
    deadline = time.monotonic() + MOST
    while True:
        try:
            client = socket.create_connection((running.ip, running.port), MOST)
            break
        except ConnectionRefusedError:
            assert running.process is not None
            if time.monotonic() > deadline or running.process.poll() is not None:
                raise BenchError(f"did not start: {running.said()}") from None
            time.sleep(0.0005)  # between attempts
    with client:
        client.sendall(request.encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise BenchError(f"answered {answer[:200]!r}")


def measure(server: str, origin: Origin) -> Row:
    running = prepare(server, origin)
    with contextlib.closing(running):
        began = time.monotonic()
        running.start(cwd=TREE)
        ask(running)
        wall = time.monotonic() - began
        spent = cpu_times(running.tree()).total
    return {"server": server, "wall_ms": wall * 1e3, "cpu_ms": spent * 1e3}


def run_start(options: argparse.Namespace) -> int:
    rows: list[Row] = []
    with Origin() as origin:
        for _ in range(options.starts):
            for server in ("cutthrough", "nginx"):
                rows.append(measure(server, origin))
                print(format_row("perf_start", rows[-1]), flush=True)
    for server in ("cutthrough", "nginx"):
        rows.append({"server": server, "starts": options.starts, **{
            f"median_{key}": statistics.median(
                float(str(row[key])) for row in rows
                if row["server"] == server and key in row)
            for key in ("wall_ms", "cpu_ms")}})
        print(format_row("perf_start", rows[-1]), flush=True)
    if options.name:
        write_rows(options.name, rows)
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--starts", type=int, default=11,
                        help="starts of each server [11]")
    parser.add_argument("--name", default="", help="name of the stored result")
