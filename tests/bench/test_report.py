"""The report of one result: whole, honest about missing rows, and self-contained."""

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.blocks import Skipped
from bench.children import BenchError
from bench.page_tables import OTHERS, recording_long
from bench.report import build_lines, build_report
from bench.report_readme import BLOCKS, END, Block, render_pages, stale_pages
from bench.result import write_result
from bench.scenarios import SCENARIOS, STEPS
from bench.summary import summarise


def run(scenario: str, proxy: str, repetition: int, **more: Any) -> dict[str, object]:
    return {
        "scenario": scenario, "proxy": proxy, "repetition": repetition,
        "requests": 1000, "throughput_rps": 900.0 + 10 * repetition,
        "latency_p50_ms": 1.0, "latency_p95_ms": 2.0, "latency_p99_ms": 3.0,
        "cpu_us_per_request": 12.0, **more,
    }  # fmt: skip


@pytest.fixture
def result(tmp_path: Path) -> Path:
    runs = []
    for repetition in (1, 2, 3):
        for scenario in SCENARIOS:
            for proxy in ("direct", "relay", "cutthrough", "cutthrough-log"):
                runs.append(run(scenario, proxy, repetition, p99_factor=1.0))
        runs.append(run("plain-keepalive", "direct-again", repetition))
        steps = {f"step{n}_{r}_p95_ms": float(r) for n, r in enumerate(STEPS, 1)}
        runs.append(run("steps", "squid", repetition, **steps))
    runs.append({"scenario": "page", "proxy": "apache", "failed": "<3 errors>"})
    skipped = Skipped(
        {"tinyproxy": "apt:tinyproxy is not installed"},
        {"idle-10000": "needs 21000 descriptors, 20000 may be had"},
        [("ping-c100", "nginx", "knows no CONNECT")],
        {("soak", "relay"): 2},
    )
    micro: list[dict[str, object]] = [
        {"name": "timer-move", "ns": 3.5, "question": "a deadline moved"},
        {"name": "event-off", "ns": 4e-8, "question": "none noted"},
        {"name": "head-request", "ns": 350.0, "question": "a head", "bytes": 489},
    ]
    file = tmp_path / "field.json"
    write_result(
        file, {"cpu": "a <fast> one", "load_average": [0.5, 0.5]}, "nginx's file\n",
        skipped, runs, summarise(runs), micro,
    )  # fmt: skip
    return file


def test_each_run_has_a_line_of_its_own(result: Path) -> None:
    lines = result.read_text().splitlines()
    rows = [json.loads(line.rstrip(",")) for line in lines if line[:5] == '{"sce']
    whole = json.loads(result.read_text())
    assert rows == whole["results"] + whole["summaries"]


