"""`cutthrough run --cassette NAME -- COMMAND …`: a command behind a proxy of its own,
which records its requests and replays them.

    COMMAND ── http_proxy, roots ──> cutthrough serve ──> the session's file, origins
"""

import argparse
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlencode

from cutthrough.ca.names import AuthorityError
from cutthrough.ca.store import default_directory
from cutthrough.config.config import ConfigError
from cutthrough.config.recordings import scopes_of
from cutthrough.config.settings import load, variable_name
from cutthrough.config.values import parse_admin
from cutthrough.recording.model.masking import Redaction, Scope
from cutthrough.recording.sessions.directory import SUFFIX, Sessions
from cutthrough.recording.sessions.session import check_name
from cutthrough.storage.store import StoreError
from cutthrough.tools.behind import (
    NOT_FOUND,
    START_S,
    NotReady,
    Serving,
    environment,
    follow,
    make_bundle,
    outside,
)
from cutthrough.tools.console import Listener, Unanswered
from cutthrough.tools.database import state_directory
from cutthrough.tools.presets import presets
from cutthrough.tools.variables import applicable, check_file, usable_file

# The status if the command has succeeded, and some request had no recording
MISSED = 3
DIRECTORY = variable_name("recording_directory")
# VCR.py's modes, and ours of a rule; "once" depends on the session
MODES = {"new_episodes": "cache", "none": "replay", "all": "record"}

# Options that the proxy of a command has values of its own for
OWN = ("policy", "user", "password", "listen", "listeners", "workers",
       "admin", "admin_token", "connect_ports", "address_floor", "intercept_ca",
       "recording_directory", "recording_session", "recording_url", "access_log",
       "access_log_format")

_POLICY = """[[rules]]
name = "run"
action = "allow"
tls = "intercept"
recording = "{mode}"
"""
# The line for each, by method and URL, the newest first
Misses = dict[tuple[str, str], list[str]]


class Ended(NamedTuple):
    replayed: int
    missed: list[str]                        # each with its request, and why
    warnings: list[str]
    died: str = ""                           # its last words, if it ended before


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit status. Raises ConfigError."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ConfigError("command line", "run", "needs a command: cutthrough run "
                          "--cassette NAME -- COMMAND …")
    path = shutil.which(command[0])
    if path is None:
        print(f"cutthrough: {command[0]}: not found", file=sys.stderr)
        return NOT_FOUND
    directory = Path(args.directory or os.environ.get(DIRECTORY)
                     or state_directory("recordings", os.environ)).absolute()
    try:
        with tempfile.TemporaryDirectory(prefix="cutthrough-run-") as folder:
            return run_in(Path(folder), directory, args, path, command)
    except (StoreError, AuthorityError, NotReady) as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1


def run_in(folder: Path, directory: Path, args: argparse.Namespace, path: str,
           command: list[str]) -> int:
    sessions, name = Sessions(directory), check_name(args.cassette)
    with contextlib.ExitStack() as held:
        if mode_of(args.mode, sessions, name) in ("record", "cache"):
            held.enter_context(alone(directory, name))
        mode = mode_of(args.mode, sessions, name)    # another run may have recorded it
        if mode == "replay":
            held.close()
        return run_as(mode, sessions, folder, directory, args, path=path,
                      command=command)


def run_as(mode: str, sessions: Sessions, folder: Path, directory: Path,
           args: argparse.Namespace, path: str, command: list[str]) -> int:
    # A session that is whole or not at all has another name until it is
    config = args.config_file
    if config:
        check_file("run", config, OWN)
    else:
        config = usable_file("run", OWN, os.environ)
    name, session = args.cassette, args.cassette
    is_whole = mode == "record" and args.mode in ("once", "all")
    if is_whole:
        session = f"{name}.new"
        if session in sessions.names():
            sessions.delete(session)
    before = count(sessions, session)
    bundle = folder / "bundle.pem"
    authority = args.ca or default_directory()
    make_bundle(directory, authority, bundle)
    if not config:
        config = str(folder / "presets.toml")
        Path(config).write_text(presets())
    proxy = Proxy(folder, directory, session, mode, authority, config)
    try:
        status = follow(path, command, environment(os.environ, proxy.url, bundle))
    finally:
        ended = proxy.stop()
    recorded = count(sessions, session) - before
    dropped = is_whole and recorded and bool(status or ended.died)
    if dropped:
        sessions.delete(session)
    elif is_whole and recorded:
        sessions.open(session).close()       # SQLite's log goes into the file
        (directory / f"{session}{SUFFIX}").replace(directory / f"{name}{SUFFIX}")
    return tell(name, mode, ended, recorded, status, bool(dropped))


