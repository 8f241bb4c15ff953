"""The outcomes of the parts of tests/e2e, judged together."""

import pytest

from cutthrough.outcome import TABLE
from tests.support import outcomes


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Of a run of twelve, the last of which reached all outcomes but one."""
    monkeypatch.setattr(outcomes, "PARTS", tmp_path)
    monkeypatch.setattr(outcomes, "SCRIPTED", tmp_path / "scripted")
    outcomes.write_scripted([])
    for number in range(1, 12):
        outcomes.write_part(number, 12, ["ok"])
    outcomes.write_part(12, 12, [row.label for row in TABLE][:-1])
    return tmp_path


def test_an_outcome_may_be_of_any_part(parts):
    last = TABLE[-1].label
    assert str(outcomes.main()).startswith(f"no access log of tests/e2e or "
                                           f"tests/scripted had {last}: ")
    outcomes.write_part(11, 12, [last])
    assert outcomes.main() == 0


def test_a_missing_part_is_said(parts):
    """Of ten parts and more, which were not in the order of their numbers."""
    (parts / "10-of-12").unlink()
    assert str(outcomes.main()).startswith("outcomes: a part of tests/e2e is missing")