class Page(html.parser.HTMLParser):
    """The URLs that a browser would fetch, the anchors, and tags that stay open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        self.fetched += [
            f"{tag} {name}"
            for name in ("src", "srcset", "data", "poster")
            if name in values
        ]
        if tag in {"link", "script", "iframe", "img"}:
            self.fetched.append(tag)
        if tag == "a":
            self.links.append(values.get("href") or "")
        if "id" in values:
            self.ids.add(values["id"] or "")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass  # SVG's shapes

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(result: Path) -> None:
    text = build_report(result)
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    # In a peer's configuration they are text.
    mine = re.sub(r"<pre>.*?</pre>", "", text)
    assert not re.search(r"https?://|url\(|@import", mine)
    lines = Page()
    lines.feed(build_lines(result))
    assert lines.open == lines.fetched == [] and set(lines.links) == {"field.json"}
    figures = [link.removeprefix("lines.html#") for link in page.links
               if link.startswith("lines.html#")]  # fmt: skip
    assert len(figures) > 100
    assert set(figures) <= lines.ids
    places = {link[1:] for link in page.links if link[0] == "#"}
    assert places <= page.ids
    assert {f"group-{group}" for group in range(1, 9)} <= places, "the contents"
    assert {link for link in page.links if link[0] != "#" and "#" not in link} == {
        "field.json", "lines.html"}  # fmt: skip


def test_what_is_missing_is_named(result: Path) -> None:
    text = build_report(result)
    assert "tinyproxy: apt:tinyproxy is not installed" in text
    assert "idle-10000: needs 21000 descriptors" in text
    assert "nginx (knows no CONNECT)" in text
    assert "soak, for want of time: relay (2 runs)" in text
    assert "nginx in ping-c100: knows no CONNECT" in text
    assert "void: &lt;3 errors&gt;" in text
    assert "a &lt;fast&gt; one" in text


def test_every_figure_stands_on_the_line_that_it_names(result: Path) -> None:
    lines = result.read_text().splitlines()
    entries = re.findall(r'<div id="L(\d+)">.*?<br>(.*?)</div>', build_lines(result))
    assert entries
    for number, data in entries:
        line = json.loads(lines[int(number) - 1].rstrip(","))
        assert json.loads(html.unescape(data)) == line


def test_the_verdict_comes_first_then_charts_and_the_method_last(result: Path) -> None:
    """They began after three screens, and after 68 653 pixels came the last figure."""
    text = build_report(result)
    assert re.search(r"</h1><p class=.verdict.>[^<]* held\b", text)
    assert text.index("<nav>") < text.index("<h2")
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert heads[:2] == ["What is asked", "The field"]
    assert [head[0] for head in heads[2:10]] == list("12345678")
    assert heads[10:] == ["In short", "Micro benches", "Method", "Environment",
                          "Skipped", "Peers and their configuration"]  # fmt: skip


def test_a_question_has_one_chart_and_the_others_behind_a_click(result: Path) -> None:
    part = build_report(result).split('<h3 id="plain-1k"')[1].partition("<h3")[0]
    shown, _, more = part.partition("<details>")
    assert shown.count("<figure>") == 1 and more.count("<figure>") >= 2


def test_every_bar_has_its_spread_and_says_when_it_is_none(result: Path) -> None:
    """Only rates had one: the claims are about CPU."""
    rows = json.loads(result.read_text())
    for row in rows["results"]:
        if row["scenario"] == "plain-1k" and row["proxy"] == "relay":
            row["cpu_us_per_request"] = 10.0 * row["repetition"]
    write_result(
        result, rows["environment"], "", Skipped(), rows["results"],
        summarise(rows["results"]), [],
    )  # fmt: skip
    chart = build_report(result).split('id="plain-1k"')[1].split("<figure>")[2]
    ours, relay = chart.split('class="row"')[3], chart.split('class="row"')[2]
    assert "CPU of the proxy" in chart
    assert "whisker" in relay and "unstable" in relay
    assert "whisker" not in ours and "unstable" not in ours


def test_a_loop_of_which_nothing_is_left_does_not_flatten_the_others(
    result: Path,
) -> None:
    """One of 4e-8 ns had every other bar cut, at the same length."""
    chart = build_report(result).split('id="micro"')[1].split("</figure>")[0]
    assert re.findall(r'width="([\d.]+)%"', chart) == ["1.00", "100.00"]
    assert "are cut" not in chart and "leaves nothing" in chart


def test_results_beside_it_have_their_tables(result: Path) -> None:
    """Only the scenarios were in it."""
    assert "Other benches" not in build_report(result)
    for name, _, _ in OTHERS:
        file = TREE / f"bench/results/{name}.json"
        (result.parent / file.name).write_text(file.read_text())
    text = build_report(result)
    Page().feed(text)
    part = text.split('<h2 id="others">')[1].partition("<h2")[0]
    for name, title, _ in OTHERS:
        assert f'<h3 id="{name}">{title}</h3>' in part
    assert part.count("<table") == len(OTHERS) + 1        # fingerprints have two
    balance = json.loads((result.parent / "balance.json").read_text())["rows"]
    assert all(f"<td>{row['choose']}</td>" in part for row in balance)


@pytest.mark.parametrize("text", ["[", '{"rows": []}'])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    """A result of a bench without scenarios ended with a KeyError."""
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BenchError, match="not a result"):
        build_report(tmp_path / "x.json")


TREE = Path(__file__).parents[2]


def test_the_pages_have_the_figures_of_the_committed_results() -> None:
    """README's tables were written by hand, and did not name the machine."""
    assert stale_pages(TREE) == []
    assert {block.page for block in BLOCKS} >= {
        "README.md", "docs/benchmarking.md", "docs/fingerprints.md"}


def test_a_page_with_other_figures_is_named(tmp_path: Path) -> None:
    for block in BLOCKS:
        for name in (block.page, block.file):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text((TREE / name).read_text())
    assert stale_pages(tmp_path) == []
    page = tmp_path / "docs/fingerprints.md"
    before, mark, block_text = page.read_text().partition("<!-- bench/results/")
    page.write_text(before + mark + block_text.replace("| ", "| 1", 1))
    assert stale_pages(tmp_path) == ["docs/fingerprints.md"]
    (tmp_path / "bench/results/http2.json").unlink()
    with pytest.raises(BenchError, match=r"^bench/results/http2\.json: "):
        render_pages(tmp_path)


def test_a_proxy_without_a_version_has_its_name_alone() -> None:
    """replayproxy prints none."""
    row = {"line": "perf_summary", "scenario": "record", "urls": 3000, "rate": 9.0,
           "cpu_us": 2.0}
    environment = {"cpu": "A", "usable_cores": 2, "kernel": "6.1-x", "python": "3.11",
                   "cutthrough": "cutthrough 1", "commit": "c" * 40, "changed": True}
    lines = recording_long({"environment": environment, "rows": [
        row | {"proxy": "replayproxy", "version": ""},
        row | {"proxy": "cutthrough", "version": "this tree"},
        {"line": "perf_void", "proxy": "replayproxy", "reason": "lost"}]})
    assert lines[0].endswith("3.11, cutthrough 1 (cccccccc, changed):")
    assert [line.replace("\u202f", " ") for line in lines[-2:]] == [
        "| replayproxy (a run was lost), 3 000 URLs | | 9 (2) | | | |",
        "| cutthrough, 3 000 URLs | | 9 (2) | | | |"]


def test_a_block_needs_its_marks_and_its_rows() -> None:
    block = Block("page.md", "none", BLOCKS[1].build)
    with pytest.raises(BenchError, match=r"^page\.md has no "):
        block.render("text", {})
    with pytest.raises(BenchError, match=r"none\.json: the result has no "):
        block.render(f"{block.begin}\n{END}", {"environment": {}, "rows": []})
