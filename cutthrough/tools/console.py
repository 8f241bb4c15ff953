"""Clients of the admin listener in a terminal: `cutthrough conns`, `kill`, `status`,
`reload` and `drain`; `top` is in a module of its own."""

import argparse
import contextlib
import http.client
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import (
    flag_name,
    read_secret_file,
    variable_name,
)
from cutthrough.config.values import parse_admin, show_count, split_address
from cutthrough.log.errorlog import show_events
from cutthrough.process.selector import TERMS, Selector

PATIENCE_S = 10.0
MOST_ANSWER = 64 << 20                       # bytes of an answer
MOST_TOLD = 200                              # characters of an error's text
SAMPLE = re.compile(r"^cutthrough_(\w+)(?:\{(.*)\})? (\S+)$", re.M)
BUNDLE = 'bundle_info{revision="'
COLUMNS = ("id", "user", "client", "method", "host", "state", "age", "up", "down")
INSIDE = "inside"                            # if a tunnel's first bytes are known
STRANGER = "is not an admin listener of cutthrough"
UNSAFE = re.compile(r"[^ -~]")               # not for a terminal: from the network

Sample = dict[str, float]


class Unanswered(Exception):
    """The listener refused or did not answer; the reason is one line.

    `status`: of a refusal; 0: there was no answer."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


class Listener:
    """A client of the admin listener at `where`: `host:port` or `unix:/path`."""

    def __init__(self, where: str, token: str = "") -> None:
        self._where = where
        self._token = token
        self.silent: list[str] = []          # processes that did not answer it

    def ask(self, method: str, path: str) -> str:
        try:
            return self.fetch(method, path).decode()
        except UnicodeDecodeError:
            raise Unanswered(f"{self._where}: {STRANGER}") from None

    def fetch(self, method: str, path: str, body: bytes | None = None,
              patience_s: float = PATIENCE_S) -> bytes:
        """The content of an answer. Raises Unanswered."""
        with self._answer(method, path, body, patience_s, STRANGER) as answer:
            content = answer.read(MOST_ANSWER + 1)
        if len(content) > MOST_ANSWER:
            raise Unanswered(f"{self._where}: {path}: more than {MOST_ANSWER} bytes")
        return content

    @property
    def where(self) -> str:
        return self._where

    def lines(self, path: str, patience_s: float = PATIENCE_S * 3) -> Iterator[bytes]:
        """The lines of a stream as they come; it has signs of life. Raises
        Unanswered."""
        with self._answer("GET", path, None, patience_s, "the stream was cut off"
                          ) as answer:
            while line := answer.readline():
                yield line

    @contextlib.contextmanager
    def _answer(self, method: str, path: str, body: bytes | None, patience_s: float,
                broken: str) -> Iterator[http.client.HTTPResponse]:
        """An answer that is no refusal. `broken`: the reason if it is no HTTP, or is
        cut off. Raises Unanswered."""
        connection = self._connect(patience_s)
        # As bytes: of text http.client would make Latin-1
        token = f"Bearer {self._token}".encode(errors="surrogateescape")
        fields = {"Authorization": token} if self._token else {}
        try:
            connection.request(method, path, body, fields)
            answer = connection.getresponse()
            if answer.status >= 400:
                self._refuse(answer.status, answer.read(4 * MOST_TOLD))
            yield answer
        except OSError as error:
            raise Unanswered(f"{self._where}: {error.strerror or error}") from None
        except http.client.HTTPException:
            raise Unanswered(f"{self._where}: {broken}") from None
        finally:
            connection.close()

    def _refuse(self, status: int, content: bytes) -> None:
        line = content.decode(errors="replace").strip()
        said = UNSAFE.sub("?", line.partition("\n")[0])[:MOST_TOLD]
        if status == 401:
            said += "; give the token with --token-file or CUTTHROUGH_ADMIN_TOKEN"
        raise Unanswered(f"{self._where}: {status}: {said}", status)

    def _connect(self, patience_s: float) -> http.client.HTTPConnection:
        if not self._where.startswith("unix:"):
            host, port = split_address(self._where)
            return http.client.HTTPConnection(host, port, timeout=patience_s)
        connection = http.client.HTTPConnection("localhost", timeout=patience_s)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(patience_s)
        try:
            connection.sock.connect(self._where.removeprefix("unix:"))
        except OSError as error:
            connection.sock.close()
            raise Unanswered(f"{self._where}: {error.strerror or error}") from None
        return connection

    def read(self, method: str, path: str, wanted: str) -> dict[str, Any]:
        """Requests a JSON object that has the key `wanted`."""
        try:
            answer = json.loads(self.ask(method, path))
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or wanted not in answer:
            raise Unanswered(f"{self._where}: {STRANGER}")
        self.silent += answer.get("unanswered", ())
        return answer

    def connections(self, query: str = "") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.read(
            "GET", f"/connections?{query}", "connections")["connections"]
        return rows

    def trace(self, name: str) -> dict[str, Any]:
        return self.read("GET", f"/connections/{quote(name, safe='')}/trace", "events")

    def cut(self, query: str) -> int:
        count: int = self.read("DELETE", f"/connections?{query}", "cut")["cut"]
        return count

    def metrics(self) -> Sample:
        sample = {f"{name}{{{labels}}}" if labels else name: float(value)
                  for name, labels, value in SAMPLE.findall(
                      self.ask("GET", "/metrics"))}
        if "config_generation" not in sample:
            raise Unanswered(f"{self._where}: {STRANGER}")
        return sample


def run(args: argparse.Namespace) -> int:
    """Runs one of these verbs; returns the exit status. Raises ConfigError."""
    return at_listener(args, lambda listener: print_all(carry_out(listener, args)))


def print_all(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def at_listener(args: argparse.Namespace, action: Callable[[Listener], None]) -> int:
    """Runs the action at the listener of the command line; returns the exit status.
    Raises ConfigError."""
    listener = Listener(*find_listener(args.admin, args.token_file, os.environ))
    try:
        action(listener)
    except Unanswered as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    for name in dict.fromkeys(listener.silent):
        print(f"cutthrough: {name} does not answer", file=sys.stderr)
    return 1 if listener.silent else 0


def carry_out(listener: Listener, args: argparse.Namespace) -> list[str]:
    """The lines of the answer. Raises Unanswered, and ConfigError for an invalid
    selector."""
    if args.verb == "status":
        return status(listener)
    if args.verb in ("reload", "drain"):
        return [UNSAFE.sub("?", listener.ask("POST", f"/{args.verb}").strip())]
    if args.verb == "conns" and args.trace is not None:
        return show_trace(listener.trace(args.trace), args.json)
    if args.verb == "conns":
        return show(listener.connections(query_of(args)), args.json)
    return [f"{listener.cut(query_of(args))} cut"]


def find_listener(admin: str | None, token_file: str | None,
                  environ: Mapping[str, str]) -> tuple[str, str]:
    where = admin or environ.get(variable_name("admin"), "")
    if not where:
        raise ConfigError("command line", "--admin", "is missing: give the address of "
                          "the admin listener, or set CUTTHROUGH_ADMIN")
    try:
        where = parse_admin(where)
    except ValueError as error:
        raise ConfigError("command line", "--admin", str(error)) from None
    return where, find_token(token_file, environ)


def find_token(token_file: str | None, environ: Mapping[str, str]) -> str:
    """"": there is none. Raises ConfigError if its file cannot be read."""
    if token_file:
        return read_secret_file(token_file, "command line", "--token-file")
    variable = variable_name("admin_token_file")
    if environ.get(variable):
        return read_secret_file(environ[variable], "environment", variable)
    return environ.get(variable_name("admin_token"), "")


def query_of(args: argparse.Namespace) -> str:
    """The selectors as a URL's query. Raises ConfigError for an invalid one."""
    said = {name: getattr(args, name) for name in Selector.__struct_fields__
            if getattr(args, name) is not None}
    for name in said.keys() & TERMS.keys():
        try:
            said[name] = str(TERMS[name].parse(said[name]))
        except ValueError as error:
            raise ConfigError("command line", flag_name(name), str(error)) from None
    try:
        Selector.from_query(said)
    except msgspec.ValidationError as error:
        raise ConfigError("command line", "", str(error)) from None
    return urlencode(said, quote_via=quote)


