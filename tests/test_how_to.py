"""The how-to pages: each command is run, here or by the test that is named."""

import runpy

import pytest

from tests.support.how_to import ELSEWHERE, commands, elsewhere
from tests.support.proxy import ROOT
from tests.support.walk import follow

NAVIGATION = runpy.run_path(str(ROOT / "docs" / "conf.py"))["navigation"]
# tests/test_from.py runs those of docs/from
PAGES = [page for page in NAVIGATION(ROOT / "docs" / "README.md")["How to"]
         if page.parent.name == "docs"]
RUN = [page for page in PAGES if any(
    elsewhere(page.name, line) is None for line in commands(page.read_text()))]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_how_to_page_are_run(page, tmp_path):
    follow(page, tmp_path, "how_to")


def test_what_is_not_run_here_is_run_by_the_file_that_is_named():
    lines = {page.name: [*commands(page.read_text())] for page in PAGES}
    assert sum(map(len, lines.values())) > 120
    for page, rows in ELSEWHERE.items():
        for begin, file, word in rows:
            assert any(line.startswith(begin) for line in lines[page]), (page, begin)
            assert word in (ROOT / file).read_text(), (file, word)
