"""A reload that one worker cannot apply changes nothing, in any process (R73)."""

import os
import re
import signal

import pytest

from tests.support.client import build_request
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

HOOKS = """
import os, sys

class Hooks:
    def __init__(self):
        if "cutthrough.worker.main" in sys.orig_argv:
            {init}

    def on_record(self, recording):
        return recording
"""
FAILS = "raise OSError('no place for a second one')"
# Only the first worker can make the object
ONE_CAN = "os.close(os.open({path!r}, os.O_CREAT | os.O_EXCL))"
RULES = """
[[rules]]
action = "{action}"
addresses = ["127.0.0.0/8"]
[[rules]]
action = "allow"
hosts = ["a.example"]
{more}
"""
RECORDED = 'recording = "record"'


class Setting:
    """A proxy with two workers, and the files that its next generation has."""

    def __init__(self, folder, opened, loop_name):
        self.folder = folder
        self.config = (
            f'policy = "{folder}/policy.toml"\nworkers = 2\n'
            f'recording_directory = "{folder}/recordings"\n'
            'recording_hooks = "kept:Hooks"\n')
        self.write("deny", "", "pass")
        self.proxy = opened.enter_context(Proxy(
            folder / "proxy", loop=loop_name, config=self.config,
            env={"PYTHONPATH": str(folder)}))

    def write(self, action: str, more: str, init: str) -> None:
        (self.folder / "policy.toml").write_text(RULES.format(action=action, more=more))
        (self.folder / "kept.py").write_text(HOOKS.format(init=init))

    def pids(self) -> set[int]:
        return {worker.pid for worker in self.proxy.workers()}

    def statuses(self) -> set[int]:
        """The statuses of sixteen connections; both workers take some of them."""
        got = set()
        for _ in range(16):
            with self.proxy.client() as client:
                client.send(build_request("GET", "http://127.0.0.1:1/"))
                got.add(client.read_head().status)
        return got


@pytest.fixture
def setting(directory, opened, loop_name):
    folder = directory("setting")
    (folder / "proxy").mkdir()
    return Setting(folder, opened, loop_name)


def test_a_hook_that_fails_in_workers_alone_refuses_the_reload(setting):
    """The log reported it, but the new policy decided: 403 became 502. The replacements
    died in a loop."""
    before = setting.pids()
    setting.write("allow", RECORDED, FAILS)
    assert re.fullmatch(
        r"reload refused, generation 1 stays in force: worker \d \(pid \d+\) cannot "
        r"apply it: recording_hooks: kept:Hooks: OSError: no place for a second one",
        setting.proxy.hup())
    assert setting.statuses() == {403}
    assert setting.pids() == before


def test_a_worker_that_follows_has_the_generation_before(setting):
    setting.write("allow", RECORDED, FAILS)
    assert "reload refused" in setting.proxy.hup()
    before = setting.pids()
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: len(setting.pids()) == 2 and min(before) not in setting.pids(),
               setting.proxy.stderr)
    assert setting.statuses() == {403}
    assert setting.proxy.stderr().count(" died: ") == 1


def test_what_one_worker_can_apply_and_another_cannot_is_in_force_in_none(setting):
    setting.write("allow", RECORDED, ONE_CAN.format(path=str(setting.folder / "lock")))
    assert "reload refused, generation 1 stays in force" in setting.proxy.hup()
    assert (setting.folder / "lock").exists(), "one could"
    assert setting.statuses() == {403}


def test_new_workers_that_cannot_start_refuse_it_too(setting):
    """New code of hooks gets new workers."""
    setting.write("deny", RECORDED, "pass")
    assert setting.proxy.hup().startswith("generation 2: ")
    before = setting.pids()
    setting.write("allow", RECORDED, ONE_CAN.format(path=str(setting.folder / "lock")))
    assert setting.proxy.hup().startswith(
        "reload refused, generation 2 stays in force: ")
    wait_until(lambda: setting.pids() == before, setting.proxy.stderr)
    assert setting.statuses() == {403}
    setting.write("allow", RECORDED, "pass")
    assert setting.proxy.hup().startswith("generation 4: ")
    assert setting.statuses() == {502}


def test_a_listener_of_a_refused_generation_is_closed_again(setting):
    port = setting.proxy.port
    path = setting.folder / "other.sock"
    setting.write("allow", RECORDED, FAILS)
    setting.proxy.write_config(
        setting.config + f'[[listeners]]\naddress = "unix:{path}"\n')
    assert "reload refused" in setting.proxy.hup()
    assert not path.exists()
    assert setting.proxy.port == port and setting.statuses() == {403}
