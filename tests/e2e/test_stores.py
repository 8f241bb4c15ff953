"""Events at stores under load, and the losses: each exchange is stored once, or counted
(R71, R72).

    event: the writer is killed, or stands still; the store is locked, away, stands
           still, has gone or is replaced
    state: captures in a file or in PostgreSQL, and recordings likewise

A few run always, all of them by `make chaos`. Disks, versions and Redis have tests of
their own: test_stores_disks.py, test_stores_versions.py, test_stores_redis.py.
"""

import contextlib
import itertools
import os
import sqlite3
import textwrap
from collections import Counter

import pytest

from tests.support.origin import answer
from tests.support.postgres import server as server
from tests.support.stores import Site
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
# The supervisor takes a writer for hung that stands still for a tenth of the time
IMPATIENT = ("-c", """
import runpy, sys
from cutthrough.process import hang_watch
hang_watch.LOOK_S /= 10
sys.argv[0] = "cutthrough"
runpy.run_module("cutthrough", run_name="__main__", alter_sys=True)
""", "serve")
ALL = bool(os.environ.get("CUTTHROUGH_CHAOS"))


# Events. Each begins under load, and has ended when it returns


def kill(site):
    stopped(site).kill()
    site.pass_by()
    site.writer()


def stopped(site):
    """The writer, which stands still. Captures that a slow server, on a busy machine,
    has not stored when the writer's patience for a turn ends are in its memory alone
    (STORE_S): a moment without any is waited for. Recordings that wait for a server
    always are, and may be lost."""
    if site.recordings:
        writer = site.writer()
        writer.suspend()
        return writer
    return site.stop_writer(lambda pending: not pending)[0]


def stand_still(site):
    writer = site.writer()
    writer.suspend()
    site.pass_by()
    writer.resume()


def hang(site):
    """And does not go on."""
    stopped(site)
    site.said("does not answer: killed")
    site.pass_by()
    site.writer()


def lock_captures(site):
    _lock(site, site.database, "captured exchanges cannot be written: ")


def lock_recordings(site):
    _lock(site, site.session, "recordings cannot be written: ")


def _lock(site, path, line):
    base = sqlite3.connect(path, isolation_level=None, timeout=30)
    base.execute("BEGIN IMMEDIATE")
    site.said(line)                          # a lock that is short is waited for
    site.pass_by()
    base.execute("ROLLBACK")
    base.close()


def move(site):
    """As a rotation of logs does; it may be anything else, too."""
    for path in (site.database, site.session):
        for one in site.folder.glob(f"{path.name}*"):
            one.rename(one.with_name(f"old-{one.name}"))
    site.pass_by()
    wait_until(lambda: all(path.exists() for path, url in (
        (site.database, site.captures), (site.session, site.recordings)) if not url),
        site.proxy.stderr)


def replace(site):
    """By files that are no stores; later they are taken away again."""
    move(site)
    for path in (site.database, site.session):
        for one in site.folder.glob(f"{path.name}*"):
            one.rename(one.with_name(f"older-{one.name}"))
        path.write_bytes(b"of a user" * 1000)
    site.said("captured exchanges cannot be written: ")
    site.said("recordings cannot be written: ")
    site.pass_by()
    for path in (site.database, site.session):
        path.unlink()
    site.said("captured exchanges are written again")


def go_away(site):
    site.server.kill()
    site.said("cannot be written: ")
    site.pass_by()
    site.server.start()
    site.said("written again")


def not_answer(site):
    site.server.pause()
    site.pass_by()
    site.server.resume()


EVENTS = (kill, stand_still, hang, lock_captures, lock_recordings, move, replace,
          go_away, not_answer)
STATES = tuple(itertools.product(("file", "postgres"), repeat=2))
ALWAYS = {(kill, "file", "file"), (kill, "postgres", "file"),
          (lock_captures, "file", "file"), (move, "file", "file"),
          (go_away, "postgres", "file"), (replace, "file", "file")}


def can(event, captures, recordings):
    files = (captures, recordings).count("file")
    return {lock_captures: captures == "file", lock_recordings: recordings == "file",
            move: files, replace: files == 2, go_away: files < 2,
            not_answer: files < 2}.get(event, True)


CASES = [(event, *state) for event in EVENTS for state in STATES
         if can(event, *state) and (ALL or (event, *state) in ALWAYS)]


@pytest.fixture
def make(directory, request):
    def run(captures="file", recordings="file"):
        needs = "postgres" in (captures, recordings)
        site = Site(directory("stores"), captures, recordings,
                    request.getfixturevalue("server") if needs else None)
        sites.append(site)
        return site

    sites = []
    yield run
    for site in sites:
        site.over.set()
        if site.server is not None:
            site.server.resume()
            if site.server.process is None:
                site.server.start()


@pytest.mark.parametrize(
    "event, captures, recordings", CASES,
    ids=["-".join((case[0].__name__, *case[1:])) for case in CASES])
def test_each_exchange_is_stored_once_or_counted(
        make, start_policy, make_origin, dial, event, captures, recordings):
    """R71, R72. Of 242 exchanges 1 was recorded while the captures' server was away,
    and nothing was counted; a file that was moved took everything in silence."""
    site = make(captures, recordings)
    site.serve(start_policy, **({"command": IMPATIENT} if event is hang else {}))
    site.load(make_origin(answer(REPLY)), dial)
    site.pass_by()
    wait_until(lambda: site.captured() and site.recorded(), site.proxy.stderr)
    event(site)
    site.pass_by()
    # If recordings wait for a server in a writer's memory, they are lost with it
    site.check(event.__name__, most_lost=10_000 if (
        event in (kill, hang) and recordings == "postgres") else 0)


