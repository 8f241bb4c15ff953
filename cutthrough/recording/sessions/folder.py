"""Recordings as a directory of JSON or YAML: one file each, for version control.

    manifest.json           version, redaction and bounds, and the order of the files
    POST-api.example-v1-items-3f2a81c04e55.json

A name is made of the request, with a hash of it; recordings of equal requests are
numbered. So a name stays when others come or go, and a file when nothing in it changes:
hits and times are left out. A body is `json` if it comes back from there byte for byte,
else `text`, else `base64`.
"""

import base64
import binascii
import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.exchange.whole_file import write_file
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.model.templates import check
from cutthrough.recording.model.yaml_documents import read_table
from cutthrough.recording.sessions.session import Manifest, check_manifest

MOST_FILE = 64 << 20
MOST_NAME = 80
MANIFEST = "manifest.json"
Form = Literal["json", "yaml"]

# As clients write it: without white space, and as Python's json does
_SPACINGS = {"none": (",", ":"), "usual": (", ", ": ")}
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}\.(json|yaml)")


class TooLong(Exception):
    """The files would be longer than they may be."""


def write_folder(folder: Path, manifest: Manifest, recordings: Iterable[Recording],
                 form: Form = "json", key_check: str = "", most: float = math.inf
                 ) -> list[tuple[int, str]]:
    """Writes them, and removes an earlier export's files if they are not written again.
    `key_check`: of the hashes' key; "" if there are no hashes. `most`: bytes of the
    files. Returns the parts left out and the reasons, like the writers of other files:
    here always []. Raises OSError; TooLong; NotImported if the folder has a manifest of
    another program."""
    old = read_names(folder) if (folder / MANIFEST).exists() else []
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    counts: dict[str, int] = {}
    for recording in recordings:
        stem = name_of(recording)
        counts[stem] = counts.get(stem, 0) + 1
        number = f"-{counts[stem]}" if counts[stem] > 1 else ""
        name = f"{stem}{number}.{form}"
        if size_of(recording) > most:        # before it is written
            raise TooLong
        text = encode(pack(recording), form)
        most -= len(text)
        if most < 0:
            raise TooLong
        write_file(folder / name, text.encode(), over=True)
        names.append(name)
    table = msgspec.to_builtins(msgspec.structs.replace(
        manifest, program="", created_us=0))
    write_file(folder / MANIFEST, encode(
        {"version": manifest.version, **table,
         **({"key_check": key_check} if key_check else {}), "recordings": names},
        "json").encode(), over=True)
    for name in {*old} - {*names}:
        (folder / name).unlink(missing_ok=True)
    return []


def size_of(recording: Recording) -> int:
    """Bytes of its content."""
    response = recording.response
    chunks = sum(len(chunk.data) for chunk in response.chunks)
    messages = sum(len(message.data) for message in response.messages)
    return len(recording.request.body) + chunks + messages


@contextlib.contextmanager
def hold(folder: Path, is_shared: bool = False) -> Iterator[None]:
    """The folder is made if it does not exist, and removed in the end if it is empty.
    Other programs wait in `hold` for it, unless all share it. Raises OSError."""
    fd = -1
    while fd < 0:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):     # another has removed it
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):           # a file system without locks
                fcntl.flock(fd, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        if fd >= 0 and not is_at(fd, folder):
            os.close(fd)
            fd = -1
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
        os.close(fd)


def is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def name_of(recording: Recording) -> str:
    """Returns the name of a recording's file, made of the request, patterns included.
    """
    key = (recording.request, recording.patterns, sorted(recording.requires.items()))
    digest = hashlib.sha256(msgspec.json.encode(key)).hexdigest()[:12]
    request = recording.request
    words = re.sub(r"[^A-Za-z0-9._]+", "-",
                   f"{request.method}-{request.host}{request.path}").strip("-._")
    return f"{words[:MOST_NAME]}-{digest}" if words else digest


def encode(value: Any, form: Form) -> str:
    if form == "yaml":
        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=False))
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def pack(recording: Recording) -> dict[str, Any]:
    """As JSON has it, without the changes of each replay."""
    table: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(
        recording, number=0, hits=0, created_us=0, owner=""), builtin_types=(bytes,))
    _pack_bytes(table["request"], "body")
    chunks = table["response"].get("chunks", ())
    for chunk in (*chunks, *table["response"].get("messages", ())):
        _pack_bytes(chunk, "data")
    plain: dict[str, Any] = json.loads(json.dumps(table))
    return plain


