"""What the pages name exists: the files and headings that they link to, and options."""

import re
from pathlib import Path

import pytest

from cutthrough.config.config import OPTIONS
from cutthrough.outcome import NAMES
from cutthrough.policy.rules import _LIMITS, _RULE
from cutthrough.policy.smokescreen import _SERVICE
from tests.support.proxy import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
# Key = value, as a file of options or a policy has it
SETTING = re.compile(r"`(?:[\w.]+\.)?(\w+) = ")


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in HEADING.findall(path.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_what_other_programs_are_translated_to_exists():
    text = (ROOT / "docs" / "migration.md").read_text()
    said = set(SETTING.findall(text))
    assert len(said) > 15
    assert said <= {*OPTIONS, *_RULE, *_LIMITS, "blocked"}
    ours = {*OPTIONS, *_RULE, *_LIMITS, *NAMES, *_SERVICE}
    for cell in re.findall(r"^\|.*\| (.*) \|$", text, re.M):
        assert set(re.findall(r"`([a-z]+_[a-z_]+)`", cell)) <= ours


def test_the_tests_that_the_page_of_attacks_names_exist():
    text = (ROOT / "docs" / "attacks.md").read_text()
    written = {name for path in (ROOT / "tests").rglob("test_*.py")
               for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 40 and named <= written
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert files and all((ROOT / file).exists() for file in files)


def test_the_index_has_every_page():
    folder = ROOT / "docs"
    linked = set(LINK.findall((folder / "README.md").read_text()))
    assert linked == {path.name for path in folder.glob("*.md")} - {"README.md"} | {
        "decisions"}


def test_the_map_names_what_its_files_have():
    """A row sent readers to a function that was somewhere else."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("## What is where\n")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if "`" in row]
    assert len(rows) > 15
    for row in rows:
        words = re.findall(r"`([^`]+)`", row)
        files = [word for word in words if "/" in word]
        code = "".join((ROOT / "cutthrough" / one).read_text() for one in files)
        for name in set(words) - {*files, "make docs"}:
            last = name.rpartition(".")[2]
            assert re.search(rf"(def|class|struct) .*\b{last}\b", code), (name, files)
