"""When a change of a file asks for a reload, and when it does not (`watch`)."""

import os
from pathlib import Path

import msgspec
import pytest

from cutthrough.config.config import Config
from cutthrough.config.files import FileError, read_file, take_versions
from cutthrough.supervisor.file_watch import FileWatch


class Watched:
    """A watch without a timer, and its requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.watch = FileWatch(lambda: msgspec.structs.replace(Config(), watch=False),
                               self.ask)

    def ask(self) -> None:
        self.asked += 1

    def read(self, *paths: Path, whole: bool = True) -> None:
        take_versions()
        for path in paths:
            try:
                read_file(str(path))
            except OSError:
                pass
        self.watch.follow(take_versions(), whole)

    def look(self, times: int = 1) -> int:
        """Returns how many reloads have been asked for in all."""
        for _ in range(times):
            self.watch.look()
        return self.asked


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text("one")
    return path


def test_a_change_counts_when_it_is_one_look_old(watched: Watched, file: Path) -> None:
    watched.read(file)
    assert watched.look(3) == 0
    file.write_text("second")
    assert (watched.look(), watched.look()) == (0, 1)


def test_a_file_that_still_changes_is_waited_for(watched: Watched, file: Path) -> None:
    watched.read(file)
    for size in range(2, 5):
        file.write_text("x" * size * 10)
        assert watched.look() == 0
    assert watched.look() == 1


def test_a_reload_is_asked_for_once_until_the_next_change(
        watched: Watched, file: Path) -> None:
    """A refused one, or one that has to wait, is not asked for each second."""
    watched.read(file)
    file.write_text("broken")
    assert watched.look(5) == 1
    file.write_text("another mistake")
    assert watched.look(5) == 2
    watched.read(file)
    assert watched.look(5) == 2


def test_a_directory_that_is_exchanged_by_its_link_is_a_change(
        watched: Watched, tmp_path: Path) -> None:
    """As Kubernetes does it with a ConfigMap: same sizes, same times."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.toml").write_text(name[:5])
        os.utime(tmp_path / name / "policy.toml", (1e9, 1e9))
    link = tmp_path / "..data"
    link.symlink_to("first")
    (tmp_path / "policy.toml").symlink_to("..data/policy.toml")
    watched.read(tmp_path / "policy.toml")
    assert watched.look(2) == 0
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(link)
    assert watched.look(2) == 1


def test_a_file_that_was_missing_is_watched(watched: Watched, tmp_path: Path) -> None:
    watched.read(tmp_path / "later")
    assert watched.look(2) == 0
    (tmp_path / "later").write_text("here")
    assert watched.look(2) == 1


def test_a_file_that_goes_is_a_change(watched: Watched, file: Path) -> None:
    watched.read(file)
    file.unlink()
    assert watched.look(2) == 1


def test_a_change_while_the_file_is_read_is_no_loss(
        watched: Watched, file: Path) -> None:
    """The version is that of the content that was read, not of a look behind it."""
    take_versions()
    read_file(str(file))
    file.write_text("written meanwhile")
    watched.watch.follow(take_versions(), whole=True)
    assert watched.look(2) == 1


def test_after_a_mistake_the_files_behind_it_are_watched_as_before(
        watched: Watched, file: Path, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:1")
    watched.read(file, users)
    file.write_text("broken")
    assert watched.look(2) == 1
    watched.read(file, whole=False)          # the reload ended before it read users
    assert watched.look(3) == 1
    users.write_text("ann:2, bob:1")
    assert watched.look(2) == 2


def test_a_file_that_is_not_read_any_more_is_not_watched(
        watched: Watched, file: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("1")
    watched.read(file, old)
    watched.read(file)
    old.write_text("longer")
    assert watched.look(3) == 0


def test_a_pipe_has_no_version(tmp_path: Path) -> None:
    take_versions()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError):
        read_file("/dev/zero")
    assert take_versions() == {}
