"""The file of a result: one run on one line, so that a figure can name its line."""

from __future__ import annotations

import functools
import json
import shlex
import sys
import time
from pathlib import Path

import psutil

from bench.blocks import Skipped
from bench.children import HERE, Site
from bench.collect import describe_environment, read_tree
from bench.peers import FILES, PEERS
from bench.rows import Row

RESULTS = HERE / "results"


@functools.cache
def _describe_peer(name: str) -> dict[str, object]:
    peer = PEERS[name]
    files = [word.partition(" as ")[0] for word in peer.files]
    return {
        "version": peer.read_version(),
        "source": peer.source,
        "files": {f"bench/peers/{file}": (FILES / file).read_text() for file in files},
    }


def _used_peers(rows: list[Row]) -> dict[str, object]:
    """Return version and configuration of each peer that took part."""
    names = dict.fromkeys(str(row["proxy"]) for row in rows)
    return {name: _describe_peer(name) for name in names if name in PEERS}


def write_result(
    file: Path,
    environment: dict[str, object],
    origin_config: str,
    skipped: Skipped,
    rows: list[Row],
    summaries: list[Row],
    micro: list[Row],
) -> None:
    """Write the result, each run and each summary on its own line. The file is replaced
    atomically."""
    file.parent.mkdir(exist_ok=True)
    head = {
        "environment": environment,
        "origin_config": origin_config,
        "skipped": {
            "proxies": skipped.proxies,
            "scenarios": skipped.scenarios,
            "pairs": skipped.pairs,
            "late": [[*pair, runs] for pair, runs in skipped.late.items()],
        },
        "peers": _used_peers(rows),
    }
    parts = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    for key, table in (("results", rows), ("summaries", summaries), ("micro", micro)):
        lines = ",\n".join(json.dumps(row) for row in table)
        parts.append(f'"{key}": [\n{lines}\n]')
    new = file.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    new.replace(file)


def write_rows(name: str, rows: list[Row]) -> None:
    """Write bench/results/NAME.json: the environment with the command of this process,
    and the rows of a bench that has no scenarios."""
    head = json.dumps(describe_environment(Site()) | {
        "command": "python -m bench " + shlex.join(sys.argv[1:]),
        "took_seconds": round(time.time() - psutil.Process().create_time())})
    lines = ",\n".join(json.dumps(row) for row in rows)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(
        f'{{\n"environment": {head},\n"rows": [\n{lines}\n]\n}}\n')


def warn_of_changes(name: str) -> None:
    """Say so before the minutes of a run whose result no page may quote: the result of
    a changed tree is marked, and tests/bench/test_results.py refuses it."""
    commit, changed = read_tree()
    if changed:
        print(f"bench: {name}.json will be marked: this tree differs from "
              f"{commit[:8]}", file=sys.stderr, flush=True)
