"""docs/from: each row has a state and a test; commands and configurations run."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.support.proxy import ROOT, clean_environment
from tests.support.walk import follow

FOLDER = ROOT / "docs" / "from"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})
STATES = ("works", "in part", "missing", "out")


def rows(page) -> list[list[str]]:
    """The cells of the table of features: theirs, here, state, test."""
    table = page.read_text().partition("| state | test |\n")[2].partition("\n\n")[0]
    lines = table.splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_row_has_a_state_and_a_test_or_a_reason(page):
    sources = {}
    for theirs, here, cell, tests in rows(page):
        state, _, reason = cell.partition(": ")
        assert state in STATES, theirs
        assert here or state != "works", theirs
        assert bool(reason) == (state != "works"), theirs
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named or state != "works", theirs
        assert len(named) == tests.count("`") // 2, theirs
        for file, name in named:
            if file not in sources:
                sources[file] = (ROOT / file).read_text()
            assert re.search(rf"^\s*(async )?def {name}\(", sources[file], re.M), name


def figures(states: Counter[str]) -> list[int]:
    return [*(states[state] for state in STATES), states.total()]


def test_the_index_counts_the_rows():
    """Each page has a line there, and the last line has the sums."""
    counts = {row[0]: [int(cell) for cell in row[1:]] for row in (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in INDEX.read_text().splitlines() if re.search(r"\| \d+ \|$", line))}
    sums = Counter()
    assert len(counts) == len(PAGES) + 1 == 6
    for page in PAGES:
        (name,) = (name for name in counts if f"({page.name})" in name)
        states = Counter(row[2].partition(": ")[0] for row in rows(page))
        assert counts[name] == figures(states), name
        sums += states
    assert counts["all"] == figures(sums)
    assert sums.total() >= 141


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_followed_from_top_to_bottom(page, tmp_path):
    follow(page, tmp_path)


def test_the_programs_of_the_pages_are_typed(tmp_path):
    programs = [(block[2], block[1]) for page in PAGES for block in re.finditer(
        r"^```python\n(# (\w+\.py)\n.*?)^```$", page.read_text(), re.M | re.S)]
    assert len(programs) > 5
    for name, text in programs:
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *(name for name, _ in programs)],
        cwd=tmp_path, env=clean_environment(MYPYPATH=str(ROOT)), capture_output=True,
        text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_configuration_of_the_pages_is_used():
    """A block without a file's name would be read by nobody."""
    for page in PAGES:
        text = page.read_text()
        named = re.findall(r"^```toml\n# ([\w-]+\.toml)$", text, re.M)
        assert len(named) == text.count("```toml"), page
        for name in named:
            assert text.count(name) > 1, name