def show(connections: list[dict[str, Any]], as_json: bool = False) -> list[str]:
    """Returns the lines of a table, or a JSON object a line."""
    if as_json:
        return [json.dumps(entry) for entry in connections]
    looked = any("tunnel_protocol" in entry for entry in connections)
    rows = [(*COLUMNS, *([INSIDE] if looked else []))] + [(
        entry["id"] or "-", entry["user"] or "-", entry["client"] or "-",
        entry["method"] or "-",
        f"{entry['host']}:{entry['port']}" if entry["host"] else "-",
        entry["state"], f"{entry['age']:.1f}",
        str(entry["bytes_up"]), str(entry["bytes_down"]),
        *([inside(entry)] if looked else [])) for entry in connections]
    rows = [tuple(UNSAFE.sub("?", cell)[:60] for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in
                      zip(row, widths, strict=True)).rstrip() for row in rows]


def inside(entry: dict[str, Any]) -> str:
    """Returns the protocol inside a tunnel, and the server name if it is TLS."""
    return f"{entry.get('tunnel_protocol', '-')} {entry.get('sni', '')}".rstrip()


def show_trace(trace: dict[str, Any], as_json: bool = False) -> list[str]:
    """Returns the connection's line, and one line for each event."""
    if as_json:
        return [json.dumps(trace)]
    events = trace["events"]
    said = [*show([trace]), ""]
    if not events:
        return [*said, "nothing is recorded: flight_recorder = 0"]
    if not trace["at_accept"]:
        said.append("…  earlier events are lost")
    return said + [UNSAFE.sub("?", show_events([event])) for event in events]


