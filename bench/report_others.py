"""The report's tables of benches that have no scenarios, from the files beside its own.

A figure's source is the file that the table names: its rows are few, and each has the
names of the table.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from bench.charts import table
from bench.children import BenchError
from bench.page_tables import OTHERS


def build_others(folder: Path) -> str:
    """Return a part for each result that is in this directory. Raises BenchError."""
    out = []
    for name, title, build in OTHERS:
        file = folder / f"{name}.json"
        if not file.exists():
            continue
        try:
            result = json.loads(file.read_text())
            lines = build(result)
        except (ValueError, KeyError) as error:
            raise BenchError(f"{file}: not a result: {error}") from None
        command = result["environment"].get("command", f"python -m bench {name}")
        out.append(
            f'<h3 id="{name}">{escape(title)}</h3><p class="about">'
            f'{escape(lines[0].rstrip(":"))}. <a href="{name}.json">{name}.json</a>, '
            f"by {escape(command)}.</p>{_tables(lines[1:])}")
    return "".join(out)


def _tables(lines: list[str]) -> str:
    """Tables of Markdown as HTML; an empty line ends one."""
    out, rows = [], list[list[str]]()
    for line in [*lines, ""]:
        if line.startswith("| "):
            rows.append([cell.strip().replace("`", "")
                         for cell in line.strip()[1:-1].split("|")])
        elif not line and rows:
            cells = [[escape(cell) for cell in row] for row in rows[1:]]
            out.append(table(rows[0], cells))
            rows = []
    return "".join(out)
