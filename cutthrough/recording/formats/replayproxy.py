"""Exports of replayproxy, in JSON and YAML -> recordings.

    index.json, or index.yaml       version 1 or 2, and the files in their order
    recordings/0001-get-v1-items-id7.json

A file has the path of its request and not its URL: scheme and host are those of a base
URL that the importer is given, or https and the field Host. Octets are lists of
numbers. What replayproxy redacted is a text of its configuration, such as `[REDACTED]`:
what it stood for is not in the files, and no request has it. Source: the
description of the format in replayproxy's documentation, versions 1 and 2.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.formats.har_values import Notes
from cutthrough.exchange.formats.imported import Altered, NotImported
from cutthrough.recording.formats.foreign import MOST_FILE, make_request, read_fields
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.model.recording import (
    Chunk,
    Fields,
    Kind,
    Message,
    Recording,
    Response,
    find,
)
from cutthrough.recording.model.yaml_documents import read_table

INDEXES = ("index.json", "index.yaml")
VERSIONS = (1, 2)
FOLDER = "recordings"
# Files of one export, and milliseconds of an offset and of a time
MOST_FILES, MOST_MS = 100_000, 1 << 43
PLACEHOLDER = b"[REDACTED]"
HOST = ("its files have no scheme and no host: https and the field Host are taken; "
        "--base-url names others")
_SIDES = {"client-to-server": True, "server-to-client": False}
_KINDS: dict[str, Kind] = {"text": "text", "binary": "binary"}

# Octets in YAML, a line each, which its reader takes 50 us for
_OCTETS = re.compile(rb"(?m)^( *)(request_body|response_body|chunk_body|payload):\n"
                     rb"((?: *- [0-9]{1,3}\n)+)")

Item = Recording | NotImported
Name = Callable[[str], None]


class Base(NamedTuple):
    """The part of a URL before the path."""

    scheme: str
    authority: str


def read_base(text: str) -> Base:
    """Raises ValueError."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or (
            url.path.strip("/") or url.query or url.fragment or "@" in url.netloc):
        raise ValueError("is not http:// or https:// and a host")
    return Base(url.scheme, url.netloc)


def is_export(folder: Path) -> bool:
    return any((folder / name).is_file() for name in INDEXES)


def read_export(folder: Path, base: Base | None = None) -> Iterator[Item]:
    """The recordings in order, or the reason if one cannot be read. Raises NotImported
    if the folder is no export, and OSError."""
    names = [name for name in INDEXES if (folder / name).is_file()]
    if len(names) != 1:
        raise NotImported(f"has {' and '.join(names) or 'no index.json or index.yaml'}")
    index = read_document(folder / names[0])
    version, entries = index.get("version"), index.get(FOLDER)
    if version not in VERSIONS:
        raise NotImported(f"{names[0]} has the version {version!r:.20}, not 1 or 2")
    if not isinstance(entries, list) or len(entries) > MOST_FILES:
        raise NotImported(f"{names[0]} has no list of `{FOLDER}`, or too long a one")
    if base is None and entries:
        yield Altered(HOST)
    paths = set[Path]()
    for number, entry in enumerate(entries):
        notes = Notes()
        try:
            path = path_of(folder, entry)
            if path in paths:                # a short file of many recordings (R70)
                raise NotImported(f"the file {entry['file']!r:.80} is named twice")
            paths.add(path)
            yield read_recording(read_document(path), base, notes.add)
        except NotImported as error:
            yield NotImported(f"recording {number}: {error}")
        except OSError as error:
            yield NotImported(f"recording {number}: {error.strerror or error}")
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this recording (R71)
            yield NotImported(f"recording {number}: {reason_of(error)}")
        else:
            yield from (Altered(f"recording {number}: {line}")
                        for line in notes.lines())


def path_of(folder: Path, entry: Any) -> Path:
    """Raises NotImported: a file elsewhere is none of the export's."""
    name = entry.get("file") if isinstance(entry, dict) else None
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2 or parts[0] != FOLDER or parts[1].startswith(".") or (
            "\0" in parts[1]):
        raise NotImported(f"the file {name!r:.80} is not below {FOLDER}/")
    path = folder.joinpath(*parts)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise NotImported(f"the file {name!r:.80} leads out of the export")
    return path


