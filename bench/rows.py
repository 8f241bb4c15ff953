"""A row of a result, and how it is printed."""

from __future__ import annotations

from pathlib import Path

from bench.children import HERE

Row = dict[str, object]


def format_row(kind: str, row: Row) -> str:
    """Return `kind key=value …`; floats with four figures at least, no spaces."""
    parts = [kind]
    for key, value in row.items():
        if isinstance(value, float):
            value = f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
        parts.append(f"{key}={'_'.join(str(value).split())}")
    return " ".join(parts)


def shown(command: list[str]) -> str:
    """Return a command without directories of this machine."""
    words = [word.removeprefix(f"{HERE.parent}/").replace(f"={HERE.parent}/", "=")
             for word in command]
    names = [Path(word).name if word.startswith("/") else word for word in words]
    return " ".join(":".join(Path(p).name for p in n.split(":")) if ":/" in n
                    and "//" not in n else n for n in names)  # fmt: skip
