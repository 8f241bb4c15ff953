"""Disks under the stores that are full, or slow: each exchange is stored once, or
counted (R72), and nothing else waits for them (R58, R64).

    state: captures or recordings, in a file or in PostgreSQL

A few run always, all of them by `make chaos`.
"""

import contextlib
import os
import statistics
import time

import pytest

from tests.support.disks import SlowDisk, SmallDisk, may_mount
from tests.support.origin import answer
from tests.support.postgres import PROGRAMS, Postgres
from tests.support.sanitized import SANITIZED
from tests.support.stores import Site
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.any_loop,
    pytest.mark.skipif(not may_mount(), reason="no mount namespace may be made here")]

ALL = pytest.mark.skipif(not os.environ.get("CUTTHROUGH_CHAOS"),
                         reason="a part of `make chaos`: all take half an hour")
BODY = b"x" * 50_000
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + BODY
SLOW_S = 0.2


@pytest.fixture
def disk(directory):
    with contextlib.closing(SmallDisk(directory("small"), "64m")) as small:
        yield small


@pytest.fixture
def make(directory, request):
    sites = []

    def run(*state, **more):
        sites.append(Site(directory("stores"), *state, **more))
        return sites[-1]

    yield run
    for site in sites:
        site.over.set()


def wait_stored(site):
    site.pass_by()
    wait_until(lambda: site.captured() and site.recorded(), site.proxy.stderr)


@ALL
@pytest.mark.parametrize("what", ["captures", "recordings"])
def test_a_full_disk_under_a_file(make, disk, start_policy, make_origin, dial, what):
    """Captures are lost meanwhile, and counted; recordings wait."""
    site = make(disk=disk, on_disk=what)
    site.serve(start_policy)
    site.load(make_origin(answer(REPLY)), dial)
    wait_stored(site)
    disk.fill()
    site.said("cannot be written: ")
    site.pass_by()
    disk.free()
    site.said("written again")
    site.pass_by()
    site.check(f"full disk under {what}", most_lost=10_000 * (what == "captures"))
    assert what == "recordings" or "captured exchanges are written again; " in (
        site.proxy.stderr())


class OnSmallDisk(Postgres):
    """A server with its databases on a small disk."""

    def start(self):
        self.small = SmallDisk(self.base / "small", "64m")
        self.wrapper = self.small.enter(
            "setpriv", f"--reuid={self.owner}", f"--regid={self.owner}",
            "--clear-groups") if self.owner else self.small.enter()
        if self.owner:
            self.small.run("chown", self.owner, self.small.path)
        super().start()
        self.ask(f"CREATE TABLESPACE small LOCATION '{self.small.path}'")

    def make(self):
        self._made += 1
        self.ask(f"CREATE DATABASE base{self._made} TABLESPACE small")
        return self.url(f"base{self._made}")

    def close(self):
        super().close()
        self.small.close()


@ALL
# `make test` installs it: without it, somebody runs this file alone
@pytest.mark.skipif(PROGRAMS is None, reason="postgresql is not installed")
@pytest.mark.parametrize("what", ["captures", "recordings"])
def test_a_full_disk_under_a_server(make, start_policy, make_origin, dial, what):
    """As if the server were away: new exchanges wait meanwhile."""
    with contextlib.closing(OnSmallDisk()) as server:
        kinds = ["postgres" if what == name else "file"
                 for name in ("captures", "recordings")]
        site = make(*kinds, server)
        site.serve(start_policy)
        site.load(make_origin(answer(REPLY)), dial)
        wait_stored(site)
        server.small.fill()
        site.said("cannot be written: ")
        site.pass_by()
        server.small.free()
        site.said("written again")
        site.pass_by()
        site.check(f"full disk under {what}")


@pytest.mark.skipif(SANITIZED, reason="preloads functions of its own")
@pytest.mark.parametrize("what", [
    pytest.param("flows.db", marks=ALL), pytest.param("default.session", marks=ALL),
    "/stores-"])
def test_a_slow_disk_holds_nobody_up(make, start_policy, make_origin, dial, directory,
                                     what):
    """Nothing is lost either. Each write takes 0.2 s."""
    slow, site = SlowDisk(directory("slow"), what, SLOW_S), make()
    site.serve(start_policy, env=slow.env)
    origin = make_origin(answer(REPLY))
    site.load(origin, dial)
    wait_stored(site)
    slow.begin()
    client, took = dial(site.proxy), []
    for _ in range(40):
        begun = time.monotonic()
        assert client.get(origin.url("/plain")).body == BODY
        took.append(time.monotonic() - begun)
        site.pass_by(2)
    assert statistics.median(took) < SLOW_S / 4
    assert sorted(took)[-5] < SLOW_S
    slow.end()
    site.check(f"slow disk under {what}")
