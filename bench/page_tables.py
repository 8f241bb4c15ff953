"""Tables of pages, from results of benches that have no scenarios.

Each function takes a stored result and returns the lines of its block: the machine with
the versions, and the table. A figure that a result lacks is a dash. report_readme.py
has the pages in which they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.charts import shown
from bench.children import BenchError

Row = dict[str, Any]
Result = dict[str, Any]

#: The name in a table, and that of its rows.
OPENERS = (("cutthrough", "cutthrough"), ("squid, ssl_bump", "squid-bump"),
           ("VEY", "vey"), ("mitmproxy", "mitmproxy-open"))
ALL_OPENERS = (
    ("through the TLS listener", "listener"), *OPENERS[1:], OPENERS[0],
    ('… `capture = "head"`', "cutthrough-head"),
    ('… `capture = "full"`', "cutthrough-full"),
    ("… a filter that does nothing", "cutthrough-filter"),
    ("… HTTP/2 to the origin", "cutthrough-http2"),
)  # fmt: skip
CARRIERS = (
    ("mitmproxy", "mitmproxy-streams"), ("VEY", "vey"), ("cutthrough", "cutthrough"),
    ('… `capture = "full"`', "cutthrough-full"), ("a closed tunnel", "blind"),
)  # fmt: skip
RECORDERS = tuple((name, name) for name in (
    "cutthrough", "replayproxy", "hoverfly", "mitmproxy"))
SCENARIOS = ("plain", "record", "replay", "cold", "warm")
HTTP2_SERVERS = (
    ("HAProxy", "haproxy-tls"), ("nghttpx", "nghttpx"), ("cutthrough", "cutthrough"),
    ("… with a named origin", "cutthrough-named"),
)  # fmt: skip
HTTP2_LOADS = (
    ("index.html, 20 connections of 10 streams", "index"), ("16 KiB, the same", "16k"),
    ("index.html, 100 connections of one stream", "single"),
    ("1 MiB, four connections of four streams", "1m"),
)  # fmt: skip
PRINTED_LOADS = (("a kept request by HTTP/1.1", "http1"), ("by HTTP/2", "http2"),
                 ("a full handshake of TLS 1.3", "handshake"))


def cells(*parts: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(parts)} |".replace("|  |", "| |").replace("|  |", "| |")


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [cells(*head), f"|{'---|' * len(head)}", *(cells(*row) for row in rows)]


def machine(environment: Mapping[str, Any], versions: Sequence[str]) -> str:
    """In words, on which machine and of which commit a result is."""
    kernel = str(environment["kernel"]).partition("-")[0]
    parts = [
        f"{environment['cpu']}", f"{environment['usable_cores']} cores",
        f"Linux {kernel}", f"Python {environment['python']}",
        f"{environment['cutthrough']} ({str(environment['commit'])[:8]}"
        f"{', changed' if environment['changed'] else ''})", *versions,
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)


def short_version(text: object) -> str:
    """Without what a distribution or a build has added."""
    return re.split("[-+]", str(text))[0]


def rows_by(result: Result, line: str, *keys: str) -> dict[Any, Row]:
    """The rows of one kind. Raises BenchError without any."""
    rows = [row for row in result["rows"] if row.get("line", line) == line
            and all(key in row for key in keys)]
    if not rows:
        raise BenchError(f"the result has no {line}")
    return {tuple(row[key] for key in keys) if keys[1:] else row[keys[0]]: row
            for row in rows}


def figure(row: Row | None, key: str) -> str:
    value = row.get(key) if row else None
    return "–" if value is None else shown(float(value))


def _versions(names: Sequence[tuple[str, str]], rows: Mapping[str, Row]) -> list[str]:
    """Returns the versions of the peers that took part."""
    return [f"{name.partition(',')[0]} {short_version(rows[key]['version'])}"
            for name, key in names if key in rows and rows[key].get("version")
            and not key.startswith("cutthrough")]


def _tls(environment: Mapping[str, Any]) -> str:
    """Name and number: of "OpenSSL 3.0.19 27 Jan 2026" the first two words."""
    return " ".join(str(environment.get("tls", "")).split()[:2])


def costs(result: Result, line: str, proxies: Sequence[tuple[str, str]],
          kinds: Sequence[tuple[str, str]]) -> list[str]:
    """A column for each proxy, named as in `line`; a row for each kind of work."""
    rows = rows_by(result, line, "proxy")
    environment = result["environment"]
    versions = [_tls(environment), *_versions(proxies, rows)]
    return [
        f"{machine(environment, versions)}:", "",
        *grid(("µs of CPU", *(name for name, _ in proxies)), [
            (kind, *(figure(rows.get(key), column) for _, key in proxies))
            for kind, column in kinds]),
    ]  # fmt: skip


def intercept_short(result: Result) -> list[str]:
    """README's: what an opened tunnel costs."""
    return costs(result, "perf_intercept", OPENERS, (
        ("a kept request in an opened tunnel", "us_kept"),
        ("a new tunnel to a known host, one request", "us_new")))


def intercept_long(result: Result) -> list[str]:
    """All proxies and variants, with their rates."""
    rows = rows_by(result, "perf_intercept", "proxy")
    environment = result["environment"]
    columns = ("us_kept", "rate_kept", "us_new", "rate_new", "us_fresh")
    head = ("", "a kept request, µs of CPU", "of them a second",
            "a new tunnel and one request, µs", "of them a second",
            "to a name that has never come, µs")
    return [
        f"{machine(environment, [_tls(environment), *_versions(OPENERS, rows)])}:", "",
        *grid(head, [
            (name, *(figure(rows.get(key), column).replace("–", "")
                     for column in columns))
            for name, key in ALL_OPENERS if key in rows]),
    ]  # fmt: skip


