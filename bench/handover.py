"""Handed over: do tunnels notice that their worker, or the whole program, is replaced?

Thousands of tunnels carry a byte pattern to an echo and back, and every received byte
is compared, while the workers are replaced repeatedly and the program is upgraded. The
workers measure each tunnel's pause, from its release by the old worker until the new
one has it. A peer sees the pause as the round trip of a message.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import multiprocessing
import os
import random
import re
import select
import signal
import socket
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from bench.children import BenchError, end, spawn
from bench.rows import format_row

USER, PASSWORD = "user", "password"
CREDENTIALS = "dXNlcjpwYXNzd29yZA=="
#: A prime, so that bytes at another offset are other bytes
PERIOD = 1_000_003
MOST = 262_144
PATTERN = random.Random(1).randbytes(PERIOD)
PATTERN += PATTERN[:MOST]
TOOK = re.compile(r"took (\d+) tunnels? over; longest pause ([\d.]+) ms, "
                  r"99\.9% of pauses up to ([\d.]+) ms")
HANDED = re.compile(r"handed (\d+) tunnels? over, kept (\d+)")
SUCCESSOR = re.compile(r"pid (\d+) serves; this program drains")
PATIENCE_SECONDS = 60.0


def echo(listener: socket.socket) -> None:
    """Echo every byte; ends with its parent."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's raises
    listener.setblocking(False)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    open_ones: dict[int, socket.socket] = {}
    waiting: dict[int, bytes] = {}
    while os.getppid() != 1:
        for fd, events in poll.poll(1):
            if fd == listener.fileno():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        sock, _ = listener.accept()
                        sock.setblocking(False)
                        open_ones[sock.fileno()] = sock
                        poll.register(sock, select.EPOLLIN)
                continue
            sock = open_ones[fd]
            data, sent = waiting.pop(fd, b""), 0
            try:
                data = data or sock.recv(65536)
                with contextlib.suppress(BlockingIOError):
                    sent = sock.send(data)
            except OSError:
                data = b""
            if not data:
                poll.unregister(fd)
                open_ones.pop(fd).close()
            elif sent < len(data):
                waiting[fd] = data[sent:]
                poll.modify(fd, select.EPOLLOUT)
            elif events & select.EPOLLOUT:
                poll.modify(fd, select.EPOLLIN)


