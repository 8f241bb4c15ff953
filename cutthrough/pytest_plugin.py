"""pytest: recorded answers, from any client that heeds the proxy variables.

    @pytest.mark.cassette        # recorded once, into cassettes/ beside the test's file
    def test_checkout(): ...

    def test_retry(cutthrough):  # answered by the test itself, without a network
        cutthrough.respond("https://api.example.com/v1/items", status=503)

One proxy serves a run of pytest, as a process of its own, from the first test that
needs it. A test gets its address and its authority in the environment, so that
subprocesses are recorded too. Modes are those of VCR.py: once, new_episodes, none, all.
"""

import contextlib
import importlib.util
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cutthrough.recording.model import Recording
    from cutthrough.recording.session import Manifest

MODES = {"once": "", "new_episodes": "cache", "none": "replay", "all": "record"}
FOLDER = "cassettes"
WAIT_S = 10.0                                # for the proxy's word
WRITTEN_S = 3.0                              # for answers on their way to the session
LOGGED_S = 0.12                              # after which a request is in the log

# Of the APIs that are recorded most: what of a request does not count, and what of it
# and its answer is not kept, beside credentials
_PRESETS = """
recording_redact_fields = ["openai-organization", "openai-project",
    "anthropic-organization-id", "stripe-account"]
recording_redact_json = ["$..client_secret"]
[recording_routes.openai]
hosts = ["api.openai.com", "*.openai.azure.com"]
body = "json"
{openai}
[recording_routes.anthropic]
hosts = ["api.anthropic.com"]
body = "json"
{anthropic}
[recording_routes.github]
hosts = ["api.github.com", "uploads.github.com"]
body = "json"
[recording_routes.stripe]
hosts = ["api.stripe.com"]
body = "form"
"""
_IGNORED = {
    "openai": 'ignored_paths = ["$.user", "$.metadata", "$.safety_identifier", '
              '"$.prompt_cache_key"]',
    "anthropic": 'ignored_paths = ["$.metadata"]'}


@dataclass(frozen=True)
class Request:
    """One that has ended. `verdict`: the log's reason, such as ok, replayed or
    recording_missed. `miss`: the nearest recording, and what differs."""

    method: str
    url: str
    status: int | None
    verdict: str
    miss: str = ""


@dataclass
class Cassette:
    """What a test sees of the proxy."""

    url: str                                 # with user and password
    bundle: Path                             # PEM: the system's roots, our authority
    environment: dict[str, str]              # for a process that inherits none
    _running: "_Running"

    @property
    def requests(self) -> list[Request]:
        """Those of this test that have ended, in order. Waits 0.12 s for the log."""
        return self._running.requests()

    def respond(self, url: str, *, method: str = "GET", status: int = 200,
                json: Any = None, text: str = "", content: bytes = b"",
                headers: Mapping[str, str] | None = None) -> None:
        """Answers requests with this method and URL from now on; several answers of one
        request come in order, and the last one again. Whatever else is asked is
        replayed, or refused: there is no network."""
        self._running.respond(make_answer(
            url, method, status, json, text, content, dict(headers or {})))


def make_answer(url: str, method: str, status: int, document: Any, text: str,
                content: bytes, headers: dict[str, str]) -> "Recording":
    from cutthrough.recording.model import Chunk, Pattern, Recording, Response
    from cutthrough.recording.vcr import make_request

    asked = make_request(method, url, (), b"")
    body, kind = content, ""
    if document is not None:
        body, kind = json.dumps(document).encode(), "application/json"
    elif text:
        body, kind = text.encode(), "text/plain; charset=utf-8"
    fields = {"Content-Type": kind} if kind else {}
    fields |= headers | {"Content-Length": str(len(body))}
    return Recording(
        request=asked, patterns=(
            Pattern(part="method", value=method),
            Pattern(part="scheme", value=asked.scheme),
            Pattern(part="host", value=asked.host),
            Pattern(part="port", value=str(asked.port)),
            Pattern(part="path", value=asked.path),
            Pattern(part="query", value=asked.query)), response=Response(
            status=status, fields=tuple(fields.items()),
            chunks=(Chunk(0, body),) if body else ()))


