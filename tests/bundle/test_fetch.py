"""Bundles over HTTPS, over HTTP on this host, and from files."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutthrough.bundle import fetch as fetching
from cutthrough.bundle.fetch import Fetched, FetchError, fetch, make_context
from cutthrough.bundle.manifest import MOST_BYTES
from cutthrough.config.bundles import BundleSource
from tests.support.bundles import BundleServer, free_port
from tests.support.certificates import authority
from tests.support.wait import wait_until


@pytest.fixture
def server() -> Iterator[BundleServer]:
    with contextlib.closing(BundleServer(b"content")) as running:
        yield running


def source(url: str, header: str = "", ca: str | None = None) -> BundleSource:
    trusted = str(authority().own.certificate) if ca is None else ca
    return BundleSource(url, (), header, trusted, "")


async def get(origin: BundleSource, etag: str = "") -> Fetched | None:
    return await fetch(origin, etag, make_context(origin))


async def reason(origin: BundleSource) -> str:
    with pytest.raises(FetchError) as caught:
        await get(origin)
    return str(caught.value)


async def test_the_etag_of_an_answer_asks_for_a_later_one(server) -> None:
    first = await get(source(server.url))
    assert first is not None and first.data == b"content"
    assert await get(source(server.url), first.etag) is None
    server.content = b"another"
    second = await get(source(server.url), first.etag)
    assert second is not None and second.data == b"another"
    assert server.statuses == [200, 304, 200]


async def test_the_field_goes_with_each_request(server) -> None:
    await get(source(server.url, "Authorization: Bearer abc"))
    assert server.seen[0].authorization == "Bearer abc"


async def test_an_answer_that_is_cut_off_is_no_bundle(server) -> None:
    server.mode = "cut"
    assert await reason(source(server.url)) == "the answer is cut off"


async def test_a_silent_server_ends_with_the_time(server, monkeypatch) -> None:
    server.mode = "silent"
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.3)
    assert "within 0.3 s" in await reason(source(server.url))


async def test_other_statuses_are_reasons(server) -> None:
    server.content = b""
    assert await reason(source(server.url)) == "the server answered 404"


async def test_a_long_answer_is_not_read_to_its_end(server) -> None:
    server.content = bytes(MOST_BYTES + 1)
    assert "more than" in await reason(source(server.url))


async def test_an_unknown_authority_is_refused(server) -> None:
    assert "the server's certificate is refused" in await reason(
        source(server.url, ca=""))


async def test_no_server_is_a_reason_without_the_query() -> None:
    said = await reason(source(f"https://127.0.0.1:{free_port()}/a?secret=abc"))
    assert said.startswith("no connection: ") and "abc" not in said


async def test_a_file_of_no_authorities_is_a_reason(tmp_path: Path) -> None:
    assert "no-such" in await reason(source("https://x/", ca=f"{tmp_path}/no-such"))


async def test_http_serves_this_host() -> None:
    with contextlib.closing(BundleServer(b"content", has_tls=False)) as server:
        fetched = await get(source(server.url))
        assert fetched is not None and fetched.data == b"content"


async def test_a_file_is_read_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a bundle"
    path.write_bytes(b"content")
    url = f"file:{str(path).replace(' ', '%20')}"
    first = await get(source(url))
    assert first is not None and first.data == b"content"
    assert await get(source(url), first.etag) is None
    (tmp_path / "new").write_bytes(b"another")
    os.rename(tmp_path / "new", path)
    second = await get(source(url), first.etag)
    assert second is not None and second.data == b"another"


async def test_only_a_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is no regular file" in await reason(source(f"file:{tmp_path}/pipe"))
    assert "No such file" in await reason(source(f"file:{tmp_path}/none"))


async def test_the_loop_goes_on_while_a_server_is_silent(server) -> None:
    server.mode = "silent"
    waiting = asyncio.create_task(get(source(server.url)))
    await asyncio.to_thread(wait_until, lambda: server.seen, "a request")
    began = time.monotonic()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done() and time.monotonic() - began < 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
