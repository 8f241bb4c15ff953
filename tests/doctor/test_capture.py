"""`cutthrough doctor` about the file of captured requests."""

import os
import sqlite3
from types import SimpleNamespace

import pytest

from cutthrough.doctor import capture
from cutthrough.doctor.capture import MIB, check_capture_file
from cutthrough.doctor.report import SECTIONS, examine
from cutthrough.storage.stores import open_store
from tests.capture.flows import row
from tests.doctor.hosts import make_case


@pytest.fixture
def path(tmp_path):
    return tmp_path / "flows.db"


@pytest.fixture
def made(path):
    """The file as the writer leaves it."""
    store = open_store(str(path), 0, 0, 0.0)
    store.write([row(1)])
    store.close()
    return path


def findings(path, **options):
    return list(check_capture_file(make_case(capture_file=str(path), **options)))


def judged(path, **options):
    """The finding about the file."""
    return findings(path, **options)[0]


def test_without_a_database_nothing_is_kept():
    (found,) = check_capture_file(make_case())
    assert (found.verdict, found.seen) == (
        "ok", "no database is named: nothing is kept")
    case = make_case(capture_url="postgresql://127.0.0.1:1/a")
    assert not list(check_capture_file(case)), "check_database speaks of it"


def test_a_file_that_a_writer_made_is_all_right(made):
    before = made.read_bytes(), sorted(os.listdir(made.parent))
    file, room = findings(made, capture_bytes="1m")
    assert (file.verdict, file.seen) == ("ok", f"{made}, mode 600")
    assert room.verdict == "ok" and room.seen.endswith(" MiB free")
    assert (made.read_bytes(), sorted(os.listdir(made.parent))) == before


def test_a_file_that_a_writer_has_open_is_all_right(path):
    """Its tables may be in the log of changes alone."""
    store = open_store(str(path), 0, 0, 0.0)
    assert judged(path).verdict == "ok"
    store.write([row(1)])
    assert judged(path).verdict == "ok"
    store.close()


def test_a_file_that_is_not_there_yet_is_not_made(path):
    assert (judged(path).verdict, judged(path).seen) == (
        "ok", f"{path} is made when a rule captures")
    assert not path.exists()
    path.touch(0o600)
    assert judged(path).verdict == "ok"


def test_a_directory_that_is_not_there_fails(path):
    (found,) = findings(path / "flows.db")
    assert (found.verdict, found.seen) == ("fail", f"no directory {path}")


@pytest.mark.parametrize("place", ["flows.db", ""])
def test_what_this_user_cannot_write_fails(made, monkeypatch, place):
    """root may write everything, so the test replaces access(). The folder counts,
    because SQLite makes files beside the database."""
    locked = str(made.parent / place).rstrip("/")
    monkeypatch.setattr(capture.os, "access", lambda path, mode: path != locked)
    found = judged(made)
    assert (found.verdict, found.seen) == (
        "fail", f"{locked} cannot be written by this user")


def test_a_file_of_another_kind_fails(made, tmp_path):
    (tmp_path / "link").symlink_to(made)
    assert judged(tmp_path / "link").seen.endswith("is a symbolic link")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    assert judged(tmp_path / "folder").seen.endswith("is no regular file")
    (tmp_path / "text").write_text("once upon a time")
    assert judged(tmp_path / "text").seen.endswith("is no database of SQLite")
    for name in ("link", "dangling", "folder", "text"):
        assert judged(tmp_path / name).verdict == "fail"


def test_tables_of_another_version_fail_as_they_do_in_the_writer(made):
    base = sqlite3.connect(made)
    base.execute("PRAGMA user_version = 77")
    base.close()
    found = judged(made)
    assert found.verdict == "fail" and "has version 77 of the tables" in found.seen
    assert "move the file away" in found.advice


@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_file_that_others_can_read_is_a_warning(made, end):
    name = f"{made}{end}"
    open(name, "ab").close()
    os.chmod(name, 0o640)
    found = judged(made)
    assert (found.verdict, found.seen) == ("warn", f"{name}, mode 640")
    assert found.advice.startswith(f"chmod 600 {name}  # ")


def test_the_disk_needs_room_for_what_the_bound_still_allows(made, monkeypatch):
    free = [0]
    monkeypatch.setattr(capture.os, "statvfs", lambda path: SimpleNamespace(
        f_bavail=free[0], f_frsize=1))
    size = made.stat().st_size

    def room(bound):
        found = findings(made, capture_bytes=bound)[1]
        return found.verdict, found.wanted, bool(found.advice)

    wanted = 1024 * MIB - size + 64 * MIB
    free[0] = wanted
    assert room("1g") == ("ok", "1088 MiB", False)
    free[0] = wanted - 1
    assert room("1g") == ("warn", "1088 MiB", True)
    free[0] = 64 * MIB
    assert room("1k") == ("ok", "64 MiB", False), "the file is beyond its bound"
    assert room("0") == ("warn", "a bound of bytes", True)


def test_the_section_has_the_file_and_the_database(made, monkeypatch):
    assert len(SECTIONS["capture"]) == 2
    monkeypatch.setattr("cutthrough.doctor.report.SECTIONS",
                        {"capture": SECTIONS["capture"]})
    found = list(examine(make_case(capture_file=str(made))))
    assert [(one.section, one.name) for one in found] == [
        ("capture", "capture_file"), ("capture", "room for captures")]