def test_a_writer_that_is_killed_while_its_store_is_late_loses_what_it_counted(
        make, start_policy, make_origin, dial):
    """R71, R72: no more is lost than waited in its memory, and each is counted."""
    site = make("postgres")
    site.serve(start_policy)
    site.load(make_origin(answer(REPLY)), dial)
    site.pass_by()
    wait_until(site.captured, site.proxy.stderr)
    site.server.pause()
    writer, count = site.stop_writer(lambda pending: pending > 20)
    writer.kill()
    site.server.resume()
    site.pass_by()
    site.said(f"{count} exchanges are lost: they waited in the memory of a writer")
    site.check("killed while its store is late", most_lost=count)


@pytest.mark.parametrize("captures", ["file", "postgres"])
def test_recordings_go_on_while_captures_cannot_be_written(
        make, start_policy, make_origin, dial, captures):
    """R72: captures of another version; and a stop reports the losses. Nothing was
    recorded, and `unrecorded = "refuse"` refused nothing."""
    site = make(captures)
    if captures == "postgres":
        site.server.ask("CREATE SCHEMA cutthrough; CREATE TABLE cutthrough.state "
                        "(version int); INSERT INTO cutthrough.state VALUES (1)",
                        site.captures)
    else:
        with contextlib.closing(sqlite3.connect(site.database)) as base:
            base.execute("PRAGMA user_version = 3")
    site.serve(start_policy, 'unrecorded = "refuse"')
    site.load(make_origin(answer(REPLY)), dial)
    site.pass_by(100)
    site.end()
    wait_until(lambda: site.recorded() == site.sent, site.proxy.stderr)
    assert site.refused == 0
    site.proxy.stop()
    said = site.proxy.stderr()
    assert f"{site.sent.total()} captured exchanges are lost: " in said
    assert said.count("has version ") == 2, "at the beginning, and at the end"


def test_captures_go_on_while_recordings_cannot_be_written(
        make, start_policy, make_origin, dial):
    """R72: and the rule refuses requests that cannot be recorded."""
    site = make()
    site.session.write_bytes(b"of a user" * 1000)
    site.serve(start_policy, 'unrecorded = "refuse"\nrecording_queue = 10\n'
                             'recording_queue_timeout = "200ms"')
    site.load(make_origin(answer(REPLY)), dial)
    wait_until(lambda: site.refused >= 3, site.proxy.stderr)
    site.end()
    wait_until(lambda: (site.captured() & site.sent) == site.sent, site.proxy.stderr)
    kept = site.sent.total()
    site.proxy.stop()
    assert site.recorded() == Counter()
    assert f"{kept} recordings are lost: " in site.proxy.stderr()


def test_a_stop_while_the_writer_is_dead_loses_nothing(
        make, start_policy, make_origin, dial):
    """R72: 30 of 31 exchanges were dropped without a line."""
    site = make()
    site.serve(start_policy)
    client, origin = dial(site.proxy), make_origin(answer(REPLY))
    for deaths in range(1, 4):               # the next one starts some seconds later
        site.writer().kill()
        wait_until(lambda n=deaths: site.proxy.stderr().count("died: ") == n,
                   site.proxy.stderr)
    for number in range(30):
        assert client.get(origin.url(f"/{number}")).status == 200
        site.sent[f"/{number}"] += 1
    client.close()
    site.proxy.stop()
    assert site.captured() == site.recorded() == site.sent
    assert "lost" not in site.proxy.stderr()


def test_a_stop_says_how_many_exchanges_are_left_in_the_rings(
        start_policy, make_origin, dial, directory):
    """R72."""
    folder = directory("stores")
    (folder / "flows.db").write_bytes(b"of a user" * 1000)
    proxy = start_policy(
        '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\ncapture = "head"\n',
        f'capture_file = "{folder}/flows.db"')
    client, origin = dial(proxy), make_origin(answer(REPLY))
    for _ in range(7):
        assert client.get(origin.url()).status == 200
    client.close()
    proxy.stop()
    assert "7 exchanges are lost: they were in the rings" in proxy.stderr()


HOOK = textwrap.dedent("""
    import os, signal

    class Hooks:
        def on_record(self, one):
            if one.request.path == "/deadly":
                os.kill(os.getpid(), signal.SIGKILL)
            if one.request.path == "/failing":
                raise RuntimeError("secret")
            return one
""")


def test_an_exchange_that_kills_the_writer_costs_itself_alone(
        make, start_policy, make_origin, dial):
    """R71: each writer read it first, and died, until the proxy was stopped."""
    site = make()
    site.config += 'recording_hooks = "kept:Hooks"\n'
    site.serve(start_policy, modules={"kept": HOOK})
    client, origin = dial(site.proxy), make_origin(answer(REPLY))
    names = ["/1", "/deadly", "/failing", "/2", "/3"]
    for name in names:
        assert client.get(origin.url(name)).status == 200
    client.close()
    others = Counter(("/1", "/2", "/3"))
    wait_until(lambda: site.recorded() == others, site.proxy.stderr)
    wait_until(lambda: site.counted()["failed"] == 2, lambda: str(site.counted()))
    assert 2 <= site.proxy.stderr().count("died: ") <= 3
    site.proxy.stop()
    said = site.proxy.stderr()
    assert "it ended two writers" in said and "RuntimeError in kept" in said
    assert site.captured() >= others + Counter(["/failing"])
