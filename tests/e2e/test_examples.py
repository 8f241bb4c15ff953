"""The examples of docs/ in a real proxy: what a reader copies works."""

import sqlite3

import pytest

from tests.support.client import USER
from tests.support.origin import echo
from tests.support.proxy import ROOT


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "allow.db"
    with sqlite3.connect(path) as database:
        database.execute("create table allowed (user text, host text, port integer, "
                         "primary key (user, host, port)) without rowid")
    database.close()
    return path


def allow(table, *row):
    with sqlite3.connect(table) as database:
        database.execute("insert into allowed values (?, ?, ?)", row)
    database.close()


@pytest.fixture
def start(start_proxy, table):
    examples = ROOT / "docs" / "examples"
    return lambda: start_proxy("--policy-hook", "hook_sqlite:decide", env={
        "PYTHONPATH": str(examples), "ALLOW_LIST": str(table)})


def test_the_hook_with_a_database_decides(start, table, make_origin, dial):
    origin, other, tunnel = make_origin(), make_origin(), make_origin(echo)
    allow(table, USER, "127.0.0.1", origin.port)
    allow(table, "*", ".localhost", tunnel.port)
    allow(table, "somebody else", "127.0.0.1", other.port)
    proxy = start()
    assert dial(proxy).get(origin.url()).status == 200
    assert dial(proxy).get(other.url()).status == 403
    dial(proxy).tunnel(f"a.localhost:{tunnel.port}")
    lines = proxy.wait_log(2)
    assert {(line["reason"], line["hook"]) for line in lines} == {
        ("ok", "in the table"), ("destination_denied", "not in the table")}
    assert not other.received


def test_its_verdict_is_kept_for_its_time(start, table, make_origin, dial):
    origin, proxy = make_origin(), start()
    assert dial(proxy).get(origin.url()).status == 403
    allow(table, USER, "127.0.0.1", origin.port)
    assert dial(proxy).get(origin.url()).status == 403, "for a minute"
    proxy.hup()
    assert dial(proxy).get(origin.url()).status == 200


def test_without_its_database_nothing_passes(start, table, make_origin, dial):
    table.unlink()
    proxy, origin = start(), make_origin()
    assert dial(proxy).get(origin.url()).status == 503
    assert "unable to open database file" in proxy.stderr()
    assert not table.exists()
    assert not origin.received
