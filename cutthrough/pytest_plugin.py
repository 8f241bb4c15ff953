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
import hashlib
import json
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cutthrough.recording.model.recording import Recording
    from cutthrough.recording.model.recording import Request as AskedRequest

MODES = {"once": "", "new_episodes": "cache", "none": "replay", "all": "record"}
FOLDER = "cassettes"
ENDS_S = 1.0                                 # at a test's end, for its requests
MOST_NAME = 150                              # characters of a cassette's own
# Requests of the test with an answer, or a part of one
_ANSWERED = ("ok", "client_closed", "client_reset")
_PASSED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Request:
    """One that has ended. `verdict`: the log's reason, such as ok, replayed or
    recording_missed. `miss`: the nearest recording, and the differences."""

    method: str
    url: str
    status: int | None
    verdict: str
    miss: str = ""
    fields: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def field(self, name: str) -> str:
        """All values of this name, joined; "": there is none."""
        return ", ".join(value for key, value in self.fields
                         if key.lower() == name.lower())

    def json(self) -> Any:
        """The body as a document. Raises ValueError."""
        return json.loads(self.body)


@dataclass
class Cassette:
    """A test's view of the proxy."""

    url: str                                 # with user and password
    bundle: Path                             # PEM: the authority of its certificates
    environment: dict[str, str]              # for a process that inherits none
    _running: "_Running"

    @property
    def requests(self) -> list[Request]:
        """The requests of this test that have ended, in order."""
        return self._running.requests()

    def respond(self, url: str, *, method: str = "GET", status: int = 200,
                json: Any = None, text: str = "", content: bytes = b"",
                headers: Mapping[str, str] | None = None, template: bool = False
                ) -> None:
        """Answers requests with this method and URL from now on, and keeps the answers
        out of the cassette; several for the same come in order, and the last one again.
        * stands for anything in the method, the path and the query; the first that fits
        answers. With `template`, headers and body are templates of the request. Without
        a cassette whatever else is asked is refused."""
        from cutthrough.recording.play.stubs import make_response, make_stub

        response = make_response(status, json, text, content, headers or {})
        self._running.respond(make_stub(url, method, response, template))


