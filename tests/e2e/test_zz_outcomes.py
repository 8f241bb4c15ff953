"""Last of all: every row of the table of endings has been reached by some test.

Each proxy's log adds its labels to `seen_labels`; so this one means something only at
the end of the whole directory, on one event loop at the least, and skips where fewer
files than that were run.
"""

from pathlib import Path

import pytest

from cutthrough.outcome import TABLE
from tests.support.proxy import seen_labels

ON_UVLOOP = "not asyncio"


def test_every_row_of_the_table_is_reached(request: pytest.FixtureRequest) -> None:
    files = {item.path for item in request.session.items}
    missing = set(Path(__file__).parent.glob("test_*.py")) - files
    whole = request.config.option.keyword in ("", ON_UVLOOP)
    if missing or not whole or request.session.testsfailed:
        pytest.skip("only after the whole of tests/e2e has passed")
    assert {row.label for row in TABLE} - seen_labels == set()