@contextlib.contextmanager
def alone(directory: Path, name: str) -> Iterator[None]:
    """Other runs wait if they may write this session. Raises OSError."""
    fd = os.open(directory / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                 | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"cutthrough: another run records {name}: this one waits for it",
                  file=sys.stderr, flush=True)
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def tell(name: str, mode: str, ended: Ended, recorded: int, status: int, dropped: bool
         ) -> int:
    """Prints how it went; returns the exit status."""
    for line in ended.warnings:
        print(line, file=sys.stderr)
    for line in ended.missed:
        print(f"cutthrough: MISSED {line}", file=sys.stderr)
    print(f"cutthrough: cassette {name}, mode {mode}: {ended.replayed} replayed, "
          f"{recorded} recorded, {len(ended.missed)} missed", file=sys.stderr)
    if ended.missed:
        print("cutthrough: --mode new_episodes records what was missed",
              file=sys.stderr)
    if ended.died:
        print(f"cutthrough: the proxy has ended before the command: {ended.died}",
              file=sys.stderr)
    if dropped:
        print("cutthrough: what was recorded is not kept, because the command has "
              "failed; --mode new_episodes would keep it", file=sys.stderr)
    if status:
        return status
    return MISSED if ended.missed else 1 if ended.died else 0


def mode_of(mode: str, sessions: Sessions, name: str) -> str:
    if mode == "once":
        return "replay" if name in sessions.names() else "record"
    return MODES.get(mode, mode)


def count(sessions: Sessions, name: str) -> int:
    if name not in sessions.names():
        return 0
    session = sessions.open(name)
    try:
        return len(session)
    finally:
        session.close()


def is_path(where: str) -> bool:
    """Can it be the place of an admin listener?"""
    try:
        return bool(parse_admin(where))
    except ValueError:
        return False