class _Running:
    """The proxy of a run of pytest, and the session of the test in hand."""

    def __init__(self, folder: Path, config: str | None) -> None:
        from msgspec.structs import replace

        from cutthrough.recording.sessions.directory import Sessions
        from cutthrough.recording.sessions.session import Manifest
        from cutthrough.tools.behind import environment, make_bundle
        from cutthrough.tools.presets import presets
        from cutthrough.tools.run import OWN, Proxy
        from cutthrough.tools.variables import check_file

        if config is not None:
            check_file("run", config, OWN)
        directory = folder / "sessions"
        self._sessions, self._directory = Sessions(directory), directory
        self._stubs: list[Recording] = []
        self.bundle = folder / "bundle.pem"
        authority = str(folder / "ca")
        # The system's roots would cost each client of Python 20 ms
        make_bundle(directory, authority, self.bundle, roots=False)
        if config is None:
            config = str(folder / "presets.toml")
            Path(config).write_text(presets())
        self._proxy = Proxy(folder, directory, "none", "record", authority, config)
        self.url = self._proxy.url
        self.environment = environment(os.environ, self.url, self.bundle)
        # A cassette is replayed on other machines, too, and may be public
        self._manifest = Manifest(redaction=replace(
            self._proxy.redaction(), hashed=False))
        self._name, self._mode, self._count = "", "", 0
        self._begun_us = self._read = self._warned = 0
        self._lines: list[dict[str, Any]] = []
        self._cassette: Path | None = None
        self._held = contextlib.ExitStack()

    def begin(self, mode: str, cassette: Path | None, slug: str) -> None:
        """A session of its own for a test, with the cassette's content in a replay."""
        with contextlib.ExitStack() as failed:
            failed.callback(self._held.close)
            self._begin(mode, cassette, slug)
            failed.pop_all()

    def _begin(self, mode: str, cassette: Path | None, slug: str) -> None:
        from cutthrough.recording.play.stubs import write_stubs

        before = self._name
        self._count += 1
        self._name = f"{self._count}-{slug}"[:90]
        self._begun_us = time.time_ns() // 1000
        self._cassette, self._mode = cassette, MODES[mode]
        recordings = self._read_cassette(cassette) if cassette is not None else []
        self._mode = self._mode or ("record" if recordings is None else "replay")
        self._read = len(recordings or ())
        session = self._sessions.create(self._name, self._manifest)
        if recordings:
            session.put(recordings)
        session.close()
        self._stubs = []
        # None yet if all is recorded; else requests are noted beside them
        name = f"{self._count}" if self._mode != "record" else ""
        if name:
            write_stubs(self._directory, name, ())
        self._proxy.switch(mode=self._mode, session=self._name, answers=name)
        self._proxy.new_lines()              # of requests that no test waited for
        self._lines = []
        if before in self._sessions.names():
            self._sessions.delete(before)
        for path in self._directory.glob(f"{self._count - 1}.a*"):
            path.unlink()

    def _read_cassette(self, cassette: Path) -> "list[Recording] | None":
        """None: there is none. If the test may write it, other processes of this run
        wait until it has ended."""
        from cutthrough.recording.sessions.folder import MANIFEST, hold, read_folder

        manifest = cassette / MANIFEST
        if self._mode in ("cache", "record") or not (self._mode or manifest.exists()):
            self._held.enter_context(hold(cassette))
        if self._mode == "record" or not manifest.exists():
            return None
        if self._mode == "cache":
            return read_folder(cassette)[1]
        self._held.close()                   # another process has written it meanwhile
        with hold(cassette, is_shared=True):
            return read_folder(cassette)[1]

    def respond(self, stub: "Recording") -> None:
        from cutthrough.recording.play.stubs import write_stubs

        self._stubs.append(stub)
        name = f"{self._count}"
        write_stubs(self._directory, name, self._stubs)
        self._proxy.switch(answers=name)

    def requests(self) -> list[Request]:
        from cutthrough.tools.run import explain, url_of

        self._proxy.settle()
        self._lines += [line for line in self._proxy.new_lines()
                        if began_us(line) >= self._begun_us and (
                            line["method"] != "CONNECT" or is_missed(line))]
        missed = [*filter(is_missed, self._lines)]
        why = iter(explain(missed, self._proxy.misses()) if missed else ())
        requests_by_key = self._requests_by_key()
        return [Request(
            line["method"], url_of(line), line.get("status"), line["reason"],
            next(why) if is_missed(line) else "", *take(requests_by_key, line))
            for line in self._lines]

    def _requests_by_key(self) -> "dict[tuple[bool, str, str], list[AskedRequest]]":
        """The requests that recordings or stubs answered, and the new recordings."""
        from cutthrough.recording.play.stubs import read_requests
        from cutthrough.tools.run import key_of

        requests_by_key: dict[tuple[bool, str, str], list[AskedRequest]] = {}
        for is_recorded, requests in (
                (False, read_requests(self._directory, f"{self._count}")),
                (True, [recording.request
                        for recording in self._recordings()[self._read:]])):
            for request in requests:
                key = (is_recorded, *key_of(request.method, request.url))
                requests_by_key.setdefault(key, []).append(request)
        return requests_by_key

    def end(self, has_passed: bool) -> list[Request]:
        """Writes the cassette if it was recorded, and the test has passed; returns what
        was missed."""
        with self._held:
            records = self._cassette is not None and self._mode in ("record", "cache")
            left = self._await_ends() if records else 0
            requests = self.requests()
            if self._cassette is not None and records:
                self._keep(self._cassette, requests, has_passed)
                if left:
                    warnings.warn(
                        f"{self._cassette.name}: {left} requests have not ended: their "
                        "answers are not recorded", pytest.PytestWarning, stacklevel=2)
        return [request for request in requests
                if request.verdict == "recording_missed"]

    def _await_ends(self) -> int:
        """Waits for the ends of this test's requests: if a client has left, the proxy
        notices when more bytes come for it. Returns how many have not ended."""
        until = time.monotonic() + ENDS_S
        while left := self._proxy.under_way(self._begun_us):
            if time.monotonic() > until:
                break
            time.sleep(0.02)                 # until it is asked again
        return left

    def _keep(self, cassette: Path, requests: list[Request], has_passed: bool) -> None:
        """Warns of answers that could not be recorded, or are not kept."""
        from cutthrough.recording.sessions.folder import write_folder

        recordings = self._recordings()
        count = len(recordings) - self._read
        if count and not has_passed:
            warnings.warn(f"{cassette.name}: {count} recorded answers are not kept: "
                          "the test has not passed", pytest.PytestWarning, stacklevel=2)
        elif count:
            write_folder(cassette, self._manifest, recordings)
        answered = sum(request.status is not None and request.verdict in _ANSWERED
                       for request in requests)
        if count < answered:
            said = self._proxy.warnings()
            reasons, self._warned = said[self._warned:], len(said)
            warnings.warn("\n".join([
                f"{cassette.name}: {answered - count} of {answered} answers are not "
                "recorded", *reasons]), pytest.PytestWarning, stacklevel=2)

    def _recordings(self) -> "list[Recording]":
        """Without those of requests that an earlier test has begun."""
        if self._name not in self._sessions.names():
            return []
        session = self._sessions.open(self._name)
        try:
            return [recording for recording in session.recordings()
                    if recording.created_us >= self._begun_us]
        finally:
            session.close()

    def stop(self) -> None:
        self._proxy.stop()


