"""Every figure of README's tables is in the committed result that it links to."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from bench.asked import FULL, LOGGED, group_runs, judge
from bench.plan import guard
from bench.scenarios import SCENARIOS

TREE = Path(__file__).resolve().parents[2]
README = (TREE / "README.md").read_text()
CPU, P50, MIB = "cpu_us_per_request", "latency_p50_ms", "cpu_us_per_mib"
#: Of each line of the table: its scenario, what it shows, how many units one is.
LINES = (
    ("plain-keepalive", CPU, 1), ("plain-16k", CPU, 1), ("plain-new", CPU, 1),
    ("connect-setup", CPU, 1), ("ping-c100", CPU, 1), ("ping-c1", P50, 1000),
    ("ping-c1-apart", P50, 1000), ("bulk", MIB, 1),
)  # fmt: skip


def result(name: str) -> dict[str, Any]:
    return dict(json.loads((TREE / f"bench/results/{name}.json").read_text()))


def table() -> list[list[str]]:
    head = README.index("| | lean relay | relay | cutthrough | to the lean")
    rows = README[head:].split("\n<!--")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def told(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", text)


def rounded(value: float, like: str) -> str:
    return f"{value:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize("number", range(len(LINES)))
def test_a_line_of_the_table_is_what_was_measured(number: int) -> None:
    scenario, key, units = LINES[number]
    what, *cells = table()[number]
    rows = result("asked")["results"]
    runs = group_runs(rows)
    relay = SCENARIOS[scenario].yardstick
    peers = "haproxy-http" if scenario.startswith("plain") else "haproxy-tcp"
    if scenario == "bulk":
        peers = "haproxy-splice"
    for proxy, cell in zip(
        ("lean", relay, LOGGED, FULL, peers, "nginx"),
        cells[:3] + cells[4:5] + cells[6:], strict=True,
    ):
        if (scenario, proxy) not in runs:
            assert cell in ("", "–"), (what, proxy)
            continue
        value = units * statistics.median(row[key] for row in runs[scenario, proxy])
        shown = told(cell)[0]
        assert rounded(value, shown) == shown, (what, proxy)
    verdict = next(
        one for one in judge(rows)
        if one.scenario == scenario and "rate" not in one.what
    )  # fmt: skip
    median, *spread = told(cells[3])
    assert verdict.median is not None
    assert rounded(verdict.median, median) == median, what
    ends = (min(verdict.values), max(verdict.values))
    assert [rounded(*pair) for pair in zip(ends, spread, strict=True)] == spread, what


def test_the_sentences_round_the_table_are_true() -> None:
    field = result("asked")
    text = " ".join(README.split())
    assert f"{len(field['results'])} runs, none void" in text
    assert not any("failed" in row for row in field["results"])
    assert f"took {field['environment']['took_seconds'] / 60:.0f} minutes" in text
    assert field["environment"]["command"] in text
    assert not field["environment"]["changed"]
    idle = next(one for one in judge(field["results"]) if one.scenario == "idle-10000")
    assert idle.median is not None and f"{idle.median:.0f} B" in table()[-1][5]


def block(name: str) -> tuple[str, list[list[str]]]:
    """What stands above the table of this result, and its rows."""
    begin = f"<!-- bench/results/{name}.json, by python -m bench readme -->\n"
    text = README.partition(begin)[2].partition("<!-- end")[0]
    above, _, rows = text.partition("\n\n")
    return above, [[cell.strip() for cell in row.strip("|").split("|")]
                   for row in rows.strip().splitlines() if not row.startswith("|-")]


def is_rounded(cell: str, row: dict[str, Any] | None, key: str) -> bool:
    """Is this the row's figure, thousands apart; or a dash for a row there is not?"""
    if row is None:
        return cell == "–"
    shown = cell.replace("\u202f", "").replace(" ", "")
    return rounded(row[key], shown) == shown


def rows_of(name: str, line: str) -> list[dict[str, Any]]:
    return [row for row in result(name)["rows"] if row["line"] == line]


def test_what_an_opened_tunnel_costs_is_what_was_measured() -> None:
    rows = {row["proxy"]: row for row in rows_of("intercept", "perf_intercept")}
    _, (head, kept, new) = block("intercept")
    assert head == ["µs of CPU", "cutthrough", "squid, ssl_bump", "VEY", "mitmproxy"]
    names = ("cutthrough", "squid-bump", "vey", "mitmproxy-open")
    for key, (what, *cells) in (("us_kept", kept), ("us_new", new)):
        for name, cell in zip(names, cells, strict=True):
            assert is_rounded(cell, rows.get(name), key), (what, name)
    assert not sum(row["failed"] for row in rows_of("intercept",
                                                    "perf_intercept_ratio"))


def test_what_a_recording_costs_is_what_was_measured() -> None:
    rows = {(row["proxy"], row["scenario"]): row
            for row in rows_of("recording", "perf_summary")}
    _, (head, *lines) = block("recording")
    assert head == ["µs of CPU", "cutthrough", "replayproxy", "hoverfly", "mitmproxy"]
    for scenario, (what, *cells) in zip(("record", "replay"), lines, strict=True):
        for name, cell in zip(head[1:], cells, strict=True):
            row = rows.get((name, scenario))
            assert is_rounded(cell, row, "cpu_us"), (what, name)


def test_a_recording_is_kept_with_all_that_is_asked_of_it() -> None:
    rows = rows_of("recording", "perf_result")
    assert {row["scenario"] for row in rows if row["proxy"] == "cutthrough"} >= {
        "plain", "record", "replay", "cold", "warm"}
    for row in rows:
        assert row.keys() >= {
            "requests", "success", "errors", "total_ms", "bytes", "rss_before_kib",
            "rss_kib", "rss_most_kib", "hits", "misses", "rate", "latency_p95_ms"}
    for row in rows_of("recording", "perf_summary"):
        assert row["p95_least_ms"] <= row["p95_ms"] <= row["p95_most_ms"]


@pytest.mark.parametrize("name", ["intercept", "recording"])
def test_a_table_names_its_machine_and_its_commit(name: str) -> None:
    environment, (above, _) = result(name)["environment"], block(name)
    for key in ("cpu", "python", "cutthrough"):
        assert environment[key] in above
    assert environment["commit"][:8] in above and "changed" not in above
    assert environment["command"].startswith(f"python -m bench {name} ")


def test_the_baseline_has_every_row_that_is_compared() -> None:
    rows = {(row["scenario"], row["proxy"]) for row in result("baseline")["summaries"]}
    assert rows == {
        (scenario, proxy)
        for part in guard() for scenario in part.scenarios for proxy in part.proxies
    }  # fmt: skip
