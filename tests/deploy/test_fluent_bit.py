"""Fluent Bit's recipes: each name in a file exists in another; and lines that go by it.

No registry that tests install from has Fluent Bit: it is run if it is in PATH.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.lines import HOME, RECIPES, SECRET, write_log
from tests.deploy.store import ask, object_store
from tests.support.wait import wait_until

FOLDER = RECIPES / "fluent-bit"
INPUTS = sorted(FOLDER.glob("*.yaml"))
OUTPUTS = sorted(RECIPES.glob("*/fluent-bit.yaml"))
PROGRAM = shutil.which("fluent-bit")
# Debian has no package of it, and it is built from source, for three minutes
needs_program = pytest.mark.skipif(
    not PROGRAM, reason="fluent-bit is not in PATH, and no registry here has it")


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_an_input_has_its_parser_and_its_filters_its_tag(path: Path) -> None:
    read = load(path)
    (source,) = read["pipeline"]["inputs"]
    (parser,) = read["parsers"]
    named = [part["parser"] for part in (source, *read["pipeline"]["filters"])
             if "parser" in part]
    assert named == [parser["name"]]
    assert {part["match"] for part in read["pipeline"]["filters"]} == {source["tag"]}
    assert parser["time_key"] == "time" and parser["time_keep"]


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.parent.name)
def test_an_output_matches_what_it_includes(path: Path) -> None:
    read = load(path)
    (included,) = read["includes"]
    (source,) = load((path.parent / included).resolve())["pipeline"]["inputs"]
    (output,) = read["pipeline"]["outputs"]
    assert output["match"] == source["tag"]


class Receiver(ThreadingHTTPServer):
    """Takes posts: the path, and the body."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, bytes]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def place(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.server_port}


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.posted.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


@contextmanager
def fluent_bit(base: Path, target: str, source: str, log: str, **places: Any
               ) -> Iterator[None]:
    """Runs with the recipes' files, and with the places of this test."""
    read = load(FOLDER / f"{source}.yaml")
    read["pipeline"]["inputs"][0] |= {"path": log, "db": str(base / "offsets.db")}
    (base / "fluent-bit").mkdir()
    (base / "fluent-bit/file.yaml").write_text(yaml.safe_dump(read, sort_keys=False))
    read = load(RECIPES / target / "fluent-bit.yaml")
    read["pipeline"]["outputs"][0] |= places
    (base / target).mkdir()
    (base / target / "own.yaml").write_text(yaml.safe_dump(read, sort_keys=False))
    environ = {**os.environ, "HOSTNAME": "proxy-1", "AWS_ACCESS_KEY_ID": "test",
               "AWS_SECRET_ACCESS_KEY": "test", "CLICKHOUSE_USER": "default",
               "CLICKHOUSE_PASSWORD": "a password"}
    with open(base / "log", "wb") as out, subprocess.Popen(
            [str(PROGRAM), "-c", base / target / "own.yaml"], env=environ, stdout=out,
            stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def in_loki(receiver: Receiver) -> list[dict[str, Any]]:
    """The lines, each checked against its time; its labels are not in it."""
    found = []
    for path, body in list(receiver.posted):
        assert path == "/loki/api/v1/push"
        for stream in json.loads(body)["streams"]:
            labels = stream["stream"]
            assert labels == {"service_name": "cutthrough", "instance": "proxy-1",
                              "kind": labels["kind"]}
            for ns, text in stream["values"]:
                fields = json.loads(text) | {"kind": labels["kind"]}
                assert fields["time"].endswith(f"{int(ns) // 1_000_000 % 1000:03}Z")
                found.append(fields)
    return found


def sorted_lines(records: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in records)


@needs_program
@pytest.mark.parametrize("source", ["file", "pods"])
def test_lines_go_to_loki(tmp_path: Path, receiver: Receiver, source: str) -> None:
    lines = write_log(tmp_path)
    other = '{"level": "info", "message": "of the error log"}'
    path = tmp_path / "access.log"
    if source == "pods":
        path = tmp_path / "0.log"
        path.write_text("".join(f"2026-11-29T04:05:06.789012345Z stdout F {line}\n"
                                for line in (*lines, other)))
    with fluent_bit(tmp_path, "loki", source, str(path), **receiver.place):
        wait_until(lambda: len(in_loki(receiver)) >= len(lines),
                   lambda: (tmp_path / "log").read_text())
    assert sorted_lines(in_loki(receiver)) == sorted_lines(list(map(json.loads, lines)))
    assert SECRET not in str(receiver.posted)


@needs_program
def test_lines_go_to_clickhouse(tmp_path: Path, receiver: Receiver) -> None:
    lines = write_log(tmp_path)

    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for _, body in list(receiver.posted)
                for line in body.decode().splitlines()]

    with fluent_bit(tmp_path, "clickhouse", "file", str(tmp_path / "access.log"),
                    **receiver.place):
        wait_until(lambda: len(rows()) >= len(lines),
                   lambda: (tmp_path / "log").read_text())
    assert sorted_lines(rows()) == sorted_lines(
        [json.loads(line) | {"instance": "proxy-1"} for line in lines])
    (path,) = {path for path, _ in receiver.posted}
    assert path.startswith("/?query=INSERT%20INTO%20access_log%20FORMAT%20JSONEachRow&")


@needs_program
# moto, as the bucket, is of 1.3 GB that a verb of make installs
@pytest.mark.skipif(not HOME.exists(), reason="make recipes runs it")
def test_lines_go_to_s3(tmp_path: Path) -> None:
    lines = write_log(tmp_path)
    with object_store(tmp_path) as bucket:
        def keys() -> list[str]:
            listing = ask("GET", f"{bucket}?list-type=2").decode()
            return re.findall("<Key>(.*?)</Key>", listing)

        endpoint = bucket.rpartition("/")[0]
        with fluent_bit(tmp_path, "s3", "file", str(tmp_path / "access.log"),
                        endpoint=endpoint, upload_timeout="2s",
                        store_dir=str(tmp_path / "objects")):
            wait_until(keys, lambda: (tmp_path / "log").read_text(), 120)
        stored = [json.loads(line) for key in keys() for line in gzip.decompress(
            ask("GET", f"{bucket}/{key}")).decode().splitlines()]
        assert all(re.match(r"cutthrough/date=2\d{3}-\d\d-\d\d/hour=\d\d/", key)
                   for key in keys())
    assert sorted_lines(stored) == sorted_lines(
        [json.loads(line) | {"instance": "proxy-1"} for line in lines])
