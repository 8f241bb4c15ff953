"""docs/accesslog.schema.json agrees with the tables, and rejects wrong lines."""

import json

import pytest

from cutthrough.tools.log_schema import render
from tests.support.lines import SCHEMA, check
from tests.support.proxy import ROOT

LINE = {
    "time": "2026-11-21T04:25:36.123Z", "id": "0-17", "client": "127.0.0.1",
    "user": "ann", "kind": "request", "method": "GET", "host": "a.test", "port": 80,
    "url": "http://a.test/", "status": 200, "reason": "ok", "peer": "127.0.0.1",
    "bytes_up": 60, "bytes_down": 90, "head_ms": 0.021, "auth_ms": 1850.3,
    "dns_ms": None, "connect_ms": 0.2, "first_byte_ms": 3.1, "total_ms": 1854.001,
    "path": "copy", "worker": 0,
}


def test_the_committed_schema_is_up_to_date():
    text = (ROOT / "docs" / "accesslog.schema.json").read_text()
    assert text == render(), "`make docs`, and commit docs/accesslog.schema.json"


def test_each_field_is_told_in_the_page():
    page = (ROOT / "docs" / "logs.md").read_text()
    assert [name for name in SCHEMA["properties"] if f"`{name}`" not in page] == []


def test_a_line_of_the_log_is_accepted():
    check(json.dumps(LINE))
    check(json.dumps(LINE | {"user": None, "tried_user": "bob", "status": 407}))


@pytest.mark.parametrize("change", [
    {"connect_ms": 1850.5}, {"head_ms": 0}, {"auth_ms": "1"}, {"reason": "nonsense"},
    {"kind": "idle"}, {"tried_user": "bob"}, {"unheard_of": 1}, {"port": 65536},
    {"time": "yesterday"}, {"method": "G ET"}, {"status": None}, {"hook_ms": 1900.0},
], ids=str)
def test_a_line_of_another_form_is_told(change):
    """Stages that were counted from the beginning add up to more than the whole."""
    with pytest.raises(AssertionError):
        check(json.dumps(LINE | change))


@pytest.mark.parametrize("name", LINE)
def test_a_line_that_lacks_a_field_is_told(name):
    with pytest.raises(AssertionError):
        check(json.dumps({key: LINE[key] for key in LINE if key != name}))