class Tunnel:
    """One tunnel, and how far its pattern has come."""

    def __init__(self, number: int, port: int, authority: str) -> None:
        self.start = number * 7919
        self.sent = self.received = self.written = 0
        self.sent_at = 0.0
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.sendall(
            f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
            f"Proxy-Authorization: Basic {CREDENTIALS}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.sock.recv(1)
        if b" 200 " not in head:
            raise BenchError(f"no tunnel: {head!r}")
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)

    def piece(self, offset: int, n: int) -> bytes:
        at = (self.start + offset) % PERIOD
        return PATTERN[at:at + n]

    def write(self) -> bool:
        """Send the pending bytes; return whether all were sent."""
        while self.written < self.sent:
            try:
                self.written += self.sock.send(
                    self.piece(self.written, self.sent - self.written))
            except BlockingIOError:
                return False
        return True

    def read(self) -> bool:
        """Compare received bytes; return whether all are back. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while self.received < self.sent:
                data = self.sock.recv(MOST)
                if not data:
                    raise ConnectionAbortedError("it ended")
                if data != self.piece(self.received, len(data)):
                    raise ConnectionAbortedError(f"other bytes at {self.received}")
                self.received += len(data)
        return self.received == self.sent


def run_tunnels(count: int, port: int, authority: str, interval: float,
                orders: Connection) -> None:
    """Exchange messages on all tunnels until told to end; send back the results."""
    rng = random.Random(2)
    tunnels = [Tunnel(number, port, authority) for number in range(count)]
    orders.send("ready")
    poll = select.epoll()
    by_fd = {tunnel.sock.fileno(): tunnel for tunnel in tunnels}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    due = [(time.monotonic() + rng.random() * interval, fd) for fd in by_fd]
    heapq.heapify(due)
    lost: list[str] = []
    began, took = array("d"), array("d")
    stopping = False
    busy = 0
    while not (stopping and busy == 0):
        stopping = stopping or orders.poll()
        now = time.monotonic()
        while due and due[0][0] <= now and not stopping:
            _, fd = heapq.heappop(due)
            tunnel = by_fd[fd]
            # One in fifty is bulk, which is spliced and fills pipes
            large = rng.random() < 0.02
            tunnel.sent += rng.randint(65536, MOST) if large else rng.randint(1, 4096)
            tunnel.sent_at = now
            busy += 1
            with contextlib.suppress(OSError):       # reading will tell
                if not tunnel.write():
                    poll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
        wait = max(0.0, min(0.05, due[0][0] - now)) if due else 0.05
        for fd, events in poll.poll(wait):
            tunnel = by_fd[fd]
            try:
                if events & select.EPOLLOUT and tunnel.write():
                    poll.modify(fd, select.EPOLLIN)
                if not events & ~select.EPOLLOUT:
                    continue
                was_busy = tunnel.received < tunnel.sent
                if tunnel.read() and was_busy:
                    now = time.monotonic()
                    began.append(tunnel.sent_at)
                    took.append(now - tunnel.sent_at)
                    busy -= 1
                    heapq.heappush(due, (now + interval * (0.5 + rng.random()), fd))
                elif not was_busy:                   # nothing may come now: an end?
                    raise ConnectionAbortedError("it ended, or sent too much")
            except OSError as error:
                lost.append(f"{error}")
                busy -= tunnel.received < tunnel.sent
                poll.unregister(fd)
                due = [entry for entry in due if entry[1] != fd]
                heapq.heapify(due)
    for tunnel in tunnels:
        tunnel.sock.close()
    orders.send((lost, began.tobytes(), took.tobytes(),
                 sorted(tunnel.sent for tunnel in tunnels)))


def wait_until(probe: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not probe():
        if time.monotonic() > deadline:
            raise BenchError(f"after {PATIENCE_SECONDS:g} s still not: {what}")
        time.sleep(0.01)  # between looks


class Program:
    """The proxy, through all of its replacements."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.directory = directory
        self.workers = workers
        self.number = 0
        self.log = directory / "access.log"
        self._write()
        with open(directory / "stderr", "wb") as err:
            self.first = spawn([sys.executable, "-m", "cutthrough", "serve", "-c",
                                str(directory / "cutthrough.toml")], stderr=err)
        wait_until(lambda: "listening on" in self.said(), "a banner")
        self.port = int(re.findall(r":(\d+),", self.said())[0])
        self.pid = self.first.pid

    def _write(self) -> None:
        self.number += 1
        (self.directory / "cutthrough.toml").write_text(
            f'listen = ["127.0.0.1:0"]\nworkers = {self.workers}\nuser = "{USER}"\n'
            f'password = "{PASSWORD}"\naccess_log = "{self.log}"\n'
            f'access_log_format = "json"\ndrain_timeout = "60s"\n'
            f'dns_cache_entries = {1000 + self.number}\n')

    def said(self) -> str:
        return (self.directory / "stderr").read_text()

    def pids(self) -> set[int]:
        found = set()
        for child in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.add(child.pid)
        return found

    def replace_workers(self) -> None:
        before = self.pids()
        self._write()
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: not before & self.pids() and self.pids(), "new workers")

    def upgrade(self) -> None:
        old = psutil.Process(self.pid)
        known = len(SUCCESSOR.findall(self.said()))
        os.kill(self.pid, signal.SIGUSR2)
        wait_until(lambda: len(SUCCESSOR.findall(self.said())) > known, "a new program")
        self.pid = int(SUCCESSOR.findall(self.said())[-1])
        wait_until(lambda: self.first.poll() is not None if old.pid == self.first.pid
                   else not old.is_running() or old.status() == psutil.STATUS_ZOMBIE,
                   "the old program's end")

    def close(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            last = psutil.Process(self.pid)
            tree = [last, *last.children(recursive=True)]
            last.terminate()
            for one in psutil.wait_procs(tree, timeout=15)[1]:
                one.kill()
        end(self.first)


def quantile(values: list[float], of: float) -> float:
    """In milliseconds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * of))] * 1e3


def run_handover(count: int, replacements: int, upgrades: int, interval: float,
                 workers: int) -> int:
    """Print one line; return 0 if every byte arrived, in order."""
    context = multiprocessing.get_context("fork")
    windows: list[tuple[float, float]] = []
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0),
                                                            backlog=4096))
        authority = f"127.0.0.1:{listener.getsockname()[1]}"
        origin = context.Process(target=echo, args=(listener,), daemon=True)
        origin.start()
        stack.callback(origin.join)
        stack.callback(origin.terminate)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        program = Program(directory, workers)
        stack.callback(program.close)
        ours, theirs = context.Pipe()
        client = context.Process(target=run_tunnels, daemon=True, args=(
            count, program.port, authority, interval, theirs))
        client.start()
        theirs.close()
        stack.callback(client.join)
        stack.callback(client.terminate)
        if ours.recv() != "ready":
            raise BenchError("no tunnels")
        time.sleep(3)  # the round trip at rest, to compare with
        for step in range(replacements + upgrades):
            began = time.monotonic()
            is_upgrade = upgrades and (step + 1) % (
                (replacements + upgrades) // upgrades) == 0
            if is_upgrade:
                program.upgrade()
            else:
                program.replace_workers()
            windows.append((began, time.monotonic()))
            time.sleep(1)  # all are moved, and run by themselves for a while
        ours.send("end")
        lost, began_at, took, sent = ours.recv()
        wait_until(lambda: program.log.read_bytes().count(b"\n") >= count, "log lines")
        lines = [json.loads(line) for line in program.log.read_text().splitlines()]
        said = program.said()
    times = list(zip(array("d", began_at), array("d", took), strict=True))
    inside = [took for at, took in times
              if any(at < last and at + took > first for first, last in windows)]
    outside = [took for at, took in times
               if not any(at < last and at + took > first for first, last in windows)]
    moved = [(int(n), float(most), float(p999)) for n, most, p999 in TOOK.findall(said)]
    stayed = sum(int(m) for _, m in HANDED.findall(said))
    told_up = sorted(line["bytes_up"] for line in lines)
    told_down = sorted(line["bytes_down"] for line in lines)
    row: dict[str, object] = {
        "scenario": "handover", "tunnels": count, "workers": workers,
        "replacements": replacements, "upgrades": upgrades,
        "bytes": sum(sent), "messages": len(times), "errors": len(lost),
        "moves": sum(n for n, _, _ in moved), "stayed": stayed,
        "pause_p999_ms": max(p999 for _, _, p999 in moved),
        "pause_longest_ms": max(most for _, most, _ in moved),
        "rtt_p50_ms": quantile(outside, 0.5), "rtt_p999_ms": quantile(outside, 0.999),
        "rtt_max_ms": quantile(outside, 1),
        "rtt_p50_moving_ms": quantile(inside, 0.5),
        "rtt_p999_moving_ms": quantile(inside, 0.999),
        "rtt_max_moving_ms": quantile(inside, 1),
        "log_lines": len(lines),
        "load_1m": os.getloadavg()[0],
    }
    failed = [
        reason
        for reason, bad in (
            ("lost", bool(lost)),
            ("stayed", stayed > 0),
            ("not_moved", sum(n for n, _, _ in moved) != count * len(windows)),
            ("log", len(lines) != count or told_up != sent or told_down != sent),
        )
        if bad
    ]
    row["failed"] = ",".join(failed) or "nothing"
    for reason in sorted(set(lost)):
        print(f"lost: {reason}", file=sys.stderr)
    print(format_row("perf_handover", row))
    return int(bool(failed))
