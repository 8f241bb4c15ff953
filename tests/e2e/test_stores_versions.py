"""Stores of another version: found at the start, at a reload, and while the proxy runs.
They are left alone, the log reports it, and new exchanges wait meanwhile (R72).

    state: captures and recordings, in a file or in PostgreSQL

A few run always, all of them by `make chaos`.
"""

import contextlib
import os
import sqlite3

import pytest

from tests.support.origin import answer
from tests.support.postgres import server as server
from tests.support.stores import Site
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

ALL = pytest.mark.skipif(not os.environ.get("CUTTHROUGH_CHAOS"),
                         reason="a part of `make chaos`: all take half an hour")
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
# Of the tables, before and after ours
OLDER, NEWER = 1, 9
KINDS = ["file", pytest.param("postgres", marks=ALL)]
SCHEMAS = ("cutthrough", "cutthrough_recordings")


@pytest.fixture
def make(directory, request):
    sites = []

    def run(kind):
        server = request.getfixturevalue("server") if kind == "postgres" else None
        sites.append(Site(directory("stores"), kind, kind, server))
        return sites[-1]

    yield run
    for site in sites:
        site.over.set()


def make_file(path, version):
    if path.suffix == ".session":            # ours is the first version
        version = max(version, NEWER)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE kept (what)")
        base.execute("INSERT INTO kept VALUES ('of then')")
        base.execute(f"PRAGMA user_version = {version}")
        base.commit()


def make_schemas(server, url, version):
    for name in SCHEMAS:
        server.ask(f"CREATE SCHEMA {name}; CREATE TABLE {name}.state (version int); "
                   f"INSERT INTO {name}.state VALUES ({version})", url)


def put_aside(site):
    """As an operator does: the stores get other names."""
    if site.captures:
        for url, name in ((site.captures, SCHEMAS[0]), (site.recordings, SCHEMAS[1])):
            site.server.ask(f"ALTER SCHEMA {name} RENAME TO {name}_of_then", url)
        return
    for path in (site.database, site.session):
        for one in site.folder.glob(f"{path.name}*"):
            one.rename(one.with_name(f"{one.name}-of-then"))


def check_kept(site):
    """Nothing has changed in the stores of another version."""
    if site.captures:
        for url, name in ((site.captures, SCHEMAS[0]), (site.recordings, SCHEMAS[1])):
            assert site.server.ask("SELECT count(*) FROM pg_tables WHERE schemaname = "
                                   f"'{name}_of_then'", url) == [(1,)]
        return
    for path in (site.database, site.session):
        with contextlib.closing(sqlite3.connect(
                path.with_name(f"{path.name}-of-then"))) as base:
            assert base.execute("SELECT what FROM kept").fetchall() == [("of then",)]


def both_said(site, count=1):
    wait_until(lambda: site.proxy.stderr().count("has version ") >= 2 * count,
               site.proxy.stderr)


def both_again(site):
    site.said("captured exchanges are written again")
    site.said("recordings are written again")


@pytest.mark.parametrize("version", [OLDER, pytest.param(NEWER, marks=ALL)])
@pytest.mark.parametrize("kind", KINDS)
def test_another_version_at_the_start(
        make, start_policy, make_origin, dial, kind, version):
    site = make(kind)
    if kind == "file":
        for path in (site.database, site.session):
            make_file(path, version)
    else:
        make_schemas(site.server, site.captures, version)
        make_schemas(site.server, site.recordings, version)
    site.serve(start_policy)
    site.load(make_origin(answer(REPLY)), dial)
    both_said(site)
    site.pass_by()
    put_aside(site)
    both_again(site)
    site.pass_by()
    site.check(f"version {version} at the start")
    check_kept(site)


@ALL
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_another_version_while_it_runs(make, start_policy, make_origin, dial, kind):
    """A file of another version takes the place of ours, or the server's tables have
    another version when it is connected again."""
    site = make(kind)
    site.serve(start_policy)
    site.load(make_origin(answer(REPLY)), dial)
    site.pass_by()
    wait_until(lambda: site.captured() and site.recorded(), site.proxy.stderr)
    if kind == "file":
        for path in (site.database, site.session):
            made, old = (path.with_name(f"{end}-{path.name}") for end in ("new", "old"))
            make_file(made, OLDER)
            for end in ("-wal", "-shm"):     # it would go into the other file
                path.with_name(f"{path.name}{end}").rename(f"{old}{end}")
            old.hardlink_to(path)
            made.rename(path)
    else:
        for url, name in ((site.captures, SCHEMAS[0]), (site.recordings, SCHEMAS[1])):
            site.server.ask(f"UPDATE {name}.state SET version = 100 + version; "
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                            "WHERE datname = current_database() AND "
                            "pid != pg_backend_pid()", url)
    both_said(site)
    site.pass_by()
    if kind == "file":
        put_aside(site)
    else:
        for url, name in ((site.captures, SCHEMAS[0]), (site.recordings, SCHEMAS[1])):
            site.server.ask(f"UPDATE {name}.state SET version = version - 100", url)
    both_again(site)
    site.pass_by()
    site.check("another version while it runs")


@ALL
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_another_version_at_a_reload(make, start_policy, make_origin, dial, kind):
    """The configuration names a store of captures that has another version, and then
    the first store again. Exchanges in the writer's memory are lost, and counted."""
    site = make(kind)
    if kind == "file":
        other = site.folder / "flows.then"
        make_file(other, OLDER)
        config = site.configuration(False, False, other)
    else:
        other = site.server.make()
        make_schemas(site.server, other, OLDER)
        config = site.configuration(other, site.recordings)
    site.serve(start_policy)
    site.load(make_origin(answer(REPLY)), dial)
    site.pass_by()
    site.reload(config)
    site.said("has version ")
    site.pass_by()
    site.reload(site.config)
    site.pass_by()
    site.check("another version at a reload", most_lost=10_000)
