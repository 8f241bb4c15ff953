"""The table of deploy/recipes/clickhouse has every field of the access log."""

import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.lines import FIELDS, HOME, RECIPES, SECRET, write_log
from tests.deploy.store import ask as ask_store
from tests.deploy.store import object_store
from tests.support.proxy import ROOT

FOLDER = RECIPES / "clickhouse"
TABLE = (FOLDER / "schema.sql").read_text()
COLUMNS = dict(re.findall(r"^    (\w+) (.+?)(?: CODEC\(.*\))?,?$", TABLE, re.M))
PYTHON = HOME / "bin/python"
# The engine of ClickHouse as a library: 600 MB, which a verb of make installs
needs_clickhouse = pytest.mark.skipif(
    not PYTHON.exists(), reason="make recipes runs it")

# The types of a column by the type of the field
TYPES = {"integer": r"UInt\d+", "number": "Float64", "boolean": "Bool",
         "object": r"Map\(String, String\)", "string": "String"}

# Statements on standard input, as a list of JSON. Prints the answer of each, a list too
RUN = """
import json, sys
from chdb.session import Session
session = Session()
print(json.dumps([session.query(text, "JSONEachRow").bytes().decode()
                  for text in json.load(sys.stdin)]))
"""


def type_of(kind: dict[str, Any]) -> tuple[str, bool]:
    """The JSON type of a field, and whether it may be null."""
    if "const" in kind or "enum" in kind:
        value = kind.get("const", kind.get("enum", [""])[0])
        return ("boolean" if value is True else "string"), False
    types = kind["type"] if isinstance(kind["type"], list) else [kind["type"]]
    return types[0], "null" in types


def test_every_field_has_a_column() -> None:
    assert COLUMNS.keys() == FIELDS.keys() | {"instance"}


@pytest.mark.parametrize("name", FIELDS)
def test_a_column_holds_its_field(name: str) -> None:
    column = COLUMNS[name]
    inner = re.sub(r"LowCardinality\((.*)\)", r"\1", column)
    bare = re.sub(r"Nullable\((.*)\)", r"\1", inner)
    kind, has_null = type_of(FIELDS[name])
    if name == "time":
        assert bare == "DateTime64(3, 'UTC')"
    else:
        assert re.fullmatch(TYPES[kind], bare)
    assert not has_null or inner != bare
    if kind == "integer" and "maximum" in FIELDS[name]:
        assert FIELDS[name]["maximum"] < 1 << int(bare.removeprefix("UInt"))


def ask(statements: list[str]) -> list[list[dict[str, Any]]]:
    """The rows that each statement answers with."""
    done = subprocess.run([PYTHON, "-c", RUN], input=json.dumps(statements), text=True,
                          capture_output=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return [[json.loads(line) for line in answer.splitlines()]
            for answer in json.loads(done.stdout)]


@needs_clickhouse
def test_the_rows_are_the_lines(tmp_path: Path) -> None:
    """As Vector and Fluent Bit insert them, with a field that the table has not."""
    lines = write_log(tmp_path)
    data = "\n".join(json.dumps(json.loads(line) | {"instance": "a", "newer": 1})
                     for line in lines)
    settings = ("output_format_json_quote_64bit_integers = 0, "
                "date_time_output_format = 'iso'")
    queries = [text for text in (FOLDER / "queries.sql").read_text().split(";\n")
               if text.strip()]
    answers = ask([
        TABLE, TABLE,
        "INSERT INTO access_log SETTINGS date_time_input_format = 'best_effort', "
        f"input_format_skip_unknown_fields = 1 FORMAT JSONEachRow {data}",
        f"SELECT * FROM access_log SETTINGS {settings}",
        *queries])
    rows = {row["id"]: row for row in answers[3]}
    assert len(rows) == len(lines)
    for line in map(json.loads, lines):
        row = rows[line["id"]]
        assert {name: row[name] for name in line} == line
        # Fields that the line lacks: nothing, or no
        assert not any(row[name] for name in row.keys() - line.keys() - {"instance"})
    assert SECRET not in json.dumps(answers)
    assert all(answer for answer in answers[4:])


@needs_clickhouse
def test_objects_in_s3_are_read_in_place(tmp_path: Path) -> None:
    """The question of the page, with objects as the recipes of S3 name them."""
    page = (ROOT / "docs/log-pipelines.md").read_text()
    (question,) = re.findall(r"^    (SELECT .*\n    GROUP BY .*)$", page, re.M)
    lines = write_log(tmp_path)
    with object_store(tmp_path) as bucket:
        for hour, line in enumerate(lines):
            ask_store("PUT", f"{bucket}/cutthrough/date=2026-11-29/hour={hour:02}/a.gz",
                      gzip.compress(line.encode() + b"\n"))
        there = re.sub(r"https://[^/]*/", f"{bucket}/", question)
        signed = there.replace(".gz', ", ".gz', 'test', 'test', ")
        (rows,) = ask([signed])
    reasons = [json.loads(line)["reason"] for line in lines]
    assert {row["reason"]: row["count()"] for row in rows} == {
        reason: reasons.count(reason) for reason in reasons}
