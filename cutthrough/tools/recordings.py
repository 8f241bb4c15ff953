"""`cutthrough mode` and `cutthrough recordings`: by the directory of the sessions, or
by the database that several hosts have.

The directory is its owner's alone: who may open it may read and change it, and gives no
token. A running proxy notices a change within a tenth of a second, and one in the
database within half a second.
"""

import argparse
import contextlib
import io
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cutthrough.capture.importing import MOST_MEMORY, bound_memory, show_others
from cutthrough.config.config import OPTIONS, ConfigError
from cutthrough.config.settings import flag_name, gather, variable_name
from cutthrough.config.values import parse_value, show_count, show_duration
from cutthrough.exchange.formats.imported import Altered, NotImported, Unlike
from cutthrough.exchange.visible import visible
from cutthrough.recording.formats.exchanges import write_archive
from cutthrough.recording.formats.files import Contents, read_recordings
from cutthrough.recording.formats.vcr import write_cassette
from cutthrough.recording.model.documents import KeyMistake, compile_finder
from cutthrough.recording.model.masking import Redaction
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.sessions import edits, key_file
from cutthrough.recording.sessions.directory import SUFFIX
from cutthrough.recording.sessions.folder import (
    pack,
    read_folder,
    read_key_check,
    write_folder,
)
from cutthrough.recording.sessions.modes import NAME as MODE
from cutthrough.recording.sessions.modes import State, read_state, write_state
from cutthrough.recording.sessions.places import open_sessions
from cutthrough.recording.sessions.session import (
    AnySession,
    AnySessions,
    Manifest,
    check_name,
)
from cutthrough.storage.store import StoreError
from cutthrough.tools.database import find_recordings, state_directory

DIRECTORY = variable_name("recording_directory")
# Recordings of one transaction of `import`
BATCH = 500
# Of a recording that is not in an export
LEFT_OUT = "left out: "
# Actions that may make the directory
MAKERS = ("create", "import")


def run(given: argparse.Namespace) -> int:
    """Runs one of the actions; returns the exit status. Raises ConfigError."""
    directory = find_directory(
        given, may_make=given.verb == "recordings" and given.action in MAKERS)
    try:
        if given.verb == "mode":
            return change_mode(directory, given)
        url = find_recordings(given.url_file, os.environ)
        given.directory = directory
        if given.action == "import" and given.key_file:
            key_file.take_key(directory, Path(given.key_file))
        with contextlib.closing(open_sessions(directory, url)) as sessions:
            return _ACTIONS[given.action](sessions, given)
    except ConfigError:
        raise
    except (StoreError, NotImported, ValueError) as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1


def find_directory(given: argparse.Namespace, may_make: bool) -> str:
    """By --directory, or the variable that `serve` reads, or the directory of
    `cutthrough run` if there is one. Raises ConfigError, also if it is none of
    recordings. `may_make`: it need not exist."""
    source, key = "command line", "--directory"
    directory: str = given.directory or ""
    if not directory:
        source, key, directory = "environment", DIRECTORY, os.environ.get(DIRECTORY, "")
    if not directory:
        directory = state_directory("recordings", os.environ)
        if not os.path.isdir(directory):
            raise ConfigError(
                "command line", "--directory", "is missing: give the directory of "
                f"recording_directory, or set {DIRECTORY}; there is no {directory}, "
                "which `cutthrough run` makes")
    if reason := why_no_directory(directory, may_make):
        raise ConfigError(source, key, f"{directory}: {reason}")
    return directory


