"""How long the tutorials take: `python -m tests.support.tutorial_times [PAGE …]`.

Each is followed as tests/test_tutorials.py does, once, in an empty directory and with a
home of its own. Prints a row of a table for each: its words and commands, the seconds
of the machine until the command that shows what the reader came for (RESULTS), and
until the end. A reader's own time, to read and to type, is not in them.

With `--before TREE` it follows tests/support/before instead, with the programs of TREE,
a built tree of commit 9c0400b4: what a reader of that tree's README.md had to type.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.proxy import ROOT, clean_environment
from tests.support.walk import UNSHARE

FOLDER = ROOT / "docs" / "tutorials"
BEFORE = ROOT / "tests" / "support" / "before"
RESULTS = {
    "see-traffic": "cutthrough flows show 2",
    "test-without-network": "pytest --cassette-mode none",
    "serve-a-team": "tail -n 3 access.log",
    "isolate-a-job": "sh isolated.sh curl https://example.com/",
    "measure": "DURATION=1"}
RESULTS_BEFORE = RESULTS | {"test-without-network": "pytest -q"}
STEP = re.compile(r"^ *(\d+\.\d+) s (\w+) (.*)$", re.M)


def follow(page: Path, tree: Path) -> list[tuple[float, str, str]]:
    """Seconds, kind and text of each step."""
    with tempfile.TemporaryDirectory(prefix="tutorial-") as folder:
        done = subprocess.run(
            [*UNSHARE, sys.executable, "-m", "tests.support.walk", page, folder, tree],
            cwd=ROOT, env=clean_environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{page}\n{done.stdout}\n{done.stderr}")
    return [(float(seconds), kind, text) for seconds, kind, text in STEP.findall(
        done.stdout)]


def measure(page: Path, tree: Path, result: str) -> str:
    """The row of a page; `result` is in the command that shows the first result."""
    steps = follow(page, tree)
    commands = [(seconds, text) for seconds, kind, text in steps if kind == "command"]
    first = next(at for at, (_, text) in enumerate(commands) if result in text)
    until = sum(seconds for seconds, _ in commands[:first + 1])
    longest, name = max(commands)
    return (f"| {page.stem} | {len(page.read_text().split())} | {len(commands)} | "
            f"{until:.1f} s, {first + 1} commands | "
            f"{sum(seconds for seconds, _ in commands):.1f} s | "
            f"{longest:.1f} s, `{name.strip(chr(39))}` |")


def main() -> None:
    folder, tree, results, names = FOLDER, ROOT, RESULTS, sys.argv[1:]
    if names[:1] == ["--before"]:
        folder, tree, results = BEFORE, Path(names[1]).resolve(), RESULTS_BEFORE
        names = names[2:]
    print("| tutorial | words | commands | until the first result | all | longest |")
    print("|---|---|---|---|---|---|")
    for name in names or RESULTS:
        print(measure(folder / f"{name}.md", tree, results[name]), flush=True)


if __name__ == "__main__":
    main()
