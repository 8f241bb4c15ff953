"""docs/tutorials: each is followed from its top to its bottom."""

import re

import pytest

from tests.support.proxy import ROOT
from tests.support.tutorial_times import BEFORE, RESULTS, RESULTS_BEFORE
from tests.support.walk import FILE, follow, steps

FOLDER = ROOT / "docs" / "tutorials"
PAGES = sorted(set(FOLDER.glob("*.md")) - {FOLDER / "README.md"})
# They measure: half a minute
SLOW = {"measure"}


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=[pytest.mark.slow] if page.stem in SLOW else [])
    for page in PAGES], ids=lambda page: page.stem)
def test_a_tutorial_is_followed(page, tmp_path):
    follow(page, tmp_path)


def test_what_is_not_run_is_run_elsewhere():
    """Commands for root are those of docs/deploy.md."""
    manual = (ROOT / "docs" / "deploy.md").read_text()
    units = (ROOT / "deploy" / "check_unit.py").read_text()
    commands = [
        line for page in PAGES
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.M | re.S)
        if not FILE.match(block) for line in block.splitlines()]
    assert len(commands) >= 5
    for line in commands:
        assert line in manual, line
        assert f'"{line.split()[1]}"' in units or line.split()[1] in (
            "enable", "status"), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_is_short(page):
    """Ten minutes: twenty-five commands and seven hundred words at most."""
    kinds = [kind for kind, _ in steps(page.read_text())]
    assert 5 <= kinds.count("command") <= 25
    assert len(page.read_text().split()) <= 850


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_clock_is_taken_of_each_tutorial_and_of_the_way_before(page):
    for way, results in (page, RESULTS), (BEFORE / page.name, RESULTS_BEFORE):
        commands = [text for kind, text in steps(way.read_text()) if kind == "command"]
        assert any(results[page.stem] in text for text in commands)
