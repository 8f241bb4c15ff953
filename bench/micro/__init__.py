"""What one head, chunk, line or timer costs: small loops in C, no sockets.

Every module of this package that has `BENCHES` takes part: a list of `Micro`. A loop
runs `iterations` times and returns the seconds that took; it is calibrated to about
TENTH seconds, repeated, and the fastest and the median are printed, for what disturbs
a loop only ever makes it slower.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import pkgutil
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bench.children import HERE, BenchError

Row = dict[str, object]
TENTH = 0.1
# The compiler may leave nothing of a loop that does nothing
MOST = 10**9


@dataclass(frozen=True)
class Micro:
    """`question` is what the figure answers. `bytes` that one iteration reads; 0 where
    bytes are not the point. `against` names the library that `run` belongs to, where it
    is not ours."""

    name: str
    question: str
    run: Callable[[int], float]
    bytes: int = 0
    against: str = ""
    missing: str = ""


def load_compiled(source: Path) -> ModuleType:
    """Compile a .pyx of this directory for this machine, and import it.

    It may cimport the package's rooms; it is compiled anew when it, or any .pxd of
    theirs, is newer.
    """
    tree = HERE.parent
    made = HERE / "bin" / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    inputs = [source, *(tree / "cutthrough").rglob("*.pxd")]
    if not made.exists() or made.stat().st_mtime < max(
        file.stat().st_mtime for file in inputs
    ):
        made.parent.mkdir(exist_ok=True)
        c_file = made.with_name(f"{source.stem}.c")
        include = sysconfig.get_path("include")
        for command in (
            [sys.executable, "-m", "cython", "-3", "-I", str(tree), "-o", str(c_file),
             str(source)],
            ["cc", "-shared", "-fPIC", "-O3", "-march=native", "-w", f"-I{include}",
             "-o", str(made), str(c_file)],
        ):  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise BenchError(f"{' '.join(command[:3])}: {done.stderr.strip()}")
    spec = importlib.util.spec_from_file_location(source.stem, made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_benches() -> list[Micro]:
    found: list[Micro] = []
    for info in pkgutil.iter_modules([str(Path(__file__).parent)]):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found += getattr(module, "BENCHES", [])
    return found


def measure_micro(bench: Micro, repetitions: int) -> Row:
    iterations = 1
    while (took := bench.run(iterations)) < TENTH / 10 and iterations < MOST:
        iterations *= 10
    iterations = min(MOST, max(1, int(iterations * TENTH / max(took, 1e-9))))
    ns = [bench.run(iterations) / iterations * 1e9 for _ in range(repetitions)]
    row: Row = {
        "name": bench.name,
        "ns": min(ns),
        "ns_median": statistics.median(ns),
        "iterations": iterations,
        "repetitions": repetitions,
        "question": bench.question,
    }
    if bench.against:
        row["against"] = bench.against
    if bench.bytes:
        row |= {"bytes": bench.bytes, "ns_per_byte": min(ns) / bench.bytes}
    return row


def run_micro(names: list[str] | None = None, *, repetitions: int = 5) -> list[Row]:
    """Measure what is named, or all; print and return one row for each."""
    rows = []
    benches = find_benches()
    for name in names or ():
        if not any(bench.name.startswith(name) for bench in benches):
            known = ", ".join(bench.name for bench in benches)
            raise BenchError(f"{name}: none of policy, {known}")
    for bench in benches:
        if names and not any(bench.name.startswith(name) for name in names):
            continue
        if bench.missing:
            print(f"perf_skipped micro={bench.name} reason={bench.missing}")
            continue
        row = measure_micro(bench, repetitions)
        rows.append(row)
        figures = " ".join(
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in row.items()
            if key != "question"
        )
        print(f"perf_micro {figures}", flush=True)
    return rows
