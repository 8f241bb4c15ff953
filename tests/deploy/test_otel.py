"""The OpenTelemetry Collector reads the access log, and sends it as Loki takes it."""

import gzip
import json
import os
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
from tests.support.wait import wait_until

PROGRAM = HOME / "otelcol/otelcol"
# It is built with Go, for minutes, by a verb of make
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="make recipes runs it")
FOLDER = RECIPES / "otel-collector"


class Receiver(ThreadingHTTPServer):
    """Takes posts: `paths`, and `records` with those of the resource."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.records: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.paths.add(self.path)
        for resource in json.loads(body)["resourceLogs"]:
            own = plain(resource["resource"]["attributes"])
            for scope in resource["scopeLogs"]:
                self.server.records += [
                    {"resource": own, "line": record["body"]["stringValue"],
                     "ns": int(record["timeUnixNano"]),
                     "fields": plain(record["attributes"])}
                    for record in scope["logRecords"]]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: value_of(pair["value"]) for pair in attributes}


def value_of(value: dict[str, Any]) -> Any:
    """A value of OTLP in JSON: integers of 64 bits are strings there."""
    if not value:
        return None
    ((kind, content),) = value.items()
    if kind == "intValue":
        return int(content)
    if kind == "kvlistValue":
        return plain(content["values"])
    return content


@contextmanager
def collector(base: Path, *files: Path, **more: Any) -> Iterator[subprocess.Popen]:
    """Runs with the recipes' files, and with the places of this test."""
    (base / "data").mkdir(exist_ok=True)
    own = {"extensions": {"file_storage": {"directory": str(base / "data")}},
           "processors": {"batch": {"timeout": "100ms"}},
           "service": {"telemetry": {"metrics": {"level": "none"}}}, **more}
    (base / "own.yaml").write_text(yaml.safe_dump(own))
    environ = {**os.environ, "HOSTNAME": "proxy-1"}
    words = [f"--config={path}" for path in (*files, base / "own.yaml")]
    with open(base / "log", "wb") as log, subprocess.Popen(
            [PROGRAM, *words], env=environ, stderr=log, stdout=log) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def check(receiver: Receiver, lines: list[str]) -> None:
    assert receiver.paths == {"/otlp/v1/logs"}
    wanted = {json.loads(line)["id"]: line for line in lines}
    assert {record["fields"]["id"] for record in receiver.records} == wanted.keys()
    for record in receiver.records:
        line = wanted[record["fields"]["id"]]
        assert record["line"] == line
        fields = json.loads(line)
        assert record["fields"].items() >= fields.items()
        # An integer stays one, and a number one
        assert all(type(record["fields"][name]) is type(value)
                   for name, value in fields.items() if isinstance(value, int))
        assert record["resource"]["service.name"] == "cutthrough"
        assert record["resource"]["service.instance.id"] == "proxy-1"
        stamp = fields["time"]
        assert stamp.endswith(f"{record['ns'] // 1_000_000 % 1000:03}Z")
    assert SECRET not in str(receiver.records)


def test_a_files_lines_go_to_loki(tmp_path: Path, receiver: Receiver) -> None:
    lines = write_log(tmp_path)
    path = tmp_path / "access.log"

    def append(*more: str) -> None:
        with open(path, "a") as log:
            log.writelines(f"{line}\n" for line in more)

    def run_until(count: int) -> None:
        exporter = {"endpoint": f"http://127.0.0.1:{receiver.server_port}/otlp",
                    "encoding": "json"}
        with collector(tmp_path, FOLDER / "file.yaml",
                       RECIPES / "loki/otel-collector.yaml",
                       receivers={"file_log": {"include": [str(path)]}},
                       exporters={"otlp_http": exporter}):
            wait_until(lambda: len(receiver.records) >= count,
                       lambda: (tmp_path / "log").read_text())

    append("no JSON", '{"level": "info", "message": "of the error log"}')
    run_until(len(lines))
    check(receiver, lines)
    assert "deprecated" not in (tmp_path / "log").read_text()
    # Started again, it goes on at the same place.
    again = lines[0].replace(json.loads(lines[0])["id"], "0-99")
    append(again)
    run_until(len(lines) + 1)
    check(receiver, [*lines, again])
    assert len(receiver.records) == len(lines) + 1


def test_a_pods_lines_go_to_loki(tmp_path: Path, receiver: Receiver) -> None:
    lines = write_log(tmp_path)
    folder = tmp_path / "net_cutthrough-7d9_0b5b/cutthrough"
    folder.mkdir(parents=True)
    stamp = "2026-11-29T04:05:06.789012345Z"
    (folder / "0.log").write_text("".join(
        f"{stamp} stdout F {line}\n" for line in lines)
        + f'{stamp} stderr F {{"level": "info", "message": "of the error log"}}\n')
    exporter = {"endpoint": f"http://127.0.0.1:{receiver.server_port}/otlp",
                "encoding": "json"}
    pods = yaml.safe_load((FOLDER / "pods.yaml").read_text())["receivers"]["file_log"]
    pattern = pods["include"][0].replace("/var/log/pods", str(tmp_path))
    with collector(tmp_path, FOLDER / "file.yaml", FOLDER / "pods.yaml",
                   RECIPES / "loki/otel-collector.yaml",
                   receivers={"file_log": {"include": [pattern]}},
                   exporters={"otlp_http": exporter}):
        wait_until(lambda: len(receiver.records) >= len(lines),
                   lambda: (tmp_path / "log").read_text())
    check(receiver, lines)
    assert {record["resource"]["k8s.pod.name"] for record in receiver.records} == {
        "cutthrough-7d9"}
