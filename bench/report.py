"""One result as a static HTML page: the verdict and charts first, the method last.

Nothing is fetched: style and charts are in the page. Every figure is a link to the
line of JSON that it comes from, on a second page and, with the number it is given, in
the file of the result. Of each scenario the figure that answers its question is shown,
and the others are behind a click.
"""

from __future__ import annotations

import json
import re
import statistics
from html import escape
from pathlib import Path
from typing import Any

from bench.asked import FULL, LOGGED, field_table, in_words, verdict_table
from bench.charts import Bar, bar_chart, read_style, shown, step_chart, table
from bench.children import BenchError
from bench.figures import Figure, figures_of
from bench.report_method import METHOD
from bench.report_others import build_others
from bench.scenarios import GROUPS, SCENARIOS, STEPS
from bench.summary import is_unstable, median_name, number

Row = dict[str, Any]
#: The result, its summaries, micro rows, and the lines of the runs of each summary.
Loaded = tuple[Row, list[Row], list[Row], dict[tuple[str, str], list[int]]]


def _load(file: Path) -> Loaded:
    """Return the result, its summaries and micro rows with their `line`, and on which
    lines the runs of each summary are."""
    try:
        text = file.read_text()
        result = json.loads(text)
    except (OSError, ValueError) as error:
        raise BenchError(f"{file}: not a result: {error}") from None
    if isinstance(result, dict) and "results" not in result:
        raise BenchError(f"{file}: not a result of `bench run`; the report of a result "
                         "beside it has its table")
    section = ""
    spreads = _spreads(result["results"]) if isinstance(result, dict) else {}
    summaries: list[Row] = []
    micro: list[Row] = []
    runs: dict[tuple[str, str], list[int]] = {}
    for place, line in enumerate(text.splitlines(), 1):
        if line.startswith('"'):
            section = line.split('"')[1]
        if not line.startswith("{") or line == "{":
            continue
        row = {**json.loads(line.rstrip(",")), "line": place}
        if section == "results":
            runs.setdefault((row["scenario"], row["proxy"]), []).append(place)
        elif section == "summaries":
            row["spreads"] = spreads.get((row["scenario"], row["proxy"]), {})
            summaries.append(row)
        else:
            micro.append(row)
    return result, summaries, micro, runs


def _spreads(
    results: list[Row],
) -> dict[tuple[str, str], dict[str, tuple[float, float, bool]]]:
    """Return by scenario and proxy, and by the name that its median has, the least and
    the most of each figure, and whether it varies too much to be a result."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in results:
        of = values.setdefault((row["scenario"], row["proxy"]), {})
        for key in row:
            if (value := number(row, key)) is not None:
                of.setdefault(median_name(key), []).append(value)
    return {
        pair: {
            key: (min(many), max(many), is_unstable(many)) for key, many in of.items()
        }
        for pair, of in values.items()
    }


def _bar(row: Row, key: str, name: str = "") -> Bar:
    name = name or row["proxy"]
    if row.get("failed"):
        reason = str(row["reason"])
        reason = reason if len(reason) < 90 else reason[:90] + "…"
        return Bar(name, None, row["line"], note=f"void: {reason}")
    value = row.get(key)
    if value is None:
        return Bar(name, None, row["line"], note="–")
    bar = Bar(name, float(value), row["line"], title=f"line {row['line']} of the JSON")
    if spread := row["spreads"].get(key):
        bar.low, bar.high, unstable = spread
        bar.note = "unstable" if unstable else ""
    return bar


def _charts(rows: list[Row], figures: tuple[Figure, ...]) -> str:
    charts = [
        bar_chart(title, unit, [_bar(row, key) for row in rows])
        for title, unit, key in figures
        if any(row.get(key) is not None for row in rows)
    ]
    charts = [chart for chart in charts if chart]
    if not charts:  # all are void: say so once
        return _void_list(rows)
    if not charts[1:]:
        return charts[0]
    titles = ", ".join(
        title.lower() for title, _, key in figures[1:]
        if any(row.get(key) is not None for row in rows)
    )  # fmt: skip
    return (
        f"{charts[0]}<details><summary>{escape(titles)}</summary>"
        f'<div class="charts">{"".join(charts[1:])}</div></details>'
    )


def _void_list(rows: list[Row]) -> str:
    lines = "".join(
        f"<li>{escape(row['proxy'])}: {escape(str(row.get('reason', '–')))}</li>"
        for row in rows
    )
    return f"<ul>{lines}</ul>"


def _link(row: Row, key: str) -> str:
    value = row.get(key)
    return f'<a href="#L{row["line"]}">{shown(value)}</a>' if value is not None else "–"


def _page_table(rows: list[Row]) -> str:
    keys = {
        "pages/s": "pages_median_per_s", "avg ms": "page_avg_median_ms",
        "min": "page_min_median_ms", "max": "page_max_median_ms",
        "sd": "page_sd_median_ms", "error %": "page_error_median_percent",
        "MiB/s": "mib_median_per_s",
    }  # fmt: skip
    good = [row for row in rows if not row.get("failed")]
    cells = [[escape(r["proxy"]), *(_link(r, k) for k in keys.values())] for r in good]
    return table(["proxy", *keys], cells)


def _steps(rows: list[Row]) -> str:
    ticks = [f"{rate}/s" for rate in STEPS]
    charts = []
    for title, unit, key in (
        ("Latency p95", "ms", "p95_ms"),
        ("CPU on average", "percent", "cpu_avg_percent"),
        ("CPU at most", "percent", "cpu_peak_percent"),
        ("Memory on average", "KiB", "rss_avg_kib"),
        ("Memory at most", "KiB", "rss_peak_kib"),
    ):  # fmt: skip
        lines: dict[str, tuple[list[Any], int]] = {}
        for row in rows:
            values = [
                row.get(median_name(f"step{n}_{rate}_{key}"))
                for n, rate in enumerate(STEPS, 1)
            ]
            if None not in values:
                lines[row["proxy"]] = (values, row["line"])
        charts.append(step_chart(title, unit, ticks, lines))
    return f'<div class="charts">{"".join(charts)}</div>'


def _stands_in(scenario: str, proxy: str) -> bool:
    """Is this row one of the scenario's own, and not one of what features cost?"""
    own = proxy.startswith(FULL) or SCENARIOS[scenario].group == 6
    return own or not proxy.startswith("cutthrough-")