def read_document(path: Path) -> dict[str, Any]:
    return read_table(path, MOST_FILE, lambda data: _OCTETS.sub(pack, data))


def pack(match: re.Match[bytes]) -> bytes:
    """Octets as one value of YAML."""
    try:
        value = bytes(int(line.strip(b" -")) for line in match[3].splitlines())
    except ValueError:                       # some are none: see `octets`
        return match[0]
    return b"%s%s: !!binary %s\n" % (match[1], match[2], b64encode(value))


def read_recording(table: dict[str, Any], base: Base | None, name: Name) -> Recording:
    """`name` takes what it lacks. Raises NotImported."""
    fields = fields_of(table.get("request_headers"), "request", name)
    method, target = table.get("request_method"), table.get("request_uri")
    if not isinstance(method, str) or not isinstance(target, str) or (
            not target.startswith("/")):
        raise NotImported("has no `request_method`, or no path as its `request_uri`")
    if base is None:
        base = Base("https", find(fields, "host"))
        if not base.authority:
            raise NotImported("has no field Host: give --base-url")
    body = octets(table.get("request_body"), "request_body")
    if PLACEHOLDER in body or PLACEHOLDER.decode() in target:
        name("its request has a placeholder of replayproxy, which no request matches: "
             "leave its place out in a route")
    status = table.get("response_status")
    if not isinstance(status, int) or not 100 <= status <= 999:
        raise NotImported(f"the status {status!r:.20} is none")
    chunks = chunks_of(table)
    return checked(Recording(
        request=make_request(
            method, f"{base.scheme}://{base.authority}{target}", fields, body),
        response=Response(
            status=status, chunks=chunks, head_us=chunks[0].at_us if chunks else 0,
            fields=fields_of(table.get("response_headers"), "response", name),
            messages=messages_of(table)),
        created_us=1000 * number_of(table.get("created_at_unix_ms", 0), "created_at")))


def fields_of(value: Any, side: str, name: Name) -> Fields:
    """Pairs of a name and octets, or a text."""
    if not isinstance(value, list):
        raise NotImported(f"has no `{side}_headers`")
    return read_fields([
        [pair[0], octets(pair[1], side) if isinstance(pair[1], list) else pair[1]]
        if isinstance(pair, list) and len(pair) == 2 else pair for pair in value],
        side, name)


def octets(value: Any, what: str) -> bytes:
    """Raises NotImported."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, list):
        try:
            return bytes(value)
        except (TypeError, ValueError):
            pass
    raise NotImported(f"{what}: is no list of octets")


def number_of(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (
            not 0 <= value < MOST_MS):
        raise NotImported(f"{what}: {value!r:.20} is no time in milliseconds")
    return value


def rows_of(table: dict[str, Any], key: str, index: str) -> list[dict[str, Any]]:
    """In the order of their numbers. Raises NotImported."""
    rows = table.get(key) or []
    if not isinstance(rows, list) or not all(
            isinstance(row, dict) and isinstance(row.get(index), int) for row in rows):
        raise NotImported(f"{key}: is no list of rows with `{index}`")
    return sorted(rows, key=lambda row: int(row[index]))


def chunks_of(table: dict[str, Any]) -> tuple[Chunk, ...]:
    """Returns the chunks of a stream if together they are the body; otherwise the body
    as one chunk."""
    body = octets(table.get("response_body"), "response_body")
    chunks = tuple(
        Chunk(number_of(row.get("offset_ms"), "offset_ms") * 1000,
              octets(row.get("chunk_body"), "chunk_body"))
        for row in rows_of(table, "response_chunks", "chunk_index"))
    if b"".join([chunk.data for chunk in chunks]) == body and body:
        return tuple(chunk for chunk in chunks if chunk.data)
    return (Chunk(0, body),) if body else ()


def messages_of(table: dict[str, Any]) -> tuple[Message, ...]:
    messages = []
    for row in rows_of(table, "websocket_frames", "frame_index"):
        side, kind = row.get("direction"), row.get("message_type")
        if side not in _SIDES or kind not in _KINDS:
            raise NotImported(f"a frame is {kind!r:.20} and {side!r:.20}")
        messages.append(Message(
            number_of(row.get("offset_ms"), "offset_ms") * 1000, _SIDES[side],
            _KINDS[kind], octets(row.get("payload"), "payload")))
    return tuple(messages)