def status(listener: Listener) -> list[str]:
    """Raises Unanswered if it serves nobody: it starts, drains, or has no worker."""
    sample = listener.metrics()
    lines = [*summary(sample, sample, 1.0)[:1]]
    if not sample.get("config_last_reload_successful", 1):
        lines.append("the last reload was refused, or is not in force yet")
    for name in sample:
        if name.startswith(BUNDLE):
            lines.append(f"bundle {name[len(BUNDLE):-2]}")
    listener.ask("GET", "/readyz")
    return ["ready", *lines]


def summary(before: Sample, now: Sample, seconds: float) -> list[str]:
    def rate(prefix: str) -> float:
        grown = sum(value - before.get(name, 0) for name, value in now.items()
                    if name.startswith(prefix))
        return max(0.0, grown) / seconds     # a new program counts from zero

    def by_label(prefix: str) -> str:
        return ", ".join(f"{name[len(prefix):-2]} {value:.0f}"
                         for name, value in now.items()
                         if name.startswith(prefix) and value) or "none"

    workers, open_now = (
        int(sum(value for name, value in now.items() if name.startswith(prefix)))
        for prefix in ("worker_up", "connections{"))
    moved = {way: rate(f'bytes_total{{direction="{way}"') / 1e6
             for way in ("up", "down")}
    return [
        f"generation {now['config_generation']:.0f}, "
        f"{show_count(workers, 'worker')}, {show_count(open_now, 'connection')}, "
        f"{show_count(int(now['tunnels']), 'tunnel')}",
        f"{rate('requests_total'):.1f} requests/s, "
        f"up {moved['up']:.3f} MB/s, down {moved['down']:.3f} MB/s, "
        f"{rate('process_cpu_seconds_total') * 100:.0f} % CPU",
        "states: " + by_label('connections{state="'),
        "denied: " + by_label('denied_total{reason="'),
    ]