def _scenario(name: str, rows: list[Row], pairs: list[list[str]]) -> str:
    scenario = SCENARIOS[name]
    out = [f'<h3 id="{name}">{name}</h3><p class="about">{escape(scenario.about)}</p>']
    shown_rows = [row for row in rows if _stands_in(name, row["proxy"])]
    if scenario.tool == "steps":
        out.append(_steps(shown_rows))
    else:
        out.append(_charts(shown_rows, figures_of(name)))
    if scenario.mode == "page":
        out.append(_page_table(shown_rows))
    control = next((r for r in rows if r["proxy"] == "direct-again"), None)
    if control and "ratio_to_direct" in control:
        out.append(
            "<p>The harness against itself: direct-again is "
            f"{_link(control, 'ratio_to_direct')} of direct (from"
            f" {shown(control['ratio_to_direct_min'])} to"
            f" {shown(control['ratio_to_direct_max'])}).</p>"
        )
    left_out = [f"{proxy} ({why})" for which, proxy, why in pairs if which == name]
    if left_out:
        out.append(f'<p class="about">Not in it: {escape(", ".join(left_out))}.</p>')
    return "".join(out)


def _features(summaries: list[Row]) -> str:
    out = []
    names = dict.fromkeys(
        row["scenario"] for row in summaries
        if row["proxy"].startswith("cutthrough-")
        and not row["proxy"].startswith((FULL, LOGGED))
    )  # fmt: skip
    for name in names:
        rows = [
            row for row in summaries
            if row["scenario"] == name and not row["proxy"].startswith(FULL)
            and row["proxy"].startswith(("cutthrough", SCENARIOS[name].yardstick))
        ]  # fmt: skip
        about = escape(SCENARIOS[name].about)
        out.append(f'<h3 id="features-{name}">{name}</h3><p class="about">{about}</p>')
        out.append(_charts(rows, figures_of(name)))
    return "".join(out)


#: What disturbs a loop only ever makes it slower.
BEST = "the quickest of the repetitions"
NOTHING_NS = 0.1


def _micro(rows: list[Row]) -> str:
    bars: dict[bool, list[Bar]] = {False: [], True: []}
    for row in rows:
        note = f"{row['ns_per_byte']:.2f} ns/byte" if "ns_per_byte" in row else ""
        if row.get("against"):
            note = f"{note} {row['against']}"
        bar = Bar(row["name"], row["ns"], row["line"], note=note)
        if row["ns"] < NOTHING_NS:
            bar.value, bar.note = None, "the compiler leaves nothing of the loop"
        bars[row.get("bytes", 0) > 4096].append(bar)
    about = "; ".join(f"{row['name']}: {row['question']}" for row in rows)
    unit = f"ns each, {BEST}, less is better"
    chart = bar_chart("Loops in C, no sockets", unit, bars[False], cut=False)
    chart += bar_chart("Whole bodies in chunks", unit, bars[True], cut=False)
    return f'{chart}<p class="about">{escape(about)}.</p>'


