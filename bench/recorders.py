"""Proxies that record and replay: how `python -m bench recording` switches each."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from bench.children import HERE, BenchError, free_port
from bench.peers import OF_RECORDING
from bench.proxies import PASSWORD, start_configured
from bench.running import Running, Target

# Of a scenario: record asks always, replay never, cache if there is no recording.
MODES = ("off", "record", "replay", "cache")
#: Until what was recorded must be found.
SECONDS = 60
POLICY = """[[rules]]
action = "allow"
addresses = ["0.0.0.0/0", "::/0"]
recording = "spy"
"""


class Recorder(Protocol):
    """One proxy. `switch` returns when the mode is in force for `session`, of which
    `recorded` recordings must be found; a session that is new is empty."""

    name: str
    version: str
    modes: tuple[str, ...] = MODES
    most_requests = 1_000_000
    running: Running

    def switch(self, mode: str, session: str, recorded: int) -> None: ...

    def settle(self, session: str, recorded: int) -> None:
        """Returns when all is recorded."""

    def workers(self) -> list[int]:
        """Processes that can be held back; none if all the proxy's work is in one."""
        return []

    def close(self) -> None:
        self.running.close()


class Ours(Recorder):
    name = "cutthrough"
    version = "this tree"

    def __init__(self, target: Target, folder: Path) -> None:
        policy = folder / "policy.toml"
        policy.write_text(POLICY)
        self._sessions = folder / "sessions"
        self._admin = free_port()
        self.running = start_configured(
            1, f'policy = "{policy}"', f'recording_directory = "{self._sessions}"',
            "recording_count = 0", f'admin = "127.0.0.1:{self._admin}"',
            f'admin_token = "{PASSWORD}"')(target)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cutthrough", *words[:1], "--directory",
             str(self._sessions), *words[1:]],
            cwd=HERE.parent, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{words}: {done.stderr}")
        return done.stdout

    def _count(self, session: str) -> int:
        done = subprocess.run(
            [sys.executable, "-m", "cutthrough", "recordings", "list", "--directory",
             str(self._sessions)], cwd=HERE.parent, capture_output=True, text=True)
        return int(dict(line.split("\t") for line in done.stdout.splitlines()
                        ).get(session, 0))

    def settle(self, session: str, recorded: int) -> None:
        await_count(lambda: self._count(session), recorded)

    def workers(self) -> list[int]:
        return [one.pid for one in self.running.tree()
                if "cutthrough.worker.main" in one.cmdline()]

    def switch(self, mode: str, session: str, recorded: int) -> None:
        found = call(self._admin, "POST", f"/mode?mode={mode}&session={session}",
                     token=PASSWORD)
        if found["errors"] or found["unanswered"]:
            raise BenchError(f"mode {mode}: {found}")
        played = f", {recorded} recordings" if mode in ("replay", "cache") else ""
        self.running.await_line(
            f"(?m)(mode {mode}, session {session}{played})$", SECONDS)


class Switched(Recorder):
    """Started once; its admin listener switches it."""

    modes = ("record", "replay", "cache")

    def __init__(self, target: Target) -> None:
        peer = OF_RECORDING[self.name]
        self.version = peer.read_version()
        self.running = peer.start(target)


class Replayproxy(Switched):
    name = "replayproxy"

    def switch(self, mode: str, session: str, recorded: int) -> None:
        admin = self.running.admin_port
        called = {"cache": "passthrough-cache"}.get(mode, mode)
        if not recorded:
            call(admin, "POST", "/_admin/sessions", {"name": session})
        call(admin, "POST", f"/_admin/sessions/{session}/activate")
        call(admin, "POST", "/_admin/mode", {"mode": called})
        path = f"/_admin/sessions/{session}/recordings?limit=1000000"
        if recorded:
            await_count(lambda: len(call(admin, "GET", path)["recordings"]), recorded)


class Hoverfly(Switched):
    """Each recording takes longer than the one before it: 4000 took 32 s."""

    name = "hoverfly"
    most_requests = 1000

    def switch(self, mode: str, session: str, recorded: int) -> None:
        admin = self.running.admin_port
        if not recorded:
            call(admin, "DELETE", "/api/v2/simulation")
        what: dict[str, object] = {
            "record": {"mode": "capture"}, "replay": {"mode": "simulate"},
            "cache": {"mode": "spy", "arguments": {"captureOnMiss": True}},
        }[mode]  # fmt: skip
        call(admin, "PUT", "/api/v2/hoverfly/mode", what)


class Mitmproxy(Recorder):
    """Started anew for each mode: a dump is read at the start alone."""

    name = "mitmproxy"
    modes = ("record", "replay")

    def __init__(self, target: Target, folder: Path) -> None:
        self._target, self._folder = target, folder
        self._peer = OF_RECORDING["mitmproxy-record"]
        self.version = self._peer.read_version()
        self.running = self._peer.start(target)

    def _words(self, mode: str, session: str) -> list[str]:
        file = self._folder / f"{session}.flows"
        return {
            "record": ["--set", f"save_stream_file={file}"],
            "replay": ["--server-replay", str(file), "--set=server_replay_reuse=true",
                       "--set=server_replay_extra=kill"],
        }.get(mode, [])

    def switch(self, mode: str, session: str, recorded: int) -> None:
        self.running.close()
        self.running = self._peer.start(
            self._target, words=self._words(mode, session))


def call(port: int, method: str, path: str, body: object = None, token: str = ""
         ) -> Any:
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        conn.request(method, path, json.dumps(body) if body is not None else None,
                     {"Content-Type": "application/json",
                      **({"Authorization": f"Bearer {token}"} if token else {})})
        reply = conn.getresponse()
        data = reply.read()
    finally:
        conn.close()
    if reply.status >= 300:
        raise BenchError(f"{method} {path}: {reply.status} {data[:200]!r}")
    return json.loads(data) if data else None


def await_count(count: Callable[[], int], wanted: int) -> None:
    deadline = time.monotonic() + SECONDS
    while (found := count()) != wanted:
        if time.monotonic() > deadline:
            raise BenchError(f"{found} recordings in place of {wanted}")
        time.sleep(0.1)         # between looks at its list
