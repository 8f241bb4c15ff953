"""The debuggers of `python -m bench inspect`, drawn from a stored result:
`python -m bench inspect-picture NAME` writes docs/images/NAME.svg.

Two panels over the minutes of sustained requests: CPU, and resident memory of all
processes. An image of a page has no style sheet of that page, so it has its own two
schemes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from bench.children import HERE
from bench.result import RESULTS

WIDTH, HEIGHT, LEFT, TOP, BETWEEN, RIGHT = 860, 180, 56, 34, 70, 150
#: By name; further ones take the last colour
COLOURS = {"cutthrough": "#2a78d6", "mitmdump": "#b3591d", "mitmweb": "#7a4fb0",
           "httptoolkit": "#1d8a5a"}
PANELS = (("CPU of one core, %", "cpu_percent"), ("resident memory, MiB", "rss_mib"))
STYLE = """text{font:13px system-ui,sans-serif;fill:#333}.grid{stroke:#ddd}
path{fill:none;stroke-width:2}rect{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}rect{fill:#111}}"""


def draw(rows: Sequence[dict[str, Any]]) -> str:
    """`rows`: of the sustained phase, one for each debugger."""
    height = TOP + len(PANELS) * (HEIGHT + BETWEEN)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'role="img"><title>{escape(describe(rows))}</title><style>{STYLE}</style>'
             f'<rect width="{WIDTH}" height="{height}"/>']
    for number, (title, key) in enumerate(PANELS):
        parts += draw_panel(title, key, rows, TOP + number * (HEIGHT + BETWEEN))
    return "\n".join([*parts, "</svg>"]) + "\n"


def describe(rows: Sequence[dict[str, Any]]) -> str:
    return "; ".join(
        f"{row['proxy']}: {row['cpu_avg_percent']:.1f} % CPU, "
        f"{row['rss_peak_mib']:.0f} MiB" for row in rows)


def draw_panel(title: str, key: str, rows: Sequence[dict[str, Any]], top: float
               ) -> list[str]:
    most = scale_of(max(max(row[key]) for row in rows))
    minutes = rows[0]["seconds"] / 60
    parts = [f'<text x="{LEFT}" y="{top - 12}" font-weight="600">{title}</text>']
    for quarter in range(5):
        y = top + HEIGHT * (1 - quarter / 4)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:g}" '
                     f'y2="{y:g}"/><text x="{LEFT - 8}" y="{y + 4:g}" '
                     f'text-anchor="end">{most * quarter / 4:g}</text>')
    for x, text in ((LEFT, "0"), (WIDTH - RIGHT, f"{minutes:g} min")):
        parts.append(f'<text x="{x}" y="{top + HEIGHT + 18}" text-anchor="middle">'
                     f"{text}</text>")
    ends: list[float] = []
    for row in sorted(rows, key=lambda row: -row[key][-1]):
        values = row[key]
        # The CPU of a part stands in its middle
        shift = 0.5 if key == "cpu_percent" else 0.0
        step = (WIDTH - RIGHT - LEFT) / (len(values) - (0 if shift else 1))
        points = [(LEFT + (i + shift) * step, top + HEIGHT * (1 - value / most))
                  for i, value in enumerate(values)]
        colour = COLOURS.get(row["proxy"], "#777")
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        y = max([points[-1][1] + 4, *(end + 15 for end in ends)])
        ends.append(y)
        parts.append(f'<path stroke="{colour}" d="M{line}"/><text '
                     f'x="{WIDTH - RIGHT + 8}" y="{y:.1f}" style="fill:{colour}">'
                     f'{escape(row["proxy"])} {values[-1]:.3g}</text>')
    return parts


def scale_of(most: float) -> float:
    """The next round number that four lines divide well."""
    unit = 1.0
    while unit * 10 < most:
        unit *= 10
    return next(unit * factor for factor in (1, 2, 4, 8, 10) if unit * factor >= most)


def run_picture(options: argparse.Namespace) -> int:
    result = json.loads((RESULTS / f"{options.result}.json").read_text())
    rows = [row for row in result["rows"] if row.get("phase") == "sustained"]
    path = HERE.parent / f"docs/images/{options.result}.svg"
    path.write_text(draw(rows))
    print(path)
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("result", metavar="NAME", help="of bench/results")
