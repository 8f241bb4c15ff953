"""Charts as HTML with inline SVG: bars and steps that keep their text at any width.

An SVG with a viewBox shrinks its letters with its width. Here every SVG is 100 % wide
with coordinates in percent, and all text is HTML beside it. Colours are CSS variables,
so that the page follows the reader's light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from bench.children import HERE

#: Colours of bars: ours, the yardsticks, the other proxies.
YARDSTICKS = {
    "direct", "direct-again", "lean", "relay", "relay-splice", "relay-socks"
}  # fmt: skip
#: Peers that only know bytes, as the relays do.
BLIND = ("haproxy-tcp", "haproxy-splice")


#: A bar longer than the shortest by this factor is cut, so that the shortest is
#: visible.
CUT_AT = 25


def kind_of(proxy: str) -> str:
    if proxy.startswith("cutthrough"):
        return "ours"
    return "yard" if proxy in YARDSTICKS else "peer"


def shown(value: float) -> str:
    """Return a number with three figures or so, thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


@dataclass
class Bar:
    """One proxy's figure: its value, spread, and the line it comes from."""

    name: str
    value: float | None
    line: int = 0
    low: float | None = None
    high: float | None = None
    note: str = ""
    title: str = ""


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0%"


def _svg_of(bar: Bar, most: float) -> str:
    assert bar.value is not None
    cut = bar.value > most
    width = _percent(max(0.0, min(bar.value, most)), most)
    shapes = f'<rect class="{kind_of(bar.name)}" width="{width}" height="14" rx="2"/>'
    if cut:
        for x in ("93%", "96%"):
            shapes += f'<line class="cut" x1="{x}" x2="{x}" y1="0" y2="14"/>'
    elif bar.low is not None and bar.high is not None and bar.high > bar.low:
        low, high = _percent(bar.low, most), _percent(min(bar.high, most), most)
        shapes += f'<line class="whisker" x1="{low}" x2="{high}" y1="7" y2="7"/>'
        for end in (low, high):
            shapes += f'<line class="whisker" x1="{end}" x2="{end}" y1="3" y2="11"/>'
    label = escape(f"{bar.name}: {shown(bar.value)}")
    return f'<svg class="bar" role="img" aria-label="{label}">{shapes}</svg>'


def bar_chart(title: str, unit: str, bars: Iterable[Bar], cut: bool = True) -> str:
    """Return a chart of one figure; a bar without value shows its note instead."""
    rows = list(bars)
    values = [b.high if b.high is not None else b.value for b in rows]
    most = max((v for v in values if v is not None), default=0.0)
    least = min((v for v in values if v), default=0.0)
    if cut and least > 0 and "less is better" in unit and most > CUT_AT * least:
        most = CUT_AT * least
        unit = f"{unit}; bars over {shown(most)} are cut"
    if not most and not any(b.value is not None for b in rows):
        return ""
    out = [
        f"<figure><figcaption>{escape(title)} <span>{escape(unit)}</span></figcaption>"
    ]
    for bar in rows:
        name = f'<span class="name {kind_of(bar.name)}">{escape(bar.name)}</span>'
        note = f'<span class="note">{escape(bar.note)}</span>' if bar.note else ""
        if bar.value is None:
            kind = "row void" if bar.note.startswith("void") else "row none"
            out.append(f'<div class="{kind}">{name}{note}</div>')
            continue
        text = (
            f'<a href="#L{bar.line}" title="{escape(bar.title)}">{shown(bar.value)}</a>'
        )
        svg = _svg_of(bar, most)
        out.append(
            f'<div class="row">{name}{svg}<span class="value">{text}{note}</span></div>'
        )
    out.append("</figure>")
    return "".join(out)


def step_chart(
    title: str, unit: str, steps: list[str], lines: dict[str, tuple[list[float], int]]
) -> str:
    """Return a chart of one figure over steps in turn, a line for each proxy."""
    most = max((v for values, _ in lines.values() for v in values), default=0.0)
    if not most:
        return ""
    height, n = 120, len(steps)

    def at(index: int, value: float) -> tuple[str, str]:
        return _percent(index + 0.5, n), f"{4 + (height - 8) * (1 - value / most):.1f}"

    shapes = []
    for name, (values, _) in lines.items():
        points = [at(index, value) for index, value in enumerate(values)]
        kind = kind_of(name)
        for (x1, y1), (x2, y2) in pairwise(points):
            shapes.append(
                f'<line class="step {kind} {escape(name)}" x1="{x1}" y1="{y1}"'
                f' x2="{x2}" y2="{y2}"/>'
            )
        for x, y in points:
            shapes.append(
                f'<circle class="{kind} {escape(name)}" cx="{x}" cy="{y}" r="4"/>'
            )
    ticks = "".join(f"<span>{escape(step)}</span>" for step in steps)
    legend = "".join(
        f'<div><span class="key {kind_of(name)}"></span> {escape(name)}: '
        + ", ".join(f'<a href="#L{line}">{shown(v)}</a>' for v in values)
        + "</div>"
        for name, (values, line) in lines.items()
    )
    return (
        f"<figure><figcaption>{escape(title)} <span>{escape(unit)}, top of the chart"
        f' {shown(most)}</span></figcaption><svg class="steps" role="img"'
        f' aria-label="{escape(title)}" style="height:{height}px">'
        f"{''.join(shapes)}</svg>"
        f'<div class="ticks">{ticks}</div><div class="legend">{legend}</div></figure>'
    )


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a table that scrolls by itself; cells are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def read_style() -> str:
    """Return the style sheet on one line."""
    return " ".join((HERE / "report.css").read_text().split())
