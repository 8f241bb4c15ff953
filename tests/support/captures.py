"""A proxy that captures, its writer, and the rows and flows of its database."""

import re
import sqlite3
from pathlib import Path

import psutil
import pytest

from tests.support.proxy import command_of
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

HELLO = (b"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX-Hop: 1\r\nConnection: X-Hop\r\n"
         b"Set-Cookie: id=s3cret\r\n\r\nhello")
POLICY = """
    [[rules]]
    name = "quiet"
    action = "allow"
    addresses = ["127.0.0.2/32"]
    [[rules]]
    name = "seen"
    action = "{action}"
    addresses = ["127.0.0.0/8"]
    capture = "{mode}"
"""
SEEN = re.compile(r"cutthrough/storage/writer|cutthrough\.storage\.writer")


@pytest.fixture
def database(tmp_path):
    return tmp_path / "flows.db"


def rows(database: Path) -> list[sqlite3.Row]:
    if not database.exists():
        return []
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as base:
        base.row_factory = sqlite3.Row
        try:
            return base.execute("SELECT * FROM flows ORDER BY id").fetchall()
        except sqlite3.OperationalError:
            return []                       # its tables are being made
        finally:
            base.rollback()


def wait_rows(database: Path, n: int = 1) -> list[sqlite3.Row]:
    return wait_until(lambda: len(flows := rows(database)) >= n and flows,
                      lambda: f"{n} rows: {[dict(row) for row in rows(database)]}")


def writers(proxy) -> list[psutil.Process]:
    return [process for process in proxy.workers() if SEEN.search(command_of(process))]


def writer(proxy) -> psutil.Process:
    return wait_until(
        lambda: (processes := writers(proxy)) and processes[0], "a writer")


def flows(database: Path, *words: str, **environ: str):
    return run_apart("flows", *words, CUTTHROUGH_CAPTURE_FILE=str(database), **environ)
