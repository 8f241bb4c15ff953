"""Entries of a fleet's registry: what somebody else writes to Redis does not count."""

import json
from typing import Any

import msgspec
import pytest

from cutthrough.process.fleet_registry import (
    Entry,
    EntryError,
    entry_key,
    read_entry,
    write_entry,
)

ID = "0123456789abcdef"
KEY = entry_key("a-token-of-the-tests")
NOW = 1_700_000_000.0
ENTRY = Entry(
    host="edge-1", pid=7, version="1.0", url="http://192.0.2.1:9090", unreachable="",
    started=NOW - 60, at=NOW, lease=15.0, state="serving", revision="0123456789ab",
    generation=1, workers=2, connections=3, requests=4.5, cpu=0.25)


def signed(text: str, key: bytes = KEY) -> str:
    """A value whose signature is right, whatever the text."""
    raw: Any = msgspec.Raw(text.encode())
    return write_entry(key, "cutthrough", ID, raw)


def test_an_entry_is_read_as_it_was_written():
    value = write_entry(KEY, "cutthrough", ID, ENTRY)
    assert read_entry(KEY, "cutthrough", ID, value, NOW + 10) == ENTRY
    assert ENTRY.name == "edge-1/7"


@pytest.mark.parametrize("change", [
    lambda value: value.replace("192.0.2.1", "192.0.2.6"),
    lambda value: "0" * 64 + value[64:],
    lambda value: value[65:], lambda value: value[:64], lambda value: "",
    lambda value: "\u2713 " + value, lambda value: value + " "])
def test_a_changed_entry_does_not_count(change):
    value = change(write_entry(KEY, "cutthrough", ID, ENTRY))
    with pytest.raises(EntryError, match="not signed with this admin token"):
        read_entry(KEY, "cutthrough", ID, value, NOW)


@pytest.mark.parametrize(("key", "prefix", "id"), [
    (entry_key("another token"), "cutthrough", ID), (KEY, "other", ID),
    (KEY, "cutthrough", "f" * 16), (KEY, "cutthrough", "F" * 16)])
def test_a_signature_is_of_one_token_fleet_and_id(key, prefix, id):
    value = write_entry(KEY, "cutthrough", ID, ENTRY)
    with pytest.raises(EntryError, match="not signed"):
        read_entry(key, prefix, id, value, NOW)


@pytest.mark.parametrize("later", [15 + 61, -61])
def test_an_old_entry_that_is_written_again_does_not_count(later):
    value = write_entry(KEY, "cutthrough", ID, ENTRY)
    assert read_entry(KEY, "cutthrough", ID, value, NOW + 15 + 59)
    with pytest.raises(EntryError, match="by the clock of edge-1"):
        read_entry(KEY, "cutthrough", ID, value, NOW + later)


@pytest.mark.parametrize("change", [
    {"host": "a\x1b[2J"}, {"host": "x\n"}, {"host": "x" * 256}, {"host": "\u202e"},
    {"host": None}, {"pid": -1}, {"pid": "7"}, {"cpu": -0.5}, {"cpu": 1e300},
    {"connections": 1.5}])
def test_what_another_program_signs_is_within_bounds(change):
    text = json.dumps({**msgspec.to_builtins(ENTRY), **change})
    with pytest.raises(EntryError, match="another version"):
        read_entry(KEY, "cutthrough", ID, signed(text), NOW)
    more = json.dumps({**msgspec.to_builtins(ENTRY), "later": [1]})
    assert read_entry(KEY, "cutthrough", ID, signed(more), NOW) == ENTRY


def test_the_key_does_not_show_the_token():
    assert b"token" not in KEY and len(KEY) == 32
    assert entry_key("\udcff") != entry_key("?")
