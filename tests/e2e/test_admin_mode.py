"""The mode of recordings by the admin listener: all may see it, and few change it."""

import json

import pytest

from cutthrough.recording.modes import read_state
from tests.support.admin import AUTHORIZED, administered


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text="": administered(opened, directory("proxy"), loop_name, text)


def test_the_mode_is_shown_to_all_and_changed_with_the_token(start, directory):
    folder = directory("sessions")
    _, operator = start(f'recording_directory = "{folder}"\n')
    assert json.loads(operator.get("/mode")) == {"mode": "rules", "session": None}
    assert operator.ask("POST", "/mode?mode=replay")[0] == 401
    assert read_state(folder).mode == "rules"
    status, text = operator.ask("POST", "/mode?mode=replay&session=ci", **AUTHORIZED)
    assert (status, json.loads(text)) == (200, {"mode": "replay", "session": "ci"})
    before = read_state(folder)
    assert (before.mode, before.session) == ("replay", "ci")
    status, text = operator.ask("POST", "/mode?session=", **AUTHORIZED)
    assert json.loads(text) == {"mode": "replay", "session": None}
    assert read_state(folder).run > before.run


@pytest.mark.parametrize("query", ["", "mode=other", "session=../x", "mod=replay"])
def test_a_change_that_is_none_is_refused(start, directory, query):
    folder = directory("sessions")
    _, operator = start(f'recording_directory = "{folder}"\n')
    assert operator.ask("POST", f"/mode?{query}", **AUTHORIZED)[0] == 400
    assert not (folder / "mode").exists()


def test_without_a_directory_there_is_no_mode(start):
    _, operator = start()
    assert operator.ask("GET", "/mode")[0] == 404
    assert operator.ask("POST", "/mode?mode=replay", **AUTHORIZED)[0] == 404