def _pack_bytes(table: dict[str, Any], name: str) -> None:
    data = table.pop(name, None)
    if data is not None:
        table[name] = pack_bytes(data)


def pack_bytes(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    if text[:1] in ("{", "["):
        try:
            document = json.loads(text)
            for spacing in _SPACINGS:
                if join(document, spacing) == data:
                    return {"json": document, "spacing": spacing}
        except (ValueError, RecursionError):
            pass
    return {"text": text}


def join(value: Any, spacing: str) -> bytes:
    return json.dumps(value, separators=_SPACINGS[spacing], ensure_ascii=False,
                      allow_nan=False).encode()


def read_names(folder: Path) -> list[str]:
    """Raises NotImported and OSError."""
    names = decode(folder / MANIFEST).get("recordings")
    if not isinstance(names, list) or not all(
            isinstance(name, str) and FILE.fullmatch(name) for name in names):
        raise NotImported(f"{MANIFEST} has no list of `recordings`, or a name in it is "
                          "none")
    return names


def read_folder(folder: Path) -> tuple[Manifest, list[Recording]]:
    """Returns the folder's manifest, and its recordings in order. Raises NotImported
    and OSError."""
    table = decode(folder / MANIFEST)
    names = read_names(folder)
    if len({*names}) < len(names):           # a short file of many recordings
        raise NotImported(f"{MANIFEST} names a file twice")
    try:
        manifest = msgspec.convert(table, Manifest)
    except msgspec.ValidationError as error:
        raise NotImported(f"{MANIFEST}: {error}") from None
    if manifest.version != Manifest().version:
        raise NotImported(f"{MANIFEST} has version {manifest.version}, and this "
                          f"program reads {Manifest().version}")
    # What is imported is of this host, whatever it was where it comes from
    manifest = msgspec.structs.replace(manifest, copy_of="", copied=(0, 0))
    try:
        check_manifest(manifest)
    except ValueError as error:
        raise NotImported(f"{MANIFEST}: {error}") from None
    return manifest, [unpack(decode(folder / name), name) for name in names]


def read_key_check(folder: Path) -> str:
    """As it was written. Raises NotImported and OSError."""
    return str(decode(folder / MANIFEST).get("key_check", ""))


def decode(path: Path) -> dict[str, Any]:
    """Raises NotImported and OSError."""
    try:
        return read_table(path, MOST_FILE)
    except FileNotFoundError:                # the folder is there
        why = ("so it is no export: name the files in it" if path.name == MANIFEST
               else f"that {MANIFEST} names")
        raise NotImported(f"there is no {path.name} in it, {why}") from None


def unpack(table: dict[str, Any], name: str) -> Recording:
    """Raises NotImported."""
    try:
        request, response = table.get("request"), table.get("response")
        holders: list[tuple[Any, str]] = [(request, "body")]
        if isinstance(response, dict):
            holders += [(piece, "data") for kind in ("chunks", "messages")
                        for piece in response.get(kind) or ()]
        for holder, key in holders:
            if isinstance(holder, dict) and key in holder:
                holder[key] = unpack_bytes(holder[key])
            elif isinstance(holder, list) and len(holder) > 1:
                holder[1] = unpack_bytes(holder[1])
        recording = checked(msgspec.convert(table, Recording))
        if recording.template:
            check(recording)
        return recording
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise NotImported(f"{name}: {error}") from None


def unpack_bytes(value: Any) -> bytes:
    """Raises ValueError."""
    match value:
        case {"base64": str(text)}:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error:
                raise ValueError("a body is not base64") from None
        case {"json": document, "spacing": str(spacing)} if spacing in _SPACINGS:
            return join(document, spacing)
        case {"text": str(text)}:
            return text.encode()
    raise ValueError("a body has no `text`, `json` with `spacing`, or `base64`")