class Proxy:
    """`cutthrough serve`, on a free port of loopback. Raises NotReady and OSError."""

    def __init__(self, folder: Path, directory: Path, session: str, mode: str,
                 authority: str, config: str | None) -> None:
        self._log = folder / "access.log"
        policy = folder / "policy.toml"
        policy.write_text(_POLICY.format(mode=mode))
        password, token = secrets.token_hex(12), secrets.token_hex(12)
        self._short: tempfile.TemporaryDirectory[str] | None = None
        where = f"unix:{folder}/admin"
        if not is_path(where):               # too long for a socket
            self._short = tempfile.TemporaryDirectory(prefix="cutthrough-", dir="/tmp")
            where = f"unix:{self._short.name}/admin"
        flags = {
            "policy": policy, "listen": "127.0.0.1:0", "workers": 1,
            "admin": where,
            "connect-ports": "any", "address-floor": "off", "intercept-ca": authority,
            "recording-directory": directory, "recording-session": session,
            "recording-url": "",             # cassettes are this host's
            "recording-misses": "nearest",   # and all of them are this user's
            "access-log": self._log, "access-log-format": "json"}
        self._listener = Listener(where, token)
        options = [f"--{name}={value}" for name, value in flags.items()]
        own = {variable_name("user"): "run", variable_name("password"): password,
               variable_name("admin_token"): token}
        environ = applicable(
            "run", OWN, options, outside(os.environ), config, own)
        self._options = options, environ, config
        self._tail: BinaryIO | None = None
        self._begun = b""                    # of a line
        self._serving = Serving([*(["-c", config] if config else []), *options],
                                environ, folder / "errors")
        self.url = f"http://run:{password}@127.0.0.1:{self._serving.port}"

    def redaction(self) -> Redaction:
        """The configuration's redaction, for sessions of other programs."""
        config = load(*self._options)
        return Redaction(
            fields=config.redact_fields + config.recording_redact_fields,
            query=config.redact_query + config.recording_redact_query,
            json=config.redact_json + config.recording_redact_json,
            body=config.redact_body + config.recording_redact_body,
            scopes=tuple(Scope(**scope)
                         for scope in scopes_of(config.recording_routes)))

    def switch(self, **state: str) -> None:
        """Has mode, session or answers come into force. Raises NotReady."""
        answer = self._settled("mode?" + urlencode(state))
        if answer["errors"]:
            raise NotReady("; ".join(answer["errors"]))

    def settle(self) -> None:
        """Has the ended exchanges logged, and recorded. Raises NotReady."""
        self._settled("settle")

    def _settled(self, path: str) -> dict[str, Any]:
        until = time.monotonic() + START_S
        while True:
            try:
                answer = self._listener.read("POST", f"/{path}", "unanswered")
            except Unanswered as error:
                raise NotReady(
                    f"the proxy has ended: {self._serving.text.strip()}"
                    if self._serving.has_ended else str(error)) from None
            if not answer["unanswered"] or time.monotonic() > until:
                break
        if answer["unanswered"]:
            raise NotReady(f"no answer in {START_S:g} s: "
                           + ", ".join(answer["unanswered"]))
        return answer

    def under_way(self, since_us: float) -> int:
        """Requests that have begun since then, and have not ended. Raises NotReady."""
        try:
            connections = self._listener.connections()
        except Unanswered as error:
            raise NotReady(str(error)) from None
        now_us = time.time_ns() / 1000
        return sum(entry["kind"] == "request"
                   and now_us - entry["age"] * 1e6 >= since_us
                   for entry in connections)

    def warnings(self) -> list[str]:
        """The error log's lines about answers that are not recorded."""
        return [line for line in self._serving.text.splitlines()
                if " is not recorded: " in line or "cannot be written" in line]

    def new_lines(self) -> list[dict[str, Any]]:
        """The access log's whole lines since the last call."""
        if self._tail is None:
            if not self._log.exists():
                return []
            self._tail = self._log.open("rb")
        lines, newline, begun = self._tail.read().rpartition(b"\n")
        if not newline:
            self._begun += begun
            return []
        whole, self._begun = self._begun + lines, begun
        return [json.loads(line) for line in whole.splitlines()]

    def misses(self) -> Misses:
        """The last 100 since the session came into force."""
        misses: Misses = {}
        with contextlib.suppress(Unanswered):            # it has ended
            for miss in self._listener.read("GET", "/replays", "misses")["misses"]:
                misses.setdefault(key_of(miss["method"], miss["url"]), []).append(
                    "\n    ".join([
                        miss["reason"],
                        *([f"the nearest is recording {miss['nearest']}, "
                           f"{miss['nearest_method']} {miss['nearest_url']}"]
                          if "nearest" in miss else []),
                        *miss["differences"]]))
        return misses

    def stop(self) -> Ended:
        died = self._serving.text.strip() if self._serving.has_ended else ""
        misses = self.misses()
        self._serving.stop()
        lines: list[dict[str, Any]] = []
        if self._log.exists():
            lines = [*map(json.loads, self._log.read_text(errors="replace"
                                                          ).splitlines())]
        missed = [line for line in lines if line["reason"] == "recording_missed"]
        if self._tail is not None:
            self._tail.close()
        if self._short is not None:
            self._short.cleanup()
        return Ended(sum(line["reason"] == "replayed" for line in lines), [
            f"{line['method']} {url_of(line)}: {why}" for line, why in zip(
                missed, explain(missed, misses), strict=True)], self.warnings(), died)


def url_of(line: Mapping[str, Any]) -> str:
    """Returns the URL of a line of the access log; of a tunnel its destination."""
    return line.get("url") or f"{line['host']}:{line['port']}"


def key_of(method: str, url: str) -> tuple[str, str]:
    """Without the query, because secrets in it are not in a miss, and may be in the
    log."""
    return method, url.partition("?")[0]


def explain(lines: Sequence[Mapping[str, Any]], misses: Misses) -> list[str]:
    """Why these requests of the log were missed: if one is no longer in `misses`, as
    much as the log has room for."""
    reasons = []
    for line in reversed(lines):
        known = misses.get(key_of(line["method"], url_of(line)))
        reasons.append(known.pop(0) if known else line.get("hook") or "")
    return reasons[::-1]
