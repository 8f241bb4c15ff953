"""One result as one static HTML page: method and environment first, then the figures.

Nothing is fetched: style and charts are in the page. Every figure is a link to the
line of JSON that it comes from, which is at the end of the page and, with the number
it is given, in the file of the result.
"""

from __future__ import annotations

import json
import statistics
from html import escape
from pathlib import Path
from typing import Any

from bench.asked import FULL, field_table, verdict_table
from bench.charts import Bar, bar_chart, read_style, shown, step_chart, table
from bench.children import BenchError
from bench.scenarios import GROUPS, SCENARIOS, STEPS
from bench.summary import median_name

Row = dict[str, Any]

METHOD = """<p>Each scenario is run through each proxy in turn (A B C, C B A …), every
run with a fresh process, on one machine. The bars are medians; the thin line is from
the slowest to the fastest repetition. Figures of one chart may be compared with each
other, not with those of another run or machine.</p><ul>
<li><b>direct</b> is no proxy at all, <b>relay</b> a blind C loop that copies bytes and
reads nothing, <b>relay-splice</b> the same by splice(2): what the machine can do, and
what any user-space proxy could.</li>
<li>A run counts only if the client saw no error, every status and length was right, and
the origin logged as many requests as the client counted. Else it is <b>void</b> and has
no bar.</li>
<li>CPU is that of the proxy's whole process tree, its children included: it survives a
noisy neighbour better than a rate.</li>
<li><b>unstable</b>: the coefficient of variation of the repetitions is over 0.20. Not a
result.</li>
<li>Every forward proxy checks Basic credentials on each request or tunnel, and keeps no
log and no cache; the blind ones cannot. Their configuration files are below.</li>
</ul>"""