def take(requests_by_key: "dict[tuple[bool, str, str], list[AskedRequest]]",
         line: Mapping[str, Any]) -> tuple[Any, ...]:
    """Fields and body of the request of this line; () if neither is known."""
    from cutthrough.tools.run import key_of, url_of

    is_recorded = line["reason"] not in ("replayed", "recording_missed")
    known = requests_by_key.get((is_recorded, *key_of(line["method"], url_of(line))))
    if not known:
        return ()
    request = known.pop(0)
    return request.fields, request.body


def is_missed(line: Mapping[str, Any]) -> bool:
    return bool(line["reason"] == "recording_missed")


def began_us(line: Mapping[str, Any]) -> float:
    """When a request of the log began: it has the end, in milliseconds."""
    ended = datetime.fromisoformat(line["time"]).timestamp()
    return ended * 1e6 - float(line["total_ms"]) * 1000


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cutthrough")
    group.addoption("--cassette-mode", choices=[*MODES], default=None,
                    help="in place of the mode of each cassette")
    parser.addini("cutthrough_config", "configuration of the proxy in place of the "
                  "presets, relative to the root of the tests", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cassette(name=None, mode='once'): answers are recorded into, and "
        "replayed from, a directory of cassettes/, by default of the name "
        "FILE.CLASS.TEST; modes: " + ", ".join(MODES))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]
                              ) -> Iterator[None]:
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if report.when == "call":                # one that fails as expected, ends as usual
        # pytest reports one that fails as expected as skipped, with this attribute
        item.stash[_PASSED] = report.passed or hasattr(report, "wasxfail")


def name_of(node: pytest.Item) -> str:
    """FILE.CLASS.TEST-PARAMETERS, other for each test of a directory: with a hash if
    something of it cannot be in the name of a file."""
    classes = [item.name for item in node.listchain() if isinstance(item, pytest.Class)]
    test, bracket, rest = node.name.partition("[")
    whole = ".".join([node.path.stem, *classes, test])
    if bracket:
        whole += f"-{rest.removesuffix(']')}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", whole)[:MOST_NAME].strip("-.") or "test"
    if name == whole:
        return name
    digest = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()
    return f"{name}-{digest[:8]}"


def cassette(name: str | None = None, mode: str = "once") -> tuple[str | None, str]:
    """Takes the arguments of the marker. Raises TypeError and ValueError."""
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if name is not None and (not isinstance(name, str) or not name.strip("./") or any(
            part in ("", "..") for part in name.split("/")) or "\0" in name):
        raise ValueError(f"{name!r} is no name of a directory inside {FOLDER}/")
    return name, mode


@pytest.fixture(scope="session")
def _cutthrough_running(
        tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
        ) -> Iterator[_Running]:
    path = pytestconfig.getini("cutthrough_config")
    config = str(pytestconfig.rootpath / path) if path else None
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
    own, where, mode = name_of(request.node), None, "none"
    if marker is not None:
        try:
            name, mode = cassette(*marker.args, **marker.kwargs)
        except (TypeError, ValueError) as error:
            pytest.fail(f"the marker cassette: {error}", pytrace=False)
        mode = request.config.getoption("--cassette-mode") or mode
        where = request.path.parent / FOLDER / (name or own)
    request.node.stash[_PASSED] = False
    running.begin(mode, where, own)
    names = {name for name in os.environ if name.lower() == "no_proxy"}
    for name in names - running.environment.keys():
        monkeypatch.delenv(name)
    for name, value in running.environment.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    yield Cassette(running.url, running.bundle, dict(running.environment), running)
    missed = running.end(request.node.stash[_PASSED])
    if missed:
        pytest.fail("\n".join(
            f"no recording answers {entry.method} {entry.url}: {entry.miss}"
            for entry in missed), pytrace=False)


@pytest.fixture(autouse=True)
def _cassette(request: pytest.FixtureRequest) -> None:
    """A test with the marker needs no argument."""
    if request.node.get_closest_marker("cassette") is not None:
        request.getfixturevalue("cutthrough")