def why_no_directory(path: str, may_make: bool) -> str:
    """Why this is no directory of recordings; "": it is one, or is empty."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return "" if may_make else ("there is no such directory; a proxy whose rules "
                                    "record makes it when it starts")
    except OSError as error:
        return error.strerror or str(error)
    if any(name in ("key", MODE) or name.endswith(SUFFIX) for name in names):
        return ""
    return ("has other files, and no recordings" if any(
        name[0] != "." and name != "lost+found" for name in names) else "")


def change_mode(directory: str, given: argparse.Namespace) -> int:
    if given.session:
        check_name(given.session)
    state = read_state(directory)
    if given.mode or given.session is not None:
        state = State(
            given.mode or state.mode,
            state.session if given.session is None else given.session)
        write_state(directory, state)
    if given.json:
        print(json.dumps({"mode": state.mode, "session": state.session or None}))
    else:
        print(f"mode {state.mode}, session {state.session or 'as configured'}")
    return 0


def create(sessions: AnySessions, given: argparse.Namespace) -> int:
    sessions.create(given.session, manifest_of(given)).close()
    print(f"session {given.session} created")
    return 0


def manifest_of(given: argparse.Namespace) -> Manifest:
    """By the flags, and for what they do not say by the configuration, as a session
    that a proxy makes. Raises ConfigError."""
    settings = gather({}, os.environ, given.config_file or os.environ.get(
        "CUTTHROUGH_CONFIG") or None, secrets=False)

    def read(name: str) -> Any:
        key = f"recording_{name}"
        return read_flag(given, name, settings[key].value)

    texts = {name: settings[f"redact_{name}"].value + read(f"redact_{name}")
             for name in ("fields", "query", "json")}
    body = settings["redact_body"].value + read("redact_body")
    for text in body:
        try:
            compile_finder(text)
        except KeyMistake as error:
            raise ConfigError("command line", "--redact-body", str(error)) from None
    return Manifest(redaction=Redaction(**texts, body=body), count=read("count"),
                    age_s=read("age"), comment=given.comment)


def read_flag(given: argparse.Namespace, name: str, absent: Any) -> Any:
    """The value of a flag that is an option of recordings. Raises ConfigError."""
    text = getattr(given, name)
    if text is None:
        return absent
    try:
        return parse_value(OPTIONS[f"recording_{name}"].kind, text)
    except ValueError as error:
        raise ConfigError("command line", flag_name(name), str(error)) from None


def set_bounds(sessions: AnySessions, given: argparse.Namespace) -> int:
    count, age_s = read_flag(given, "count", None), read_flag(given, "age", None)
    if count is None and age_s is None:
        raise ConfigError("command line", "set", "needs --count, --age or both")
    session = sessions.open(given.session)
    edits.set_bounds(session, count, age_s, until=math.inf)
    kept = session.manifest
    print(f"session {given.session}: count {kept.count}, age "
          f"{show_duration(kept.age_s)}; {show_count(len(session), 'recording')}")
    return 0


def edit(sessions: AnySessions, given: argparse.Namespace) -> int:
    data = sys.stdin.buffer.read() if given.file == "-" else Path(
        given.file).read_bytes()
    try:
        table = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotImported(f"{given.file}: {error}") from None
    if not edits.edit(sessions.open(given.session), given.number, table, given.file):
        return tell_missing(given)
    print(f"recording {given.number} of {given.session} replaced")
    return 0


def show_reads(sessions: AnySessions, given: argparse.Namespace) -> int:
    for one in sessions.open(given.session).reads():
        at = datetime.fromtimestamp(one.at_ms / 1000, UTC)
        who = f"uid {one.uid}{f' at {one.host}' if one.host else ''}"
        print(f"{at.isoformat(timespec='milliseconds')}  {who}  "
              f"{' '.join(filter(None, (one.verb, one.what)))}  {one.found} found")
    return 0


def list_sessions(sessions: AnySessions, given: argparse.Namespace) -> int:
    if given.session:
        session, words = sessions.open(given.session), " ".join(given.words)
        found: Iterable[Recording] = session.recordings()
        count = len(session)
        if words:
            found = list(session.search(words, given.limit))
            count = len(found)
        session.log("list", words, count)
        for one in found:
            print(f"{one.number}\t{one.request.method}\t{one.response.status}\t"
                  f"{len(one.response.body)}\t{one.request.url}")
        return 0
    for name in sessions.names():
        print(f"{name}\t{len(sessions.open(name))}")
    return 0


def show(sessions: AnySessions, given: argparse.Namespace) -> int:
    session = sessions.open(given.session)
    one = session.get(given.number)
    session.log("show", str(given.number), int(one is not None))
    if one is None:
        return tell_missing(given)
    if given.body:
        body = one.request.body if given.body == "request" else one.response.body
        sys.stdout.buffer.write(body)
        return 0
    print(json.dumps(pack(one), indent=2, ensure_ascii=False))
    return 0


def tell_missing(given: argparse.Namespace) -> int:
    print(f"cutthrough: there is no recording {given.number} in {given.session!r}",
          file=sys.stderr)
    return 1


def delete(sessions: AnySessions, given: argparse.Namespace) -> int:
    if given.id:
        found = sessions.open(given.session).delete(given.id)
        print(f"{found} deleted")
        return 0 if found == len(set(given.id)) else 1
    sessions.delete(given.session)
    print(f"session {given.session} deleted")
    return 0


def export(sessions: AnySessions, given: argparse.Namespace) -> int:
    session = sessions.open(given.session)
    session.log("export", given.form, len(session))
    if given.key_file:
        key_file.write_key(given.directory, Path(given.key_file))
    target = Path(given.output)
    if given.form in ("json", "yaml"):
        left_out = write_folder(
            target, session.manifest, session.recordings(), given.form,
            key_file.check_of_directory(given.directory)
            if session.manifest.redaction.hashed else "")
    else:
        text = io.StringIO()
        write = write_cassette if given.form == "vcr" else write_archive
        left_out = write(text, session.recordings())
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC,
                     0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text.getvalue())
    return tell_export(left_out, len(session), target)


def tell_export(left_out: list[tuple[int, str]], total: int, target: Path) -> int:
    """Says what of `total` recordings is in a file; returns the exit status. `left_out`
    has numbers and reasons, which begin with LEFT_OUT if the whole recording is."""
    for number, reason in left_out:
        print(f"cutthrough: recording {number}: {reason}", file=sys.stderr)
    gone = len({number for number, reason in left_out if reason.startswith(LEFT_OUT)})
    print(f"{total - gone} of {show_count(total, 'recording')} in {target}" if gone else
          f"{show_count(total, 'recording')} in {target}")
    return 1 if gone else 0


def import_files(sessions: AnySessions, given: argparse.Namespace) -> int:
    bound_memory(MOST_MEMORY)
    try:
        return import_all(sessions, given)
    except MemoryError:
        raise NotImported("the files take more memory than this process may have; "
                          "import fewer at once") from None


def import_all(sessions: AnySessions, given: argparse.Namespace) -> int:
    """Files that cannot be read are named, and the others come in."""
    manifest, failed, added = None, False, 0
    found: list[Recording] = []
    for name in given.files:
        path = Path(name)
        try:
            if path.is_dir():
                manifest, more = read_folder(path)
                tell_other_key(given, path, more)
                found += more
            else:
                failed |= tell_contents(name, read_recordings(path), found)
        except (NotImported, OSError) as error:
            what = error.strerror if isinstance(error, OSError) else error
            print(visible(f"cutthrough: {name}: {what}"), file=sys.stderr)
            failed = True
    if failed and not found and manifest is None:
        return 1                             # it makes no session
    session = open_or_create(sessions, given.session, manifest)
    for at in range(0, len(found), BATCH):
        added += len(session.add(found[at:at + BATCH]))
    session.close()
    print(f"{added} recordings added to {given.session}")
    return int(failed)


def tell_contents(name: str, contents: Contents, found: list[Recording]) -> bool:
    """Adds the recordings, and says what of the file is none. Returns whether one could
    not be read."""
    others, failed = Counter[str](), False
    for one in contents.items:
        if isinstance(one, Unlike):
            others[one.kind] += 1
        elif isinstance(one, NotImported):
            failed |= not isinstance(one, Altered)
            print(visible(f"cutthrough: {name}: {one}"), file=sys.stderr)
        else:
            found.append(one)
    if others:
        print(visible(f"cutthrough: {name}: {show_others(others)}"), file=sys.stderr)
    return failed


def tell_other_key(given: argparse.Namespace, path: Path, found: list[Recording]
                   ) -> None:
    check = read_key_check(path)
    if check and check != key_file.check_of_directory(given.directory) and (
            key_file.has_hashes(found)):
        print(f"cutthrough: {path}: its hashes were made with another key: requests "
              "with secrets will not match; see --key-file", file=sys.stderr)


def open_or_create(sessions: AnySessions, name: str, manifest: Manifest | None
                   ) -> AnySession:
    if name in sessions.names():
        return sessions.open(name)
    return sessions.create(name, manifest)


_ACTIONS = {"list": list_sessions, "show": show, "delete": delete, "export": export,
            "import": import_files, "create": create, "set": set_bounds, "edit": edit,
            "reads": show_reads}
