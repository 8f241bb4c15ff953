"""Polls for bundles, many in one process, and the last bundle of each."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from cutthrough.bundle.cache import CURRENT, GOOD, Cache
from cutthrough.bundle.manifest import NO_LABEL, Label
from cutthrough.config.config import Config
from cutthrough.generation.checks import read_label
from cutthrough.generation.generation import Generation
from cutthrough.policy.source import Policy
from cutthrough.supervisor import bundle_poll
from cutthrough.supervisor.bundle_poll import BundlePoll
from cutthrough.supervisor.bundle_start import fetch_first
from tests.support.bundles import BundleServer, bundle, public
from tests.support.certificates import authority
from tests.support.wait import TRIES

FILES = {"policy.toml": 'default = "deny"\n'}


class Result:
    def __init__(self) -> None:
        self.result = "ok"
        self.over = asyncio.Event()


class Host:
    """A program's reloads, of bundles alone: they are in force at once, or refused."""

    def __init__(self, url: str, cache: Path, interval: float) -> None:
        config = Config(
            bundle_url=url, bundle_key=(public(),), bundle_cache=str(cache),
            bundle_ca=str(authority().own.certificate), bundle_interval=interval)
        self.cache = Cache(str(cache))
        self.cache.open()
        self.refuses = ""                    # unread: with a mistake in a file
        self.labels: list[Label] = []
        self.generation = Generation(1, config, Policy())
        self.poll = BundlePoll(lambda: self.generation, self.reload)

    def start(self) -> None:
        if self.cache.manifest(GOOD) is None:
            manifest = fetch_first(self.generation.config.bundle_source, self.cache)
            self.cache.point(CURRENT, manifest.serial)
        self.read()

    def read(self) -> Label:
        label = read_label(self.generation.config)
        self.generation = msgspec.structs.replace(
            self.generation, number=self.generation.number + 1, bundle=label)
        self.labels.append(label)
        return label

    def reload(self) -> Result:
        result = Result()
        result.over.set()
        if self.refuses:
            self.poll.on_refused(None if self.refuses == "unread" else read_label(
                self.generation.config))
        else:
            self.poll.on_commit(self.read())
        return result

    @property
    def polls(self) -> dict[str, int]:
        state = self.poll.state()
        assert state is not None
        return dict(state.polls)


@pytest.fixture
def server() -> Iterator[BundleServer]:
    with contextlib.closing(BundleServer(bundle(1, FILES))) as running:
        yield running


@pytest.fixture
def host(server: BundleServer, tmp_path: Path) -> Host:
    member = Host(server.url, tmp_path / "cache", 0.1)
    member.start()
    return member


@contextlib.asynccontextmanager
async def polling(*hosts: Host):
    for host in hosts:
        host.poll.begin()
    try:
        yield
    finally:
        for host in hosts:
            host.poll.end()


async def until(condition) -> None:
    async with asyncio.timeout(60):
        for _ in itertools.count():
            if condition():
                return
            await asyncio.sleep(0.01)


async def test_a_new_bundle_is_taken_and_kept(host, server) -> None:
    async with polling(host):
        server.content = bundle(2, FILES)
        await until(lambda: host.polls["new"])
        assert host.labels[-1] == ("r2", 2)
        kept = host.cache.verify(GOOD, [public()])
        assert kept is not None and kept.serial == 2
        await until(lambda: host.polls["unchanged"] > 2)
    assert host.polls["new"] == 1 and 304 in server.statuses


async def test_a_server_without_etags_brings_nothing_twice(host, server) -> None:
    server.has_etags = False
    async with polling(host):
        server.content = bundle(2, FILES)
        await until(lambda: host.polls["unchanged"] > 2)
    assert host.polls["new"] == 1 and 304 not in server.statuses


@pytest.mark.parametrize("content, said", [
    (bundle(2, FILES, signer="second"), "the signature is of none"),
    (bundle(1, FILES, "other"), "has other content than the one that is in force"),
    (b"no bundle" * 99, "is neither a tar nor"),
], ids=["signature", "same serial", "form"])
async def test_a_refused_bundle_is_named_once_and_changes_nothing(
        host, server, capfd, content, said) -> None:
    async with polling(host):
        server.content = content
        await until(lambda: host.polls["refused"])
        await until(lambda: host.polls["unchanged"] > 2)
    assert host.polls["refused"] == 1 and len(host.labels) == 1
    assert capfd.readouterr().err.count(said) == 1


async def test_an_older_serial_is_refused(host, server) -> None:
    async with polling(host):
        server.content = bundle(3, FILES)
        await until(lambda: host.polls["new"])
        server.content = bundle(2, FILES)
        await until(lambda: host.polls["refused"])
    assert host.labels[-1].serial == 3


async def test_a_canarys_bundle_is_held_by_the_others(host, server) -> None:
    async with polling(host):
        server.content = bundle(2, FILES, "canary", percent=0)
        await until(lambda: host.polls["held"])
        assert host.labels[-1].serial == 1
        server.content = bundle(3, FILES, "canary")
        await until(lambda: host.polls["new"])
    assert host.labels[-1] == ("canary", 3)


