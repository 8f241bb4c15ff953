"""A session of recordings as one file, over HTTP.

    GET  /sessions/NAME/export        a tar of the directory that `recordings export`
                                      writes, in JSON
    POST /sessions/NAME/import        such a tar: adds what is in it; the session is
                                      made if it does not exist

Both have 64 MiB at most, because they are in memory; the verbs take more. The key of
hashes is in no archive: import says if its hashes were made with another one.
"""

import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.sessions import key_file
from cutthrough.recording.sessions.folder import (
    FILE,
    MANIFEST,
    TooLong,
    read_folder,
    read_key_check,
    write_folder,
)
from cutthrough.recording.sessions.session import AnySession, AnySessions

MOST_BYTES = 64 << 20
TOO_LONG = (f"the session's archive has more than {MOST_BYTES >> 20} MiB: use "
            "cutthrough recordings export")
BATCH = 1000


def write_archive(session: AnySession, directory: str) -> bytes:
    """Raises OSError, StoreError, and ValueError for a session that is too large."""
    hashed = session.manifest.redaction.hashed
    with tempfile.TemporaryDirectory() as name:        # its owner's alone
        folder = Path(name)
        try:
            write_folder(folder, session.manifest, session.recordings(), "json",
                         key_file.check_of_directory(directory) if hashed else "",
                         MOST_BYTES)
        except TooLong:
            raise ValueError(TOO_LONG) from None
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=without_owner)
                if file.tell() > MOST_BYTES:
                    raise ValueError(TOO_LONG)
    return file.getvalue()


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def read_archive(sessions: AnySessions, session: str, directory: str, data: bytes
                 ) -> dict[str, Any]:
    """Returns how many were added, and whether hashes have another key. Raises
    NotImported, OSError and StoreError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack_into(folder, data)
        manifest, recordings = read_folder(folder)
        check = read_key_check(folder)
    opened = (sessions.open(session) if session in sessions.names()
              else sessions.create(session, manifest))
    try:
        added = sum(len(opened.add(recordings[at:at + BATCH]))
                    for at in range(0, len(recordings), BATCH))
    finally:
        opened.close()
    return {"added": added, "other_key": bool(
        check and check != key_file.check_of_directory(directory)
        and key_file.has_hashes(recordings))}


def unpack_into(folder: Path, data: bytes) -> None:
    """The files of an export alone: no directories, links or other names, and none
    that is longer than its octets in the archive. Raises NotImported and OSError."""
    left = len(data)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                left -= member.size
                file = archive.extractfile(member) if (
                    member.isreg() and not member.issparse()
                    and member.size >= 0 and left >= 0) else None
                if file is None or not (member.name == MANIFEST or (
                        FILE.fullmatch(member.name) and member.name.endswith(".json"))):
                    raise NotImported(f"{member.name!r:.100} is no file of an export "
                                      "in JSON")
                (folder / member.name).write_bytes(file.read())
    except NotImported:
        raise
    # By its numbers and its headers of headers, tarfile raises whatever it is
    except (tarfile.TarError, ValueError, ArithmeticError, RecursionError) as error:
        raise NotImported(f"it is no tar: {error}") from None
    if not (folder / MANIFEST).exists():
        raise NotImported(f"it has no {MANIFEST}")
