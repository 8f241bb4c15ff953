"""Committed results: of which code they are."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import collect, result

RESULTS = Path(__file__).resolve().parents[2] / "bench/results"
#: Of a changed tree, until its next run of 25 minutes.
MARKED = {"attack"}


def committed() -> list[Path]:
    """Those of git, or all where there is no git."""
    listed = subprocess.run(["git", "ls-files", "."], cwd=RESULTS, text=True,
                            capture_output=True, check=False).stdout.split()
    return [RESULTS / name for name in listed] or sorted(RESULTS.glob("*.json"))


def environments(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The environment of a result, or those of its parts."""
    if "environment" in data:
        return [data["environment"]]
    return [part["environment"] for part in data.values()]


@pytest.mark.parametrize("file", committed(), ids=lambda file: file.stem)
def test_a_committed_result_is_of_a_committed_tree(file: Path) -> None:
    """One was of a tree that is in no history."""
    of = environments(json.loads(file.read_text()))
    assert of and all(len(environment["commit"]) == 40 for environment in of)
    if file.stem not in MARKED:
        assert not any(environment["changed"] for environment in of)


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_says_before_it_that_its_result_will_be_marked(
        changed: bool, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(result, "RESULTS", tmp_path)
    for module in (result, collect):
        monkeypatch.setattr(module, "read_tree", lambda: ("c" * 40, changed))
    result.warn_of_changes("here")
    assert ("here.json will be marked" in capsys.readouterr().err) == changed
    result.write_rows("here", [{"us": 1.0}])
    (environment,) = environments(json.loads((tmp_path / "here.json").read_text()))
    assert environment["changed"] == changed and environment["commit"] == "c" * 40
    assert environment["command"] and environment["took_seconds"] >= 0


def test_the_code_is_that_of_the_start_of_a_run(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit during a run was the commit of its result."""
    collect.read_tree.cache_clear()
    monkeypatch.setattr(collect, "_output", lambda *command: "")
    before = collect.read_tree()
    monkeypatch.setattr(collect, "_output", lambda *command: "another")
    assert collect.read_tree() == before
    collect.read_tree.cache_clear()