@pytest.mark.parametrize("refuses", ["unread", "in a worker"])
async def test_what_a_reload_refuses_is_not_current_and_is_tried_again(
        host, server, monkeypatch, refuses) -> None:
    """The mistake may have been in another file of this host."""
    monkeypatch.setattr(bundle_poll, "AGAIN_S", 0.3)
    host.refuses = refuses
    async with polling(host):
        server.content = bundle(2, FILES)
        await until(lambda: host.polls["refused"])
        assert read_label(host.generation.config).serial == 1
        host.refuses = ""
        await until(lambda: host.polls["new"])
    assert host.labels[-1].serial == 2


async def test_a_refused_reload_of_the_bundle_in_force_is_none_of_its_business(
        host, server) -> None:
    async with polling(host):
        await until(lambda: host.polls["unchanged"])
        host.poll.on_refused(host.generation.bundle)
        host.poll.on_refused(None)
        assert host.polls["refused"] == 0
        assert read_label(host.generation.config).serial == 1


async def test_a_source_that_is_away_is_asked_again(host, server, capfd) -> None:
    async with polling(host):
        server.mode = "cut"
        server.content = bundle(2, FILES)
        await until(lambda: host.polls["failed"] > 1)
        server.mode = "whole"
        await until(lambda: host.polls["new"])
    said = capfd.readouterr().err
    assert said.count("the answer is cut off") == 1 and "answers again" in said


async def test_a_full_disk_is_no_refusal(host, server, monkeypatch) -> None:
    unpack = Cache.unpack

    def fail(self, content) -> None:
        monkeypatch.setattr(Cache, "unpack", unpack)
        raise OSError(28, "No space left on device")

    async with polling(host):
        monkeypatch.setattr(Cache, "unpack", fail)
        server.content = bundle(2, FILES)
        await until(lambda: host.polls["new"])
    assert host.polls["failed"] == 1


async def test_an_upgrade_that_fails_meanwhile_loses_no_bundle(
        host, server, monkeypatch) -> None:
    """It ends the polls, and begins them again."""
    unpack, reached, ended = Cache.unpack, threading.Event(), threading.Event()

    def wait(self, content) -> None:
        monkeypatch.setattr(Cache, "unpack", unpack)
        reached.set()
        ended.wait(60)

    monkeypatch.setattr(Cache, "unpack", wait)
    async with polling(host):
        server.content = bundle(2, FILES)
        await until(reached.is_set)
    ended.set()
    async with polling(host):
        await until(lambda: host.polls["new"])
    assert host.labels[-1].serial == 2


async def test_a_reload_without_bundles_stops_no_later_bundle(host, server) -> None:
    with_bundles = host.generation

    def commit_another() -> Result:
        host.generation = msgspec.structs.replace(
            with_bundles, config=Config(), bundle=NO_LABEL)
        host.poll.on_commit(NO_LABEL)
        result = Result()
        result.over.set()
        return result

    request = [commit_another]
    poll = host.poll = BundlePoll(lambda: host.generation, lambda: request[-1]())
    async with polling(host):
        server.content = bundle(2, FILES)
        await until(lambda: host.generation is not with_bundles)
        await until(lambda: poll.state() is None)
    host.generation = with_bundles
    request.append(host.reload)
    async with polling(host):
        server.content = bundle(3, FILES)
        await until(lambda: host.polls["new"])
    assert host.labels[-1].serial == 3


async def test_a_hundred_hosts_have_a_bundle_within_ten_seconds(
        server, tmp_path) -> None:
    """With the default interval, and a TLS connection for each request; then a bundle
    of another key, which none of them takes."""
    interval = Config().bundle_interval
    hosts = [Host(server.url, tmp_path / f"{number}", interval)
             for number in range(100)]
    for host in hosts:
        await asyncio.to_thread(host.start)

    def have(serial: int) -> bool:
        return all(host.labels[-1].serial == serial for host in hosts)

    took: list[float] = []
    async with polling(*hosts):
        await until(lambda: all(host.polls["unchanged"] for host in hosts))
        for serial in range(2, 2 + TRIES):
            server.content = bundle(serial, FILES)
            began = time.monotonic()
            await until(partial(have, serial))
            took.append(time.monotonic() - began)
            if took[-1] < 10:
                break
        server.content = bundle(99, FILES, signer="second")
        await until(lambda: all(host.polls["refused"] for host in hosts))
        assert have(1 + len(took))
    print(f"a bundle was in force at {len(hosts)} hosts within {took[-1]:.1f} s")
    assert took[-1] < 10


def test_without_bundles_there_is_no_state() -> None:
    generation = Generation(1, Config(), Policy())
    assert generation.bundle == NO_LABEL
    assert BundlePoll(lambda: generation, Result).state() is None
