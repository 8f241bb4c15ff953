"""docs/endings.md has every reason: its meaning, its cause, its remedy."""

import re

from cutthrough.config.config import OPTIONS, TABLES
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.policy.limit_tables import KEYS as LIMIT_KEYS
from cutthrough.policy.rules import _RULE
from cutthrough.tools.endings_docs import ADVICE, WHOSE, render
from tests.support.proxy import ROOT

PAGE = ROOT / "docs" / "endings.md"
LOGGED = {"trace", "url", "client", "tried_user", "chunked", "hook",
          "parent_status"}


def test_the_committed_page_is_up_to_date():
    """21 of 57 reasons stood on no page."""
    text = PAGE.read_text()
    assert text == render(text), "`make docs`, and commit docs/endings.md"


def test_every_reason_has_an_advice_and_no_other_word_has():
    assert list(ADVICE) == [row.label for row in OUTCOMES]
    assert {row.fault for row in OUTCOMES} <= set(WHOSE)
    for label, text in ADVICE.items():
        assert text and "|" not in text and not text.endswith("."), label


def test_an_advice_names_options_that_there_are():
    said = {word for text in ADVICE.values() for word in re.findall(r"`(\w+)`", text)}
    keys = {key for table in TABLES.values() for key in table.options}
    assert said <= {*OPTIONS, *keys, *LIMIT_KEYS, *_RULE, *LOGGED}, said
