"""Rate of captured heads from several hosts into one PostgreSQL.

`python -m bench fleet --postgres --writers N` starts a private server with fsync, then
one process and then N processes with the product's store. Each process writes batches
of BATCH exchanges in sequence. The output has the rows a second of all processes, also
as a multiple of the rate of one process, and the median and the longest time of a
write. The first pair of runs has no bound; the second has the configuration's bound of
exchanges, so that the store deletes a row for each row written. The exit status is 1 if
rows are missing.

Two processes in turn do a write: the writer, and its server process. Beside the time
of a write stands the time without their waits for a CPU (/proc/PID/schedstat): the rest
is work, locks, the disk, and waits of other processes that hold a lock.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import psycopg

from bench.children import BenchError
from bench.micro.capture import COUNT, REQUEST, RESPONSE
from cutthrough.exchange.columns import COLUMNS
from cutthrough.storage.store import StoreError
from cutthrough.storage.stores import open_store
from tests.support.postgres import PROGRAMS, Postgres

BATCH = 50
SECONDS = 10.0
#: A row of REQUEST and RESPONSE, without number and times
FIELDS = {
    "kind": "request", "method": "GET", "host": "static.example.com", "port": 443,
    "url": "http://static.example.com/assets/app/9f1c/main.js", "status": 200,
    "reason": "ok", "user": "ann", "client": "192.0.2.7", "bytes": 1000,
    "request_head": REQUEST.decode(), "response_head": (RESPONSE % 0).decode(),
}  # fmt: skip


class Write(NamedTuple):
    """Seconds, and those in which neither process waited for a CPU."""

    total: float
    unhindered: float


def make_rows(first: int) -> list[tuple[object, ...]]:
    now = time.time_ns() // 1000
    return [tuple((dict.fromkeys(COLUMNS) | FIELDS | {
        "request": f"0-{number}", "begun_us": now, "ended_us": now + 900,
    }).values()) for number in range(first, first + BATCH)]


def write(url: str, program: str, count: int, seconds: float, begin: Barrier,
          answer: Connection) -> None:
    """Sends the times of each write, and the failures."""
    store = open_store(f"{url}?application_name={program}", count, 0, 0, program)
    store.open()
    with psycopg.connect(url) as looking:
        ((backend,),) = looking.execute("SELECT pid FROM pg_stat_activity WHERE "
                                        "application_name = %s", (program,)).fetchall()
    begin.wait()
    writes: list[Write] = []
    failures: list[str] = []
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        waited = waits(os.getpid(), backend)
        try:
            store.write(make_rows(BATCH * len(writes)))
        except StoreError as error:
            failures.append(str(error))
        duration = time.monotonic() - start
        writes.append(Write(duration, max(0.0, duration + waited - waits(
            os.getpid(), backend))))
    store.close()
    answer.send((writes, failures))


def waits(*pids: int) -> float:
    """Seconds for which these processes waited for a CPU, since they began."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
               for pid in pids) / 1e9


def measure(url: str, writers: int, count: int, seconds: float
            ) -> tuple[float, list[Write], list[str]]:
    """Returns rows a second, the times of all writes, and the failures."""
    kind = multiprocessing.get_context("fork")
    begin = kind.Barrier(writers + 1)
    pipes = [kind.Pipe(duplex=False) for _ in range(writers)]
    processes = [
        kind.Process(target=write, daemon=True,
                     args=(url, f"host-{number}", count, seconds, begin, there))
        for number, (_, there) in enumerate(pipes)]
    for process in processes:
        process.start()
    begin.wait()
    start = time.monotonic()
    results = [receiver.recv() for receiver, _ in pipes]
    duration = time.monotonic() - start
    for process in processes:
        process.join()
    writes = [write for batch, _ in results for write in batch]
    failures = [failure for _, errors in results for failure in errors]
    return BATCH * (len(writes) - len(failures)) / duration, writes, failures


@contextlib.contextmanager
def server(writers: int) -> Iterator[Postgres]:
    if PROGRAMS is None:
        raise BenchError("postgresql is not installed")
    running = Postgres("-c", "fsync=on", "-c", f"max_connections={writers + 20}",
                       "-c", "shared_buffers=128MB")
    try:
        yield running
    finally:
        running.close()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--postgres", action="store_true",
                        help="captures, in a PostgreSQL of its own")
    parser.add_argument("--writers", type=int, default=40, help="of hosts [40]")
    parser.add_argument("--seconds", type=float, default=SECONDS,
                        help=f"length of a run of --postgres [{SECONDS:g}]")


def run(writers: int, seconds: float = SECONDS) -> int:
    status = 0
    print("writers  bound  rows/s  of one  median s  longest s  without waits for CPU  "
          "longest of these  failed")
    with server(writers) as postgres:
        for count in (0, COUNT):
            single = 0.0
            for number in dict.fromkeys((1, writers)):
                url = postgres.make()
                rate, writes, failures = measure(url, number, count, seconds)
                longest = max(writes)
                single = single or rate
                print(f"{number:7}  {count:5}  {rate:6.0f}  {rate / single:6.2f}  "
                      f"{statistics.median(write.total for write in writes):8.3f}  "
                      f"{longest.total:9.3f}  {longest.unhindered:21.3f}  "
                      f"{max(write.unhindered for write in writes):16.3f}  "
                      f"{len(failures):6}", flush=True)
                ((stored,),) = postgres.ask(
                    "SELECT count(*) FROM cutthrough.flows", url)
                written = BATCH * (len(writes) - len(failures))
                if stored < (min(written, count) if count else written):
                    print(f"{stored} of {written} rows are stored")
                    status = 1
                for failure in dict.fromkeys(failures):
                    print(failure)
    return status
