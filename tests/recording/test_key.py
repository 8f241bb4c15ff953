"""Keys are written whole or not at all, and a full disk keeps nothing of them."""

import contextlib
import resource

import pytest

from cutthrough.recording.model.key import KEY_BYTES, read_key
from cutthrough.recording.sessions.key_file import take_key, write_key
from cutthrough.recording.sessions.modes import State, read_state, write_state
from tests.support.verbs import run_verb


@contextlib.contextmanager
def full_disk():
    """No file grows: write(2) fails, with EFBIG in place of ENOSPC."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_file_of_a_new_key(tmp_path):
    """The writer of recordings tries twice a second, and left a file each time."""
    for _ in range(2):
        with full_disk(), pytest.raises(OSError, match="too large"):
            read_key(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []
    assert len(read_key(tmp_path / "key")) == KEY_BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_half_of_a_key_is_no_export(tmp_path):
    folder, target = tmp_path / "sessions", tmp_path / "exported"
    folder.mkdir()
    key = read_key(folder / "key")
    with full_disk(), pytest.raises(OSError, match="too large"):
        write_key(folder, target)
    assert not target.exists()
    write_key(folder, target)
    assert target.read_bytes() == key


def test_a_key_that_cannot_be_taken_leaves_the_former_one(tmp_path):
    folder, source = tmp_path / "sessions", tmp_path / "given"
    folder.mkdir()
    key = read_key(folder / "key")
    source.write_bytes(bytes(KEY_BYTES))
    with full_disk(), pytest.raises(OSError, match="too large"):
        take_key(folder, source)
    assert [path.name for path in folder.iterdir()] == ["key"]
    assert read_key(folder / "key") == key
    take_key(folder, source)
    assert read_key(folder / "key") == bytes(KEY_BYTES)


def test_half_of_a_bundles_key_is_none(tmp_path):
    path = tmp_path / "bundle.key"
    with full_disk():
        done = run_verb("bundle", "key", str(path))
    assert done.returncode == 1
    assert done.stderr == f"cutthrough: {path}: File too large\n"
    assert list(tmp_path.iterdir()) == []
    assert run_verb("bundle", "key", str(path)).returncode == 0


def test_the_mode_that_finds_no_room_is_named_and_stays(tmp_path):
    """It was "standard output: No space left on device"."""
    write_state(tmp_path, State("replay"))
    with full_disk(), pytest.raises(OSError, match="too large") as raised:
        write_state(tmp_path, State("record"))
    assert raised.value.filename == str(tmp_path / "mode")
    assert [path.name for path in tmp_path.iterdir()] == ["mode"]
    assert read_state(tmp_path).mode == "replay"