def _facts(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_facts(v)}" for k, v in value.items() if v)
    if isinstance(value, list):
        return " ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in value)
    return str(value)


#: The environment in a line; all of it is behind it.
SHORT = (
    ("cpu", ""), ("usable_cores", "cores:"), ("kernel", "Linux"), ("python", "Python"),
    ("cutthrough", ""), ("commit", "commit"), ("build", "build:"),
    ("command", "command:"),
)  # fmt: skip


def _method(result: Row) -> str:
    environment = result["environment"]
    rows = [[escape(k), escape(_facts(v))] for k, v in environment.items()]
    others = [row["others_percent"] for row in result["results"]
              if "others_percent" in row]  # fmt: skip
    if others:
        said = f"{statistics.median(others):.0f} % of a core in the median run"
        rows.append(["what others took", f"{said}, {max(others):.0f} % at most"])
    skipped = result["skipped"]
    names = {**skipped["proxies"], **skipped["scenarios"]}
    text = "".join(f"<li>{escape(k)}: {escape(v)}</li>" for k, v in names.items())
    late: dict[str, list[str]] = {}
    for scenario, proxy, runs in skipped.get("late", []):
        late.setdefault(scenario, []).append(f"{proxy} ({runs} runs)")
    text += "".join(
        f"<li>{escape(k)}, for want of time: {escape(', '.join(which))}</li>"
        for k, which in late.items()
    )
    text += "".join(
        f"<li>{escape(f'{proxy} in {scenario}: {why}')}</li>"
        for scenario, proxy, why in skipped["pairs"]
    )
    return (
        f'<h2 id="method">Method</h2>{METHOD}'
        f'<h2 id="environment">Environment</h2>{table(["what", "is"], rows)}'
        f'<h2 id="skipped">Skipped</h2>'
        f"{f'<ul>{text}</ul>' if text else '<p>Nothing.</p>'}"
    )


def _verdict(result: Row, file: Path, lines: str) -> str:
    """Return what came out in words, and on which machine."""
    environment = result["environment"]
    short = ", ".join(
        escape(f"{name} {environment[key]}".strip())
        for key, name in SHORT if environment.get(key)
    )  # fmt: skip
    return (
        f'<p class="verdict">{escape(in_words(result["results"]))}</p>'
        f'<p class="about">{short}. All runs: <a href="{escape(file.name)}">'
        f'{escape(file.name)}</a>; <a href="{escape(lines)}">each figure\'s line</a>.'
        "</p>"
    )


#: Of what a chapter asks. The others have the names of their groups.
CHAPTERS = {
    "asked": "What is asked", "costs": "The field", "short": "In short",
    "micro": "Micro benches", "others": "Other benches", "method": "Method",
    "environment": "Environment", "skipped": "Skipped",
    "peers": "Peers and their configuration",
}  # fmt: skip


def _contents(body: str) -> str:
    """Return links to the chapters that the page has, and to each scenario."""
    entries = []
    for chapter in re.split(r'(?=<h2 id=")', body)[1:]:
        place, _, rest = chapter.removeprefix('<h2 id="').partition('"')
        title = rest.partition(">")[2].partition("</h2>")[0]
        below = ", ".join(
            f'<a href="#{name}">{name.removeprefix("features-")}</a>'
            for name in re.findall(r'<h3 id="([^"]+)"', chapter)
        )
        entries.append(
            f'<li><a href="#{place}">{title}</a>{f": {below}" if below else ""}</li>'
        )
    return f"<nav><ul>{''.join(entries)}</ul></nav>"


def _asked(result: Row, summaries: list[Row]) -> str:
    """Return what is asked of the data plane and what each proxy of the field costs."""
    lines = {(row["scenario"], row["proxy"]): row["line"] for row in summaries}

    def link(scenario: str, proxy: str, text: str) -> str:
        line = lines.get((scenario, proxy))
        return f'<a href="#L{line}">{text}</a>' if line and text != "–" else text

    rows = result["results"]
    return (
        f'<h2 id="asked">{CHAPTERS["asked"]}</h2>'
        '<p class="about">cutthrough-log: one worker, credentials and an access log.'
        " cutthrough-full: hashed users, a policy and a log in JSON. Each figure is the"
        " median of the ratios of two runs of one repetition, CPU against CPU where"
        " nothing else is said; the spread is from the least to the most of them, and"
        " it held where the median did.</p>"
        f"{verdict_table(rows, link)}"
        f'<h2 id="costs">{CHAPTERS["costs"]}</h2><p class="about">CPU of the whole'
        " process tree, µs for a request, for a MiB, and private memory.</p>"
        f"{field_table(summaries, rows, link)}"
    )


