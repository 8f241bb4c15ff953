"""python -m tests.support.outcomes: was every outcome in an access log of some test?

Each part of tests/e2e writes the outcomes of its logs, and so does tests/scripted; this
judges them together.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from cutthrough.outcome import TABLE

PARTS = Path(__file__).resolve().parents[2] / "build" / "outcomes"
SCRIPTED = PARTS / "scripted"


def missing(labels: Iterable[str]) -> list[str]:
    reached = set(labels)
    return [row.label for row in TABLE if row.label not in reached]


def write_part(part: int, of: int, labels: Iterable[str]) -> None:
    PARTS.mkdir(parents=True, exist_ok=True)
    (PARTS / f"{part}-of-{of}").write_text("\n".join(labels))


def write_scripted(labels: Iterable[str]) -> None:
    PARTS.mkdir(parents=True, exist_ok=True)
    SCRIPTED.write_text("\n".join(labels))


def scripted() -> list[str]:
    """Outcomes of the last run of tests/scripted; []: there was none."""
    return SCRIPTED.read_text().split("\n") if SCRIPTED.exists() else []


def main() -> int | str:
    parts = list(PARTS.glob("*-of-*"))
    of = int(parts[0].name.rpartition("-")[2]) if parts else 1
    if {part.name for part in parts} != {f"{n}-of-{of}" for n in range(1, of + 1)}:
        return f"outcomes: a part of tests/e2e is missing in {PARTS}"
    if not SCRIPTED.exists():
        return f"outcomes: those of tests/scripted are missing in {PARTS}"
    unreached = missing([*scripted(), *(label for part in parts
                                        for label in part.read_text().split("\n"))])
    if unreached:
        return (f"no access log of tests/e2e or tests/scripted had "
                f"{', '.join(unreached)}: each row of cutthrough/outcome.pyx needs a "
                "test that ends so")
    return 0


if __name__ == "__main__":
    sys.exit(main())
