"""`cutthrough mode` and `cutthrough recordings`: by the directory of the sessions, or
by the database that several hosts have.

The directory is its owner's alone. If a user may open it, the user may read and change
it, and gives no token. A running proxy notices a change within a tenth of a second, and
one in the database within half a second.
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
from cutthrough.config.files import naming
from cutthrough.config.recordings import scopes_of
from cutthrough.config.settings import flag_name, gather, variable_name
from cutthrough.config.values import parse_value, show_count, show_duration
from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.formats.imported import Altered, NotImported, OtherProtocol
from cutthrough.exchange.visible import visible
from cutthrough.recording.formats.exchanges import write_archive
from cutthrough.recording.formats.files import Contents, read_recordings
from cutthrough.recording.formats.replayproxy import (
    Base,
    is_export,
    read_base,
    read_export,
)
from cutthrough.recording.formats.vcr import write_cassette
from cutthrough.recording.model.masking import Redaction, Scope
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
from cutthrough.tools.presets import presets

DIRECTORY = variable_name("recording_directory")
# Recordings of one transaction of `import`
BATCH = 500
# Of a recording that is not in an export
LEFT_OUT = "left out: "
# Actions that may make the directory
MAKERS = ("create", "import")


def run(args: argparse.Namespace) -> int:
    """Runs one of the actions; returns the exit status. Raises ConfigError."""
    if args.verb == "recordings" and args.action == "presets":
        print(presets().strip())
        return 0
    directory = find_directory(
        args, may_make=args.verb == "recordings" and args.action in MAKERS)
    try:
        if args.verb == "mode":
            return change_mode(directory, args)
        url = find_recordings(args.url_file, os.environ)
        args.directory = directory
        if args.action == "import" and args.key_file:
            key_file.take_key(directory, Path(args.key_file))
        with contextlib.closing(open_sessions(directory, url)) as sessions:
            return _ACTIONS[args.action](sessions, args)
    except ConfigError:
        raise
    except (StoreError, NotImported, ValueError) as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1


def find_directory(args: argparse.Namespace, may_make: bool) -> str:
    """Finds the directory of --directory, or of the variable that `serve` reads, or
    that of `cutthrough run` if there is one. Raises ConfigError, also if it is none of
    recordings. `may_make`: it need not exist."""
    source, key = "command line", "--directory"
    directory: str = args.directory or ""
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
    """The reason if this is no directory of recordings; "": it is one, or is empty."""
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


def change_mode(directory: str, args: argparse.Namespace) -> int:
    if args.session:
        check_name(args.session)
    state = read_state(directory)
    if args.mode or args.session is not None:
        state = State(
            args.mode or state.mode,
            state.session if args.session is None else args.session)
        write_state(directory, state)
    if args.json:
        print(json.dumps({"mode": state.mode, "session": state.session or None}))
    else:
        print(f"mode {state.mode}, session {state.session or 'as configured'}")
    return 0


def create(sessions: AnySessions, args: argparse.Namespace) -> int:
    sessions.create(args.session, manifest_of(args)).close()
    print(f"session {args.session} created")
    return 0


def manifest_of(args: argparse.Namespace) -> Manifest:
    """Makes a manifest of the flags, and if one is absent of the configuration, as a
    session that a proxy makes. Raises ConfigError."""
    settings = gather({}, os.environ, args.config_file or os.environ.get(
        "CUTTHROUGH_CONFIG") or None, secrets=False)

    def read(name: str) -> Any:
        key = f"recording_{name}"
        return read_flag(args, name, settings[key].value)

    texts = {name: settings[f"redact_{name}"].value + read(f"redact_{name}")
             for name in ("fields", "query", "json")}
    body = settings["redact_body"].value + read("redact_body")
    for text in body:
        try:
            compile_expression(text)
        except KeyMistake as error:
            raise ConfigError("command line", "--redact-body", str(error)) from None
    scopes = tuple(Scope(**scope)
                   for scope in scopes_of(settings["recording_routes"].value))
    return Manifest(redaction=Redaction(**texts, body=body, scopes=scopes),
                    count=read("count"), age_s=read("age"), comment=args.comment)


def read_flag(args: argparse.Namespace, name: str, absent: Any) -> Any:
    """The value of a flag that is an option of recordings. Raises ConfigError."""
    text = getattr(args, name)
    if text is None:
        return absent
    try:
        return parse_value(OPTIONS[f"recording_{name}"].kind, text)
    except ValueError as error:
        raise ConfigError("command line", flag_name(name), str(error)) from None


def set_bounds(sessions: AnySessions, args: argparse.Namespace) -> int:
    count, age_s = read_flag(args, "count", None), read_flag(args, "age", None)
    if count is None and age_s is None:
        raise ConfigError("command line", "set", "needs --count, --age or both")
    session = sessions.open(args.session)
    edits.set_bounds(session, count, age_s, until=math.inf)
    manifest = session.manifest
    print(f"session {args.session}: count {manifest.count}, age "
          f"{show_duration(manifest.age_s)}; {show_count(len(session), 'recording')}")
    return 0


def edit(sessions: AnySessions, args: argparse.Namespace) -> int:
    with naming(args.file):
        data = sys.stdin.buffer.read() if args.file == "-" else Path(
            args.file).read_bytes()
    try:
        table = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotImported(f"{args.file}: {error}") from None
    if not edits.edit(sessions.open(args.session), args.number, table, args.file):
        return tell_missing(args)
    print(f"recording {args.number} of {args.session} replaced")
    return 0


def show_reads(sessions: AnySessions, args: argparse.Namespace) -> int:
    for read in sessions.open(args.session).reads():
        at = datetime.fromtimestamp(read.at_ms / 1000, UTC)
        who = f"uid {read.uid}{f' at {read.host}' if read.host else ''}"
        print(f"{at.isoformat(timespec='milliseconds')}  {who}  "
              f"{' '.join(filter(None, (read.verb, read.what)))}  {read.found} found")
    return 0


def list_sessions(sessions: AnySessions, args: argparse.Namespace) -> int:
    if args.session:
        session, words = sessions.open(args.session), " ".join(args.words)
        recordings: Iterable[Recording] = session.recordings()
        count = len(session)
        if words:
            recordings = list(session.search(words, args.limit))
            count = len(recordings)
        session.log("list", words, count)
        for recording in recordings:
            print(f"{recording.number}\t{recording.request.method}\t"
                  f"{recording.response.status}\t{len(recording.response.body)}\t"
                  f"{recording.request.url}")
        return 0
    for name in sessions.names():
        print(f"{name}\t{len(sessions.open(name))}")
    return 0


def show(sessions: AnySessions, args: argparse.Namespace) -> int:
    session = sessions.open(args.session)
    recording = session.get(args.number)
    session.log("show", str(args.number), int(recording is not None))
    if recording is None:
        return tell_missing(args)
    if args.body:
        body = (recording.request.body if args.body == "request"
                else recording.response.body)
        sys.stdout.buffer.write(body)
        return 0
    print(json.dumps(pack(recording), indent=2, ensure_ascii=False))
    return 0


def tell_missing(args: argparse.Namespace) -> int:
    print(f"cutthrough: there is no recording {args.number} in {args.session!r}",
          file=sys.stderr)
    return 1


def delete(sessions: AnySessions, args: argparse.Namespace) -> int:
    if args.id:
        count = sessions.open(args.session).delete(args.id)
        print(f"{count} deleted")
        return 0 if count == len(set(args.id)) else 1
    sessions.delete(args.session)
    print(f"session {args.session} deleted")
    return 0


def export(sessions: AnySessions, args: argparse.Namespace) -> int:
    session = sessions.open(args.session)
    session.log("export", args.form, len(session))
    if args.key_file:
        key_file.write_key(args.directory, Path(args.key_file))
    target = Path(args.output)
    if args.form in ("json", "yaml"):
        left_out = write_folder(
            target, session.manifest, session.recordings(), args.form,
            key_file.check_of_directory(args.directory)
            if session.manifest.redaction.hashed else "")
    else:
        text = io.StringIO()
        write = write_cassette if args.form == "vcr" else write_archive
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


def import_files(sessions: AnySessions, args: argparse.Namespace) -> int:
    bound_memory(MOST_MEMORY)
    try:
        return import_all(sessions, args)
    except MemoryError:
        raise NotImported("the files take more memory than this process may have; "
                          "import fewer at once") from None


def import_all(sessions: AnySessions, args: argparse.Namespace) -> int:
    """If a file cannot be read, it is named, and the others come in. Raises
    ConfigError."""
    manifest, failed, added = None, False, 0
    base = find_base(args.base_url)
    recordings: list[Recording] = []
    for name in args.files:
        path = Path(name)
        try:
            if path.is_dir() and is_export(path):
                failed |= tell_contents(
                    name, Contents("replayproxy", read_export(path, base)), recordings)
            elif path.is_dir():
                manifest, more = read_folder(path)
                tell_other_key(args, path, more)
                recordings += more
            else:
                failed |= tell_contents(name, read_recordings(path), recordings)
        except (NotImported, OSError) as error:
            what = error.strerror if isinstance(error, OSError) else error
            print(visible(f"cutthrough: {name}: {what}"), file=sys.stderr)
            failed = True
    if failed and not recordings and manifest is None:
        return 1                             # it makes no session
    session = open_or_create(sessions, args.session, manifest)
    for at in range(0, len(recordings), BATCH):
        added += len(session.add(recordings[at:at + BATCH]))
    session.close()
    print(f"{added} recordings added to {args.session}")
    return int(failed)


def find_base(text: str | None) -> Base | None:
    """Raises ConfigError."""
    try:
        return read_base(text) if text else None
    except ValueError as error:
        raise ConfigError("command line", "--base-url", str(error)) from None


def tell_contents(name: str, contents: Contents, recordings: list[Recording]) -> bool:
    """Adds the recordings, and says what of the file is none. Returns whether one could
    not be read."""
    others, failed = Counter[str](), False
    for item in contents.items:
        if isinstance(item, OtherProtocol):
            others[item.kind] += 1
        elif isinstance(item, NotImported):
            failed |= not isinstance(item, Altered)
            print(visible(f"cutthrough: {name}: {item}"), file=sys.stderr)
        else:
            recordings.append(item)
    if others:
        print(visible(f"cutthrough: {name}: {show_others(others)}"), file=sys.stderr)
    return failed


def tell_other_key(args: argparse.Namespace, path: Path, recordings: list[Recording]
                   ) -> None:
    check = read_key_check(path)
    if check and check != key_file.check_of_directory(args.directory) and (
            key_file.has_hashes(recordings)):
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
