"""Lanes that processes share: each place is taken once."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from cutthrough.recording.match import lanes as lanes_module
from cutthrough.recording.match.lanes import SharedLanes, path_of
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match
from cutthrough.recording.match.routes import Route
from cutthrough.recording.model.recording import Recording, Request, Response

TAKER = """
import sys
from pathlib import Path
from cutthrough.recording.match.lanes import SharedLanes
lanes = SharedLanes(Path(sys.argv[1]))
for _ in range(300):
    with lanes.hold("r", "lane", [7]) as lane:
        place = lane.places.get(7, 0)
        lane.places[7] = place + 1
    print(place)
"""

LOCKER = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
base.execute("ROLLBACK")
"""


def request():
    return Request(method="GET", scheme="http", host="a", port=80, path="/")


def matcher(lanes, count, after="repeat", **more):
    made = Matcher([Route(after=after)],
                   shared=lambda lane, places: lanes.hold("run", lane, places))
    for number in range(1, count + 1):
        made.add(Recording(number=number, request=request(),
                           response=Response(status=200), **more))
    return made


@pytest.fixture
def path(tmp_path):
    return path_of(tmp_path, os.getpid())


def test_four_processes_take_each_place_once(path):
    running = [subprocess.Popen([sys.executable, "-c", TAKER, str(path)], text=True,
                                stdout=subprocess.PIPE) for _ in range(4)]
    taken = Counter(line for one in running for line in one.communicate()[0].split())
    assert taken == Counter(map(str, range(1200)))
    assert path.stat().st_mode & 0o077 == 0


def test_two_matchers_replay_one_sequence_in_turn(path):
    one, two = SharedLanes(path), SharedLanes(path)
    first, second = matcher(one, 4), matcher(two, 4)
    found = [each.match(request()) for each in (first, second, second, first, second)]
    assert [match.recording.number for match in found] == [1, 2, 3, 4, 4]
    assert [match.is_last for match in found] == [False, False, False, True, True]
    assert first.match(request(), "another lane").recording.number == 1
    one.close()
    two.close()


def test_a_sequence_that_ends_with_a_miss_ends_for_all(path):
    one, two = SharedLanes(path), SharedLanes(path)
    first, second = matcher(one, 1, "miss"), matcher(two, 1, "miss")
    assert isinstance(first.match(request()), Match)
    assert "as often as it was recorded: 1 time" in str(second.match(request()))
    one.close()
    two.close()


def test_state_is_shared(path):
    one, two = SharedLanes(path), SharedLanes(path)
    first = matcher(one, 1, sets={"in": "yes"})
    second = matcher(two, 0)
    second.add(Recording(number=9, request=request(), response=Response(status=200),
                         requires={"in": "yes"}, removes=("in",)))
    assert not isinstance(second.match(request()), Match)
    assert first.match(request()).recording.number == 1
    assert second.match(request()).recording.number == 9
    assert not isinstance(second.match(request()), Match)
    one.close()
    two.close()


def test_a_place_is_kept_only_if_the_block_ends(path):
    lanes = SharedLanes(path)
    with pytest.raises(ZeroDivisionError), lanes.hold("r", "", [1]) as lane:
        lane.places[1] = 1 / 0
    with lanes.hold("r", "", [1]) as lane:
        assert lane.places == {}
    lanes.close()


def test_files_of_dead_programs_are_removed_and_those_of_others_stay(tmp_path, path):
    dead, living = tmp_path / ".places-1-1", tmp_path / ".places-2-2"
    SharedLanes(dead).close()
    other = SharedLanes(living)
    own = SharedLanes(path)
    assert {one.name for one in tmp_path.iterdir() if one.name.startswith(
        (".places-1-", ".places-2-2"))} >= {".places-2-2", ".places-2-2-lock"}
    assert not list(tmp_path.glob(".places-1-1*"))
    own.close()
    other.close()


def test_a_file_that_another_process_locks_leaves_a_worker_its_own_places(
        path, caplog, monkeypatch):
    """Each request was 500, after a second of the worker's loop."""
    lanes = SharedLanes(path)
    made = matcher(lanes, 4)
    assert made.match(request()).recording.number == 1
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(path)], text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE)
    assert locker.stdout.readline() == "locked\n"
    tries = []
    monkeypatch.setattr(lanes_module.time, "sleep", tries.append)
    found = [made.match(request()).recording.number for _ in range(50)]
    assert found == [1, 2, 3, *[4] * 47]
    waited = len(tries)
    assert waited
    made.match(request())
    assert len(tries) == waited              # it is not tried again for a while
    assert caplog.text.count("places of its own") == 1
    locker.communicate("end\n")
    lanes._retry_at = 1e-9                   # the while is over
    assert made.match(request()).recording.number == 2


def test_a_file_that_cannot_be_opened_keeps_no_descriptor(tmp_path, path):
    """Each reload of a session tries anew."""
    path.symlink_to(tmp_path / "elsewhere")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="symbolic"):
            SharedLanes(path)
    assert len(os.listdir("/proc/self/fd")) == before
