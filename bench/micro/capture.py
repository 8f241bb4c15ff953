"""How many exchanges a second one writer process moves from a ring into the store.

`python -m bench micro capture` starts the writer as the supervisor does, fills its ring
with exchanges as a worker does, and prints the rate at which rows are committed, the
writer's CPU for each and its largest memory: heads alone, then with bodies. The ring is
filled for SECONDS, as fast as it has room; `paced` offers RATE a second and prints how
many found no room. The store is a file, or with `capture-postgres` the empty database
of CUTTHROUGH_CAPTURE_URL. `capture-zstd` has JSON of an API as bodies, as they are and
with capture_compress.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import random
import socket
import sqlite3
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import msgspec
import psutil

from bench.children import BenchError
from bench.micro import load_compiled
from cutthrough.process.environment import worker_environment
from cutthrough.storage.settings import Settings, Start
from cutthrough.supervisor.capture_writer import COMMAND, MODULES, STOP
from cutthrough.tape.ring import RING_BYTES, Ring

SECONDS = 5.0
RATE = 50_000
COUNT = 10_000                               # the bound of the configuration
NOT_COUNTED = (1 << 64) - 1

#: 473 and 344 bytes, as a browser and an origin write them
REQUEST = b"""\
GET /assets/app/9f1c/main.js?v=20260401 HTTP/1.1
Host: static.example.com
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0
Accept: */*
Accept-Language: en-US,en;q=0.5
Accept-Encoding: gzip, deflate
Cookie: session=3f1c9a7be2d84c5a; theme=dark
Referer: http://www.example.com/a/page/of/some/length
If-None-Match: "5f3e-1b2c3d4e5f"
Cache-Control: no-cache
Pragma: no-cache
Via: 1.1 cutthrough
X-Requested-With: XMLHttpRequest

""".replace(b"\n", b"\r\n")
RESPONSE = b"""\
HTTP/1.1 200 OK
Date: Wed, 01 Apr 2026 10:00:00 GMT
Server: nginx
Content-Type: text/javascript; charset=utf-8
Content-Length: %d
Connection: keep-alive
Last-Modified: Tue, 31 Mar 2026 09:00:00 GMT
ETag: "5f3e-1b2c3d4e5f"
Cache-Control: max-age=3600, public
Vary: Accept-Encoding
X-Request-Id: 8c1e7f3a4b5d
Accept-Ranges: bytes

""".replace(b"\n", b"\r\n")


@dataclass(frozen=True)
class Load:
    """Exchanges whose response has `body` bytes. `rate`: a second; 0: as many as find
    room. `total`: of them; 0: for some seconds."""

    name: str
    body: int = 0
    rate: int = 0
    total: int = 0
    kind: str = "script"                     # of the body; or json
    compress: bool = False


LOADS = [Load("heads"), Load("heads-paced", rate=RATE), Load("body-1k", 1 << 10),
         Load("body-16k", 16 << 10), Load("body-256k", 256 << 10)]
COMPRESSED = [Load(f"json-{name}{'-zstd' * compress}", size, total=total, kind="json",
                   compress=compress)
              for name, size, total in (
                  ("1k", 1 << 10, 30_000), ("4k", 4 << 10, 20_000),
                  ("16k", 16 << 10, 10_000), ("256k", 256 << 10, 1000))
              for compress in (False, True)]
SOAKS = [Load("million", total=1_000_000),
         Load("ten-gigabytes", body=256 << 10, total=38_147)]


@functools.cache
def _producer() -> ModuleType:
    return load_compiled(Path(__file__).with_suffix(".pyx"))


def make_script(size: int) -> bytes:
    line = b"export const answer = {value: 42, text: 'forty-two'};\n"
    return (line * (size // len(line) + 1))[:size]


def make_json(size: int) -> bytes:
    """Rows of an API, whose values differ."""
    some = random.Random(size)
    text = ""
    while len(text) < size:
        text += json.dumps({
            "id": some.getrandbits(40), "name": some.choice(("alice", "bob", "carol")),
            "email": f"user{some.randrange(9999)}@example.com",
            "active": some.random() < 0.5,
            "created": f"2026-11-{some.randint(1, 28):02}T10:30:00Z"}) + ",\n"
    return text[:size].encode()


CONTENTS = {"script": make_script, "json": make_json}


def payloads(body: int, kind: str = "script") -> tuple[bytes, bytes, bytes]:
    """Returns the payloads of HEADS, DOWN and END."""
    content = CONTENTS[kind](body)
    texts = (b"ann", b"static.example.com", b"browsers", b"", b"192.0.2.7",
             b"198.51.100.9", b"", b"", b"", b"", b"", REQUEST, *[b""] * 9)
    # An EndRecord of tape/end_record.pxd: times in microseconds, sizes, phases,
    # lengths of texts, then status, ports, flags, the numbers of outcome and method
    end = struct.pack(
        "=4q4Q6I3I21I8H6B2x", 0, 15_700, 15_000, 500, 500, 400 + body,
        0 if body else NOT_COUNTED, body or NOT_COUNTED, 40, 10, 0, 2000, 3000, 5100,
        0, 0, 0, *map(len, texts), 200, 80, 50_000, 80, 0, 0, 0, 0, 0, 2,
        0, 0, 11, 0) + b"".join(texts)
    return (0).to_bytes(4, "little") + RESPONSE % body, content, end


def wait_empty(ring: Ring, process: subprocess.Popen[bytes]) -> None:
    while ring.in_use:
        if process.poll() is not None:
            raise BenchError(f"the writer ended: {process.returncode}")
        time.sleep(0.001)


def run_load(load: Load, seconds: float = SECONDS, url: str = "") -> dict[str, float]:
    heads, body, end = payloads(load.body, load.kind)
    rings = os.memfd_create("rings", os.MFD_CLOEXEC)
    wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.ftruncate(rings, RING_BYTES)
    ring = Ring(mmap.mmap(rings, RING_BYTES), wake[1])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryDirectory() as directory, ours:
        with theirs:
            process = subprocess.Popen(
                [*COMMAND, MODULES[0], str(theirs.fileno())], env=worker_environment(),
                pass_fds=(theirs.fileno(), rings, wake[0]))
        settings = Settings(
            database=url or f"{directory}/flows.db", program="bench", count=COUNT,
            bytes=1 << 30, age=7 * 86400.0, credentials=False, fields=(), query=(),
            json=(), compress=load.compress)
        ours.send(msgspec.json.encode(Start(settings=settings, rings=rings,
                                            wake=wake[0])))
        writer = psutil.Process(process.pid)
        _producer().produce(ring, heads, body, end, 0.5, 0, 1000)      # it has begun
        wait_empty(ring, process)
        cpu, began = sum(writer.cpu_times()[:2]), time.monotonic()
        put = dropped = most_files = 0
        memory: list[int] = []
        while (put < load.total) if load.total else (not memory):
            more, lost = _producer().produce(
                ring, heads, body, end, 0.5 if load.total else seconds,
                (1 << 20) + put, load.rate)
            put, dropped = put + more, dropped + lost
            memory.append(writer.memory_info().rss)
            most_files = max(most_files, sum(
                os.path.getsize(file) for file in Path(directory).iterdir()))
        wait_empty(ring, process)            # the rest is written, too
        took = time.monotonic() - began
        spent = sum(writer.cpu_times()[:2]) - cpu
        memory.append(writer.memory_info().rss)
        ours.send(STOP)                      # and the rest is indexed
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        unwritten = ring.counts()["unwritten"]
        row_bytes = 0.0 if url else row_bytes_of(f"{directory}/flows.db")
    for fd in (rings, *wake):
        os.close(fd)
    written = put - unwritten
    return {"exchanges": written, "dropped": dropped, "unwritten": unwritten,
            "seconds": took, "rate": written / took, "cpu_us": spent / written * 1e6,
            "mb_s": written * load.body / took / 1e6,
            "rss_tenth_mib": memory[len(memory) // 10] / (1 << 20),
            "rss_most_mib": max(memory) / (1 << 20),
            "files_mib": most_files / (1 << 20), "row_bytes": row_bytes,
            "whole_cpu_us": (usage.ru_utime + usage.ru_stime - cpu) / written * 1e6}


def row_bytes_of(path: str) -> float:
    """Returns the bytes of the file, with its index, for each row."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        (count,) = base.execute("SELECT count(*) FROM flows").fetchone()
    return os.path.getsize(path) / count if count else 0.0


def run_loads(loads: list[Load], seconds: float = SECONDS, url: str = "") -> int:
    print(f"capture cpus={os.cpu_count()} load={os.getloadavg()[0]:.1f}", flush=True)
    for load in loads:
        figures = run_load(load, seconds, url)
        print(f"capture={load.name} " + " ".join(
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in figures.items()), flush=True)
    return 0
