"""Rows of a file that a damaged page, or another program, has changed."""

import contextlib
import sqlite3

import pytest

from cutthrough.storage.stores import open_reader, open_store
from tests.capture.flows import row

DAMAGES = {
    "messages that are no JSON": "messages = '[{\"text\":'",
    "messages of other values": "messages = '[5, \"a\"]'",
    "octets for messages": "messages = x'ff'",
    "octets that are no text": "url = CAST(x'e6ffe697a541' AS TEXT)",
    "a size that is a text": "bytes = 'x'",
    "no size": "bytes = NULL",
    "a text for what is packed": "response_packed = 'x'"}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_row_keeps_no_other_from_coming_and_goes_like_each(
        tmp_path, damage, indexed):
    """No row was added any more when it was the oldest, nor could it be deleted."""
    file = str(tmp_path / "flows.db")
    store = open_store(file, 3, 0, 0.0, "here")
    store.write([row(n, response_body="中文字", messages='[{"text": "b"}]')
                 for n in (1, 2, 3)])
    while indexed and store.index(10):
        pass
    with contextlib.closing(sqlite3.connect(file)) as base, base:
        base.execute(f"UPDATE flows SET {damage} WHERE id IN (1, 2)")
    reader = open_reader(file)
    assert [one["id"] for one in reader.flows()] == [3, 2, 1]
    assert [one["id"] for one in reader.page(9, 9)] == [3, 2, 1]
    assert reader.delete([2]) == 1
    reader.close()
    store.write([row(4), row(5)])
    while store.index(10):
        pass
    store.close()
    reader = open_reader(file)
    assert [one["id"] for one in reader.flows()] == [5, 4, 3]
    assert [one["id"] for one in reader.flows("中文")] == [3]
    reader.close()
