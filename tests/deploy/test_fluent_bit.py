"""Fluent Bit's recipes: what one file names, another has.

Fluent Bit itself is in no registry that tests install from.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.lines import RECIPES

FOLDER = RECIPES / "fluent-bit"
INPUTS = sorted(FOLDER.glob("*.yaml"))
OUTPUTS = sorted(RECIPES.glob("*/fluent-bit.yaml"))


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_an_input_has_its_parser_and_its_filters_its_tag(path: Path) -> None:
    read = load(path)
    (source,) = read["pipeline"]["inputs"]
    (parser,) = read["parsers"]
    named = [part["parser"] for part in (source, *read["pipeline"]["filters"])
             if "parser" in part]
    assert named == [parser["name"]]
    assert {part["match"] for part in read["pipeline"]["filters"]} == {source["tag"]}
    assert parser["time_key"] == "time" and parser["time_keep"]


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.parent.name)
def test_an_output_matches_what_it_includes(path: Path) -> None:
    read = load(path)
    (included,) = read["includes"]
    (source,) = load((path.parent / included).resolve())["pipeline"]["inputs"]
    (output,) = read["pipeline"]["outputs"]
    assert output["match"] == source["tag"]