def _load(
    file: Path,
) -> tuple[Row, list[Row], list[Row], dict[tuple[str, str], list[int]]]:
    """Return the result, its summaries and micro rows with their `line`, and on which
    lines the runs of each summary are."""
    try:
        text = file.read_text()
        result = json.loads(text)
    except (OSError, ValueError) as error:
        raise BenchError(f"{file}: not a result: {error}") from None
    section = ""
    summaries: list[Row] = []
    micro: list[Row] = []
    runs: dict[tuple[str, str], list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith('"'):
            section = line.split('"')[1]
        if not line.startswith("{") or line == "{":
            continue
        row = {**json.loads(line.rstrip(",")), "line": number}
        if section == "results":
            runs.setdefault((row["scenario"], row["proxy"]), []).append(number)
        else:
            (summaries if section == "summaries" else micro).append(row)
    return result, summaries, micro, runs


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
    if key == "throughput_median_rps" and row["runs"] > 1:
        bar.low, bar.high = row["throughput_min_rps"], row["throughput_max_rps"]
        if row.get("unstable"):
            bar.note = "unstable"
    return bar


#: Which figures a scenario shows: title, unit, key of the summary. Charts that no row
#: has a value for are left out.
_USUAL = (
    ("Requests", "a second, more is better", "throughput_median_rps"),
    ("CPU of the proxy", "µs a request, less is better", "cpu_us_per_request_median"),
    ("Latency p99", "ms, less is better", "latency_p99_median_ms"),
)
_BULK = (
    ("Throughput", "MiB a second, more is better", "mib_median_per_s"),
    ("CPU of the proxy", "µs a MiB, less is better", "cpu_median_us_per_mib"),
    ("Latency p99", "ms for one body, less is better", "latency_p99_median_ms"),
)
_RATE = tuple(
    (f"Latency {name}", "ms, less is better", f"latency_{key}_median_ms")
    for name, key in (
        ("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("p99.9", "p999"),
        ("max", "max"),
    )
)  # fmt: skip
_PAGE = (
    ("Pages", "a second, more is better", "pages_median_per_s"),
    ("A page on average", "ms, less is better", "page_avg_median_ms"),
    ("CPU of the proxy", "µs a request, less is better", "cpu_us_per_request_median"),
)
_IDLE = (
    (
        "Memory of a tunnel at rest",
        "bytes, less is better",
        "uss_bytes_per_tunnel_median",
    ),
    ("CPU at rest", "percent of a core", "cpu_at_rest_median_percent"),
)
_LIFE = (
    ("Start to first answer", "ms, less is better", "start_median_ms"),
    ("SIGTERM to end", "ms, less is better", "stop_median_ms"),
)
_SOAK = (
    ("Growth of memory", "KiB a minute", "rss_slope_kib_per_minute_median"),
    ("Growth of descriptors", "a minute", "fds_slope_per_minute_median"),
    ("Memory at most", "KiB", "rss_peak_median_kib"),
)
_CROWD = (
    ("With 100 open", "requests a second", "quiet_median_rps"),
    ("With 10 000 open", "a second, more is better", "throughput_median_rps"),
    ("One of the other", "more is better", "crowd_ratio_median"),
    (
        "Memory of a connection at rest", "bytes, less is better",
        "uss_bytes_per_connection_median",
    ),
)  # fmt: skip
_WORKERS = (
    ("Each with a fifth of a core", "requests a second", "throughput_median_rps"),
    ("As they are", "requests a second", "free_median_rps"),
    ("CPU of the proxy", "µs a request, less is better", "cpu_us_per_request_median"),
)
_HOSTILE = (
    ("p99 of the steady load, alone", "ms", "quiet_p99_median_ms"),
    ("p99 beside the hostile clients", "ms, less is better", "latency_p99_median_ms"),
    ("How many times worse", "more than 2 is a fault", "p99_factor_median"),
)


def _figures_of(name: str) -> tuple[tuple[str, str, str], ...]:
    scenario = SCENARIOS[name]
    own = {
        "idle": _IDLE, "lifecycle": _LIFE, "soak": _SOAK, "hostile": _HOSTILE,
        "crowd": _CROWD, "workers": _WORKERS, "tail": (*_RATE, _USUAL[1]),
    }.get(scenario.tool)  # fmt: skip
    if own:
        return own
    if scenario.mode.startswith("rate"):
        return (*_RATE, _USUAL[1])
    if scenario.mode == "page":
        return _PAGE
    bulk = scenario.path in ("/1m", "/128k", "/up", "/both")
    return _BULK if bulk else _USUAL


def _charts(rows: list[Row], figures: tuple[tuple[str, str, str], ...]) -> str:
    charts = [
        bar_chart(title, unit, [_bar(row, key) for row in rows])
        for title, unit, key in figures
        if any(row.get(key) is not None for row in rows)
    ]
    if not charts:  # all are void: say so once
        charts = [_void_list(rows)]
    return f'<div class="charts">{"".join(charts)}</div>'


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
        out.append(_charts(shown_rows, _figures_of(name)))
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
        if row["proxy"].startswith("cutthrough-") and not row["proxy"].startswith(FULL)
    )  # fmt: skip
    for name in names:
        rows = [
            row for row in summaries
            if row["scenario"] == name and not row["proxy"].startswith(FULL)
            and row["proxy"].startswith(("cutthrough", SCENARIOS[name].yardstick))
        ]  # fmt: skip
        about = escape(SCENARIOS[name].about)
        out.append(f'<h3 id="features-{name}">{name}</h3><p class="about">{about}</p>')
        out.append(_charts(rows, _figures_of(name)))
    return "".join(out)


def _micro(rows: list[Row]) -> str:
    bars = []
    for row in rows:
        note = f"{row['ns_per_byte']:.2f} ns/byte" if "ns_per_byte" in row else ""
        if row.get("against"):
            note = f"{note} {row['against']}"
        bars.append(Bar(row["name"], row["ns"], row["line"], note=note))
    about = "; ".join(f"{row['name']}: {row['question']}" for row in rows)
    chart = bar_chart("Loops in C, no sockets", "ns each, less is better", bars)
    return f'{chart}<p class="about">{escape(about)}.</p>'


def _facts(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_facts(v)}" for k, v in value.items() if v)
    if isinstance(value, list):
        return " ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in value)
    return str(value)


def _head(result: Row, file: Path) -> str:
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
    late: dict[str, int] = {}
    for scenario, _, runs in skipped.get("late", []):
        late[scenario] = late.get(scenario, 0) + runs
    text += "".join(
        f"<li>{escape(k)}: {n} runs, for want of time</li>" for k, n in late.items()
    )
    return (
        f'<h2 id="method">Method</h2>{METHOD}'
        f"<h2>Environment</h2>{table(['what', 'is'], rows)}"
        f'<p>All runs: <a href="{escape(file.name)}">{escape(file.name)}</a>.</p>'
        f"<h2>Skipped</h2>{f'<ul>{text}</ul>' if text else '<p>Nothing.</p>'}"
    )


def _asked(result: Row, summaries: list[Row]) -> str:
    """Return what is asked of the data plane and what each proxy of the field costs."""
    lines = {(row["scenario"], row["proxy"]): row["line"] for row in summaries}

    def link(scenario: str, proxy: str, text: str) -> str:
        line = lines.get((scenario, proxy))
        return f'<a href="#L{line}">{text}</a>' if line and text != "–" else text

    rows = result["results"]
    command = escape(str(result["environment"].get("command", "")))
    return (
        "<h1>cutthrough beside the field</h1>"
        f'<h2 id="asked">What is asked</h2><pre>{command}</pre>'
        '<p class="about">cutthrough-full: one worker; credentials, a policy and an'
        " access log in JSON. Each figure is the median of the ratios of neighbouring"
        " runs, CPU against CPU where nothing else is said.</p>"
        f"{verdict_table(rows, link)}"
        '<h2 id="costs">The field</h2><p class="about">CPU of the whole process tree,'
        " µs for a request, for a MiB, and private memory.</p>"
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


def build_report(file: Path) -> str:
    """Return the page for a result. Raises BenchError when it is none."""
    result, summaries, micro, runs = _load(file)
    unknown = {row["scenario"] for row in summaries} - SCENARIOS.keys()
    if unknown or "skipped" not in result:
        raise BenchError(f"{file} is of another version: {', '.join(unknown)}")
    out = [_asked(result, summaries), _head(result, file)]
    out.append(f'<h2 id="short">In short</h2>{_in_short(summaries)}')
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
    if micro:
        out.append(f'<h2 id="micro">Micro benches</h2>{_micro(micro)}')
    out.append(f'<h2 id="peers">Peers and their configuration</h2>{_peers(result)}')
    out.append('<h2 id="json">JSON lines</h2><div class="json">')
    for row in [*summaries, *micro]:
        where = runs.get((row.get("scenario", ""), row.get("proxy", "")), [])
        of = f" runs: lines {', '.join(map(str, where))}" if where else ""
        data = json.dumps({k: v for k, v in row.items() if k != "line"})
        link = f'<a href="{escape(file.name)}">line {row["line"]}</a>{of}'
        out.append(f'<div id="L{row["line"]}">{link}<br>{escape(data)}</div>')
    out.append("</div>")
    page = "".join(out).replace("\n", " ")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<title>cutthrough: benchmark</title>"
        f"<style>{read_style()}</style></head><body>{page}</body></html>\n"
    )
