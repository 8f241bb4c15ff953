"""Bundles on disk: links, verification, and leftovers."""

import os
from pathlib import Path

import pytest

from cutthrough.bundle.archive import read_bundle
from cutthrough.bundle.cache import CURRENT, GOOD, Cache
from cutthrough.bundle.manifest import BundleError
from tests.support.bundles import bundle, public


def unpack(cache: Cache, serial: int, *links: str) -> None:
    cache.unpack(read_bundle(
        bundle(serial, {"policy.toml": f"{serial}", "lists/a": "x"}), [public()]))
    for link in links:
        cache.point(link, serial)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    opened = Cache(str(tmp_path / "cache"))
    opened.open()
    return opened


def test_a_link_changes_as_a_whole(cache: Cache) -> None:
    unpack(cache, 1, CURRENT, GOOD)
    unpack(cache, 2, CURRENT)
    folder = Path(cache.directory)
    assert (folder / CURRENT / "policy.toml").read_text() == "2"
    assert (folder / GOOD / "policy.toml").read_text() == "1"
    assert (folder / GOOD / "lists/a").read_text() == "x"
    manifest = cache.manifest(CURRENT)
    assert manifest is not None and manifest.label == ("r2", 2)


def test_bundles_that_no_link_names_are_removed(cache: Cache) -> None:
    for serial in (1, 2, 3):
        unpack(cache, serial, CURRENT, GOOD)
    Path(cache.directory, ".new-left").mkdir()
    unpack(cache, 4)
    assert {*os.listdir(cache.directory)} == {"3", "4", CURRENT, GOOD}
    unpack(cache, 4)                         # of the same serial, refused before


def test_files_are_their_owners_alone(cache: Cache) -> None:
    unpack(cache, 1, CURRENT)
    for path in Path(cache.directory, CURRENT).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_directory_that_others_can_change_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(BundleError, match="other users can write"):
        Cache(str(tmp_path)).open()


@pytest.mark.parametrize("harm", ["changed", "gone", "signature", "key"])
def test_a_start_verifies_what_is_on_disk(cache: Cache, harm: str) -> None:
    assert cache.verify(GOOD, [public()]) is None
    unpack(cache, 1, GOOD)
    assert cache.verify(GOOD, [public()])
    folder = Path(cache.directory, GOOD)
    if harm == "changed":
        (folder / "policy.toml").write_text("2")
    elif harm == "gone":
        (folder / "lists/a").unlink()
    elif harm == "signature":
        (folder / "manifest.sig").write_bytes(bytes(64))
    with pytest.raises(BundleError):
        cache.verify(GOOD, [public("second" if harm == "key" else "first")])
