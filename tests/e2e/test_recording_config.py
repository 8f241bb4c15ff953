"""Recordings: a configuration that no worker can use does not reach one."""

import subprocess
import sys
import time

import msgspec

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.session import Manifest
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.recordings import folder as folder
from tests.support.recordings import made
from tests.support.recordings import start as start
from tests.support.wait import wait_until

RULE = """
[[rules]]
action = "allow"
recording = "record"
"""
BAD = ('[recording_routes.a]\nbody = "json"\nbody_paths = ["$.a"]\n',
       '[recording_routes.a]\nbody = "json"\nignored_paths = ["$.["]\n')


def test_a_start_and_a_reload_refuse_what_workers_cannot_use(
        directory, opened, tmp_path):
    """`serve` ended with a traceback, and replacements died every 5 s, in a loop, while
    the old worker served."""
    policy = tmp_path / "policy.toml"
    policy.write_text(RULE)
    text = (f'policy = "{policy}"\nrecording_directory = "{directory("sessions")}"\n')
    proxy = opened.enter_context(Proxy(directory("proxy"), config=text))
    before = [worker.pid for worker in proxy.workers()]
    for bad in BAD:
        proxy.write_config(text + bad)
        said = proxy.hup()
        assert said.startswith(f"reload refused, generation 1 stays in force: "
                               f"{proxy._config}:1"), said
        assert ": recording_routes.a." in said
        ended = subprocess.run(
            [sys.executable, "-m", "cutthrough", "serve", "-c", proxy._config],
            env=clean_environment(), cwd=ROOT, capture_output=True, text=True,
            timeout=60)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ": recording_routes.a." in ended.stderr
        assert "Traceback" not in ended.stderr
    assert [worker.pid for worker in proxy.workers()] == before
    proxy.write_config(text)
    assert proxy.hup() == "generation 2: no changes"


def test_what_is_too_old_is_replayed_no_more(start, folder, dial):
    """It was, as long as nothing was recorded."""
    for name in ("default", "other"):
        session = Sessions(folder).create(name, Manifest(age_s=1))
        session.add([msgspec.structs.replace(
            made(9), created_us=time.time_ns() // 1000)])
        session.close()
    client = dial(start("replay"))
    wait_until(lambda: client.get("http://127.0.0.1:9/a").status == 502, "it has gone")
    for name in ("default", "other"):
        wait_until(lambda name=name: len(Sessions(folder).open(name)) == 0, name)