def recording_short(result: Result) -> list[str]:
    """README's: what a recorded and a replayed request cost."""
    rows = rows_by(result, "perf_summary", "proxy", "scenario")
    versions = _versions(RECORDERS, {proxy: row for (proxy, _), row in rows.items()})
    return [
        f"{machine(result['environment'], versions)}:", "",
        *grid(("µs of CPU", *(name for name, _ in RECORDERS)), [
            (what, *(figure(rows.get((key, scenario)), "cpu_us")
                     for _, key in RECORDERS))
            for what, scenario in (
                ("a recorded request", "record"), ("a replayed one", "replay"))]),
    ]  # fmt: skip


def recording_long(result: Result) -> list[str]:
    """Rates and costs of all scenarios, and how many URLs each proxy had."""
    rows = rows_by(result, "perf_summary", "proxy", "scenario")
    void = {row["proxy"] for row in result["rows"] if row["line"] == "perf_void"}
    table = []
    for name, key in (*RECORDERS[1:], RECORDERS[0]):
        own = {scenario: row for (proxy, scenario), row in rows.items() if proxy == key}
        if not own:
            continue
        version, urls = (next(iter(own.values())).get(column, "")
                         for column in ("version", "urls"))
        if key != "cutthrough" and version:
            name = f"{name} {short_version(version)}"
        lost = " (a run was lost)" if key in void else ""
        title = f"{name}{lost}, {shown(float(urls))} URLs"
        table.append((title, *(
            f"{figure(own[scenario], 'rate')} ({figure(own[scenario], 'cpu_us')})"
            if scenario in own else "" for scenario in SCENARIOS)))
    return [f"{machine(result['environment'], [])}:", "",
            *grid(("requests a second (CPU each, µs)", *SCENARIOS), table)]


def http2_table(result: Result) -> list[str]:
    """HTTP/2 between client and proxy."""
    rows = rows_by(result, "perf_http2", "server", "load")
    ratio = next(row for row in result["rows"] if "load" not in row)
    environment = result["environment"]
    versions = _versions(HTTP2_SERVERS, {server: row
                                         for (server, _), row in rows.items()})
    return [
        f"{machine(environment, [_tls(environment), *versions])}:", "",
        *grid(("µs of CPU a request", *(name for name, _ in HTTP2_SERVERS),
               "to the best"), [
            (what, *(figure(rows.get((server, load)), "us")
                     for _, server in HTTP2_SERVERS), f"{ratio[load]:.2f}")
            for what, load in HTTP2_LOADS]),
    ]  # fmt: skip


def balance_table(result: Result) -> list[str]:
    """Shares of three servers with the weights 3, 1 and 1, and what a request costs."""
    rows = rows_by(result, "perf_balance", "choose")
    shares = [f"share_{n}" for n in (1, 2, 3)]
    return [
        f"{machine(result['environment'], [])}:", "",
        *grid(("the server is chosen by", "shares", "requests a second", "p50, ms",
               "p99, ms", "µs of CPU a request"), [
            (way, ", ".join(f"{row[share]:.2f}" for share in shares),
             figure(row, "rate"), *(f"{row[key] / 1e3:.1f}"
                                    for key in ("p50_us", "p99_us")), figure(row, "us"))
            for way, row in rows.items()]),
    ]  # fmt: skip


def fingerprint_table(result: Result) -> list[str]:
    """What fingerprints cost: of a connection each, and of requests in all."""
    prints = rows_by(result, "perf_fingerprint_each", "name")
    loads = rows_by(result, "perf_fingerprint", "server", "load")
    ratio = next(row for row in result["rows"]
                 if row.get("line") == "perf_fingerprint_ratio")
    environment = result["environment"]
    lines = [f"{machine(environment, [_tls(environment)])}:", "",
             *grid(("of a connection", "µs, the least", "median", "at most"), [
                 (row["what"], f"{row['us']:.2f}", f"{row['us_median']:.2f}",
                  f"{row['most_us']:g}" if "most_us" in row else "")
                 for row in prints.values()]), ""]
    return [*lines, *grid(("µs of CPU in all", "without", "with", "ratio"), [
        (what, figure(loads.get((named, load)), "us"),
         figure(loads.get((f"{named}-fingerprints", load)), "us"), f"{ratio[load]:.3f}")
        for what, load in PRINTED_LOADS for named in ("cutthrough-named",)])]


def streams_table(result: Result) -> list[str]:
    """Long or many exchanges inside opened tunnels, of each proxy."""
    return costs(result, "perf_streams", CARRIERS, (
        ("a request by HTTP/2", "us_http2"),
        ("a call of gRPC with its message", "us_grpc"),
        ("a message of a WebSocket", "us_websocket")))


#: Of the report: each result, its command's title, and its table.
OTHERS: tuple[tuple[str, str, Callable[[Result], list[str]]], ...] = (
    ("intercept", "Requests inside opened tunnels", intercept_long),
    ("recording", "Recorded and replayed answers", recording_long),
    ("http2", "HTTP/2 between client and proxy", http2_table),
    ("fingerprint", "Fingerprints of clients", fingerprint_table),
    ("balance", "Three servers of one origin", balance_table),
    ("streams", "Streams inside opened tunnels", streams_table),
)