class _Running:
    """The proxy of a run of pytest, and the session of the test in hand."""

    def __init__(self, folder: Path, config: str | None) -> None:
        from cutthrough.recording.sessions import Sessions
        from cutthrough.tools.run import Proxy, environment, make_bundle

        self._folder = folder
        self._directory = folder / "sessions"
        self._sessions = Sessions(self._directory)
        self.bundle = folder / "bundle.pem"
        authority = str(folder / "ca")
        make_bundle(self._directory, authority, self.bundle)
        if config is None:
            config = str(folder / "presets.toml")
            known = _IGNORED if importlib.util.find_spec("jsonpath") else {}
            Path(config).write_text(_PRESETS.format(
                **{name: known.get(name, "") for name in _IGNORED}))
        self._proxy = Proxy(
            folder, self._directory, "none", "record", authority, config)
        self.url = self._proxy.url
        self.environment = environment(os.environ, self.url, self.bundle)
        self._name, self._mode, self._count = "", "", 0
        self._begun = ""
        self.cassette: Path | None = None

    def begin(self, mode: str, cassette: Path | None, slug: str) -> None:
        """A session of its own for a test: what the cassette has, if it is replayed."""
        from cutthrough.recording.folder import read_folder

        self._count += 1
        self._name = f"{self._count}-{slug}"[:90]
        self._begun = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.cassette = cassette
        is_there = cassette is not None and (cassette / "manifest.json").exists()
        self._mode = MODES[mode] or ("replay" if is_there else "record")
        if cassette is None:
            self._mode = "replay"
        if self._mode != "record":
            session = self._sessions.create(self._name, self._manifest())
            if is_there and cassette is not None:
                session.add(read_folder(cassette)[1])
            session.close()
        self._switch()

    def _manifest(self) -> "Manifest":
        from cutthrough.recording.masking import Redaction
        from cutthrough.recording.session import Manifest

        return Manifest(redaction=Redaction(json=("$..client_secret",)))

    def _switch(self) -> None:
        """Has the mode and the session come into force."""
        from cutthrough.recording.modes import State, write_state

        before = self._told()
        write_state(self._directory, State(self._mode, self._name))    # type: ignore[arg-type]
        until(lambda: self._told() > before, f"{self._mode} {self._name}", WAIT_S)

    def _told(self) -> int:
        return self._proxy.errors().count(
            f"recordings: mode {self._mode}, session {self._name}, ")

    def respond(self, answer: "Recording") -> None:
        if self._mode == "record":           # there is nothing recorded to be replayed
            raise RuntimeError("respond: the cassette is being recorded")
        session = self._sessions.open(self._name)
        session.add([answer])
        session.close()
        self._switch()

    def requests(self) -> list[Request]:
        found = []
        time.sleep(LOGGED_S)                 # a line is in the file some time later
        for text in self._proxy.access_log():
            line = json.loads(text)
            is_missed = line["reason"] == "recording_missed"
            if line["time"][:23] >= self._begun[:23] and (
                    line["method"] != "CONNECT" or is_missed):
                found.append(Request(
                    line["method"], line.get("url") or f"{line['host']}:{line['port']}",
                    line.get("status"), line["reason"], line.get("hook") or ""))
        return found

    def end(self) -> list[Request]:
        """Writes the cassette if it was recorded; returns what was missed."""
        found = self.requests()
        if self.cassette is not None and self._mode in ("record", "cache"):
            self._keep(self.cassette, found)
        return [one for one in found if one.verdict == "recording_missed"]

    def _keep(self, cassette: Path, found: list[Request]) -> None:
        from cutthrough.recording.folder import write_folder

        recordings: list[Recording] = []

        def is_written() -> bool:
            recordings[:] = self._recordings()
            return len(recordings) >= asked

        asked = sum(one.verdict in ("ok", "replayed") for one in found)
        with contextlib.suppress(TimeoutError):
            until(is_written, "recordings", WRITTEN_S)
        if recordings:
            write_folder(cassette, self._manifest(), recordings)

    def _recordings(self) -> "list[Recording]":
        if self._name not in self._sessions.names():
            return []
        session = self._sessions.open(self._name)
        try:
            return list(session.recordings())
        finally:
            session.close()

    def stop(self) -> None:
        self._proxy.stop()


def until(condition: Callable[[], bool], what: str, most_s: float) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"the proxy: no {what} in {most_s} s")
        time.sleep(0.005)               # between looks for what the proxy writes


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cutthrough")
    group.addoption("--cassette-mode", choices=[*MODES], default=None,
                    help="in place of the mode of each cassette")
    parser.addini("cutthrough_config", "configuration of the proxy in place of the "
                  "presets, relative to the root of the tests", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cassette(name, mode='once'): answers are recorded into, and "
        "replayed from, a directory of cassettes/; modes: " + ", ".join(MODES))


@pytest.fixture(scope="session")
def _cutthrough_running(
        tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
        ) -> Iterator[_Running]:
    given = pytestconfig.getini("cutthrough_config")
    config = str(pytestconfig.rootpath / given) if given else None
    running = _Running(tmp_path_factory.mktemp("cutthrough"), config)
    yield running
    running.stop()


@pytest.fixture
def cutthrough(
        request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
        ) -> Iterator[Cassette]:
    """A proxy for this test: its address and authority are in the environment."""
    running: _Running = request.getfixturevalue("_cutthrough_running")
    marker = request.node.get_closest_marker("cassette")
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-._") or "test"
    cassette, mode = None, "none"
    if marker is not None:
        name = marker.args[0] if marker.args else slug
        mode = marker.kwargs.get("mode", "once")
        if mode not in MODES:
            raise pytest.UsageError(f"cassette: {mode!r} is not one of "
                                    f"{', '.join(MODES)}")
        mode = request.config.getoption("--cassette-mode") or mode
        cassette = request.path.parent / FOLDER / name
    running.begin(mode, cassette, slug)
    names = {name for name in os.environ if name.lower() == "no_proxy"}
    for name in names - running.environment.keys():
        monkeypatch.delenv(name)
    for name, value in running.environment.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    yield Cassette(running.url, running.bundle, dict(running.environment), running)
    missed = running.end()
    if missed:
        pytest.fail("\n".join(
            f"no recording answers {one.method} {one.url}: {one.miss}"
            for one in missed), pytrace=False)


@pytest.fixture(autouse=True)
def _cassette(request: pytest.FixtureRequest) -> None:
    """A test with the marker needs no argument."""
    if request.node.get_closest_marker("cassette") is not None:
        request.getfixturevalue("cutthrough")
