"""Bodies in zstd: both stores keep, find, filter, show and export them as others."""

import contextlib
import json
import os
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.capture.filters import parse_filter
from cutthrough.exchange import packing
from cutthrough.exchange.columns import ADDED, COLUMNS
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.formats.har import make_archive
from cutthrough.exchange.packing import LEAST, Packer, unpack
from cutthrough.storage.settings import Settings
from cutthrough.storage.store import BYTES, PAIRS, StoreError
from cutthrough.storage.stores import open_reader, open_store
from cutthrough.tape.batch import Batch
from tests.capture.flows import drop_columns, row

TEXT = json.dumps([{"name": f"Zoë {n % 7}", "kind": "需要检查"} for n in range(90)],
                  ensure_ascii=False)
OCTETS = bytes(range(256)) * 30
MESSAGES = json.dumps([{"at_us": n, "side": "request", "kind": "text", "bytes": 5,
                        "text": "hello sailor"} for n in range(60)])
ROWS = [
    row(1, request_body=TEXT, response_body=OCTETS,
        bytes=500 + len(TEXT) + len(OCTETS)),
    row(2, request_body="short", response_body=os.urandom(LEAST * 2), bytes=3000),
    row(3, kind="tunnel", messages=MESSAGES, request_body=None, response_body=None,
        bytes=9000),
    row(4, response_body="x" * LEAST, bytes=2000)]


@pytest.fixture(params=["sqlite", "postgres"])
def path(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "flows.db")
    return request.getfixturevalue("postgres").make()


def fill(path, rows=ROWS, *, compress=True, count=0):
    store = open_store(path, count, 0, 0, "here", compress=compress)
    store.write(rows)
    while store.index(10):
        pass
    store.close()


def read(path, words=""):
    with contextlib.closing(open_reader(path)) as reader:
        return {flow.id: flow for flow in map(Flow, reader.flows(words))}


def bodies(flows):
    return {number: (flow.request_body, flow.response_body, flow.messages)
            for number, flow in flows.items()}


def test_what_is_read_is_what_was_written(path, tmp_path):
    fill(path)
    plain = str(tmp_path / "plain.db")
    fill(plain, compress=False)
    flows, others = read(path), read(plain)
    assert bodies(flows) == bodies(others)
    with contextlib.closing(open_reader(path)) as reader:
        assert list(reader.bodies(1)) == [TEXT, OCTETS, None]
        assert list(reader.bodies(3)) == [None, None, MESSAGES]
        assert list(reader.bodies(9)) == [None] * 3
    assert json.dumps(make_archive(flows.values())) == json.dumps(
        make_archive(others.values()))
    assert flows[1].bytes < others[1].bytes - 7000 and flows[2].bytes == 3000


def test_words_and_filters_find_them(path):
    fill(path)
    for words, found in (("Zoë", [1]), ("检查", [1]), ("sailor", [3]), ("short", [2])):
        assert list(read(path, words)) == found, words
    for text, found in (('~bq "Zoë 6"', {1}), ("~b sailor", {3}), ("~bs ^x+$", {4})):
        test = parse_filter(text)
        assert {number for number, flow in read(path).items() if test(flow)} == found


def test_words_go_with_their_row(path):
    fill(path)
    with contextlib.closing(open_reader(path)) as reader:
        assert reader.delete([1]) == 1
    assert read(path, "Zoë") == {}
    fill(path, [row(5, response_body=TEXT, bytes=9000)], count=1)
    assert list(read(path, "检查")) == [5] and read(path, "sailor") == {}


def test_tables_of_an_earlier_program_keep_both_kinds(path):
    fill(path, ROWS[:1], compress=False)
    drop_columns(path, ADDED)
    fill(path, ROWS[1:])
    assert {number: flow.request_body for number, flow in read(path).items()} == {
        1: TEXT, 2: "short", 3: None, 4: ""}
    assert list(read(path, "Zoë")) == [1] and list(read(path, "sailor")) == [3]


def test_a_batch_that_is_written_again_is_packed_once():
    batch = Batch.of(ROWS, len(COLUMNS))
    for _ in range(2):
        batch.pack(PAIRS, BYTES, Packer().pack, LEAST)
        (first, *_) = batch
        assert first[COLUMNS.index("request_body")] is None
        packed = [first[beside] for _, beside in PAIRS]
        assert [unpack(one) if one else None for one in packed] == [TEXT, OCTETS, None]
        assert first[BYTES] == 500 + sum(map(len, packed[:2]))


@given(st.binary(max_size=5000) | st.text(st.characters(exclude_categories=["Cs"]),
                                          max_size=3000))
def test_any_body_is_the_same_again(body):
    packed = Packer().pack(body.encode() if isinstance(body, str) else body,
                           isinstance(body, str))
    assert unpack(packed) == body


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused(data):
    assert unpack(data) is None or data[1:5] == b"\x28\xb5\x2f\xfd"


def test_what_inflates_is_bounded(monkeypatch):
    """R65: a row that someone has written into the database."""
    packed = Packer().pack(bytes(10 << 20), False)
    assert len(packed) < 2000 and unpack(packed) == bytes(10 << 20)
    monkeypatch.setattr(packing, "MOST_UNPACKED", 1 << 20)
    assert unpack(packed) is None
    assert unpack(packed[:-1]) is unpack(b"t\xff" + packed) is None


def test_a_malformed_one_costs_itself_alone(tmp_path):
    path = str(tmp_path / "flows.db")
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("UPDATE flows SET response_packed = x'740102' WHERE id = 4")
        base.commit()
    assert bodies(read(path))[4] == ("", None, [])
    assert bodies(read(path))[1][0] == TEXT
    with contextlib.closing(open_reader(path)) as reader:
        assert reader.delete([4]) == 1


def test_without_the_package_the_remedy_is_named(path, monkeypatch):
    fill(path)
    monkeypatch.setattr(packing, "_ZSTD", None)
    with pytest.raises(StoreError, match="codings"):
        fill(path)
    with contextlib.closing(open_reader(path)) as reader:
        assert reader.light(1)["url"]
        with pytest.raises(StoreError, match="codings"):
            reader.bodies(1)


def test_a_writer_compresses_if_it_is_told():
    assert not Settings(database="", count=0, bytes=0, age=0, credentials=False,
                        fields=(), query=(), json=()).compress