def _in_short(summaries: list[Row]) -> str:
    """Return cutthrough's ratios, a row for each scenario that has any."""
    keys = ("ratio_to_direct", "ratio", "p95_ratio", "cpu_ratio")
    cells = []
    for row in summaries:
        if row["proxy"] == "cutthrough" and any(row.get(key) for key in keys):
            name = escape(row["scenario"])
            figures = [_link(row, key) for key in keys]
            mark = "unstable" if row.get("unstable") else ""
            link = f'<a href="#{name}">{name}</a>'
            cells.append([link, *figures, escape(row.get("yardstick", "–")), mark])
    head = ["scenario", "rate of direct", "rate of the relay", "its p95", "its CPU"]
    about = "cutthrough's figures divided by those of no proxy, and of the relay named"
    return f'<p class="about">{about}.</p>{table([*head, "relay", ""], cells)}'


def _peers(result: Row) -> str:
    out = []
    for name, peer in result["peers"].items():
        files = "".join(
            f"<p>{escape(path)}</p><pre>{escape(text).replace(chr(10), '&#10;')}</pre>"
            for path, text in peer["files"].items()
        )
        files = files or f"<p>see bench/peers/{escape(name)}/</p>"
        title = f"{name} {peer['version']} ({peer['source']})"
        out.append(f"<details><summary>{escape(title)}</summary>{files}</details>")
    origin = escape(result["origin_config"]).replace(chr(10), "&#10;")
    out.append(f"<details><summary>the origin</summary><pre>{origin}</pre></details>")
    return "".join(out)


def _read(file: Path) -> Loaded:
    """Return the parts of a result of this version. Raises BenchError."""
    loaded = _load(file)
    unknown = {row["scenario"] for row in loaded[1]} - SCENARIOS.keys()
    if unknown or "skipped" not in loaded[0]:
        raise BenchError(f"{file} is of another version: {', '.join(unknown)}")
    return loaded


def build_report(file: Path, lines: str = "lines.html") -> str:
    """Return the page for a result; `lines` is the name of the page of its lines.
    Raises BenchError when it is none."""
    result, summaries, micro, _ = _read(file)
    out = [_asked(result, summaries)]
    for group, about in GROUPS.items():
        names = dict.fromkeys(
            row["scenario"] for row in summaries
            if SCENARIOS[row["scenario"]].group == group
        )  # fmt: skip
        body = "".join(
            _scenario(name, [r for r in summaries if r["scenario"] == name],
                      result["skipped"]["pairs"])
            for name in names
        )  # fmt: skip
        body += _features(summaries) if group == 6 else ""
        if body:
            out.append(f'<h2 id="group-{group}">{group}. {escape(about)}</h2>{body}')
    out.append(f'<h2 id="short">{CHAPTERS["short"]}</h2>{_in_short(summaries)}')
    if micro:
        out.append(f'<h2 id="micro">{CHAPTERS["micro"]}</h2>{_micro(micro)}')
    if others := build_others(file.parent):
        out.append(f'<h2 id="others">{CHAPTERS["others"]}</h2>{others}')
    out.append(_method(result))
    out.append(f'<h2 id="peers">{CHAPTERS["peers"]}</h2>{_peers(result)}')
    body = "".join(out)
    head = f"<h1>cutthrough beside the field</h1>{_verdict(result, file, lines)}"
    page = f"{head}{_contents(body)}{body}"
    place = f'href="{escape(lines)}#L'
    return _page("cutthrough: benchmark", page.replace('href="#L', place))


def build_lines(file: Path) -> str:
    """Return the page of the lines of JSON that the figures come from. Raises
    BenchError when it is no result."""
    _, summaries, micro, runs = _read(file)
    out = [f'<h1>{escape(file.name)}</h1><div class="json">']
    for row in [*summaries, *micro]:
        where = runs.get((row.get("scenario", ""), row.get("proxy", "")), [])
        of = f" runs: lines {', '.join(map(str, where))}" if where else ""
        data = json.dumps({k: row[k] for k in row if k not in ("line", "spreads")})
        link = f'<a href="{escape(file.name)}">line {row["line"]}</a>{of}'
        out.append(f'<div id="L{row["line"]}">{link}<br>{escape(data)}</div>')
    return _page("cutthrough: lines of a benchmark", f"{''.join(out)}</div>")


def _page(title: str, body: str) -> str:
    text = body.replace("\n", " ")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title>"
        f"<style>{read_style()}</style></head><body>{text}</body></html>\n"
    )
