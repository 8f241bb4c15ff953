"""A bundle as one file: a tar (ustar), packed by gzip or not.

    manifest.json, manifest.sig, then each file of the manifest, in any order

The manifest and its signature come first, so that nothing is read, or inflated, behind
them before the signature has been verified. A member is a regular file; links, devices,
directories and headers of other kinds of tar are refused. The reader is our own,
because it reads its first members before there is a signature.
"""

import gzip
import hashlib
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from cutthrough.bundle.manifest import (
    MANIFEST,
    MOST_BYTES,
    MOST_FILES,
    MOST_MANIFEST,
    SIGNATURE,
    BundleError,
    Canary,
    File,
    Manifest,
    check_file,
    check_names,
    read_manifest,
)

BLOCK = 512
SIGNATURE_BYTES = 64
PIECE = 64 << 10
_OCTAL = re.compile(rb" *([0-7]{1,11})[ \0]*")
CUT_OFF = "is cut off"


class Bundle(NamedTuple):
    """A bundle whose signature and digests hold. `files`: contents by name, with those
    of the manifest and of its signature."""

    manifest: Manifest
    files: dict[str, bytes]


def read_bundle(data: bytes, keys: Sequence[str]) -> Bundle:
    """Reads a whole bundle. Raises BundleError."""
    if len(data) > MOST_BYTES:
        raise BundleError(f"has more than {MOST_BYTES} bytes")
    content = _Content(data)
    text = _member(content, MANIFEST, MOST_MANIFEST)
    signature = _member(content, SIGNATURE, SIGNATURE_BYTES)
    manifest = read_manifest(text, signature, keys)
    files = {MANIFEST: text, SIGNATURE: signature}
    while len(files) < len(manifest.files) + 2:
        header = content.header()
        if header is None:
            raise BundleError("has not every file of the manifest")
        name, size = header
        if name in files or name not in manifest.files:
            raise BundleError(f"{name}: is not in the manifest, or there twice")
        if size != manifest.files[name].bytes:
            raise BundleError(f"{name}: is not the file of the manifest")
        files[name] = content.member(size)
        check_file(name, files[name], manifest.files[name])
    if (header := content.header()) is not None:
        raise BundleError(f"{header[0]}: is not in the manifest, or there twice")
    return Bundle(manifest, files)


def _member(content: "_Content", name: str, most: int) -> bytes:
    header = content.header()
    if header is None or header[0] != name:
        raise BundleError(f"has to begin with {MANIFEST} and {SIGNATURE}")
    if header[1] > most:
        raise BundleError(f"{name}: has more than {most} bytes")
    return content.member(header[1])


class _Content:
    """The tar's octets, inflated only as far as they are read."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = memoryview(data), 0
        self._inflater = (
            zlib.decompressobj(zlib.MAX_WBITS | 16) if data[:2] == b"\x1f\x8b"
            else None)
        self._ready = bytearray()

    def header(self) -> tuple[str, int] | None:
        """The next member's name and size; None: the end of the archive."""
        block = self._read(BLOCK, at_end=True)
        if not any(block):                   # or nothing is left
            return None
        match = _OCTAL.fullmatch(block[148:156])
        if match is None or int(match[1], 8) != (
                sum(block[:148]) + 8 * ord(" ") + sum(block[156:])):
            raise BundleError("is neither a tar nor a tar packed by gzip")
        try:
            name = block[:100].rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise BundleError("a member's name is not ASCII") from None
        size = _OCTAL.fullmatch(block[124:136])
        if block[156:157] not in b"0\0" or size is None or any(block[345:500]):
            raise BundleError(f"{name!r:.120}: is no regular file with a short name")
        return name, int(size[1], 8)

    def member(self, size: int) -> bytes:
        content = self._read(size)
        self._read(-size % BLOCK)
        return content

    def _read(self, size: int, at_end: bool = False) -> bytes:
        """`at_end`: nothing, or less, may be left."""
        while len(self._ready) < size:
            piece = self._more()
            if not piece:
                if at_end and not self._ready:
                    return b""
                raise BundleError(CUT_OFF)
            self._ready += piece
        content = bytes(self._ready[:size])
        del self._ready[:size]
        return content

    def _more(self) -> bytes:
        """The next octets, at most PIECE; none: the end."""
        while True:
            if self._inflater is None:
                return self._take()
            packed = self._inflater.unconsumed_tail or self._take()
            try:
                piece = self._inflater.decompress(packed, PIECE)
            except zlib.error as error:
                raise BundleError(f"gzip: {error}") from None
            if piece or self._inflater.eof or not packed:
                return piece

    def _take(self) -> bytes:
        piece = bytes(self._data[self._at:self._at + PIECE])
        self._at += len(piece)
        return piece


def build_bundle(folder: str, sign: Callable[[bytes], bytes], revision: str,
                 serial: int, created: str, percent: int | None = None) -> bytes:
    """Makes the bundle of a directory: the same octets of the same arguments.

    `sign`: returns the Ed25519 signature. `revision`: "" for one made of the digests.
    Hidden files stay out. Raises BundleError and OSError.
    """
    contents = read_folder(folder)
    files = {name: File(hashlib.sha256(content).hexdigest(), len(content))
             for name, content in contents.items()}
    revision = revision or hashlib.sha256(msgspec.json.encode(files)).hexdigest()[:12]
    text = msgspec.json.format(msgspec.json.encode(Manifest(
        serial, revision, created, files,
        None if percent is None else Canary(percent)))) + b"\n"
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(
            fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in {
                MANIFEST: text, SIGNATURE: sign(text), **contents}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def read_folder(folder: str) -> dict[str, bytes]:
    """The contents of a directory's files by name, in order. Raises BundleError and
    OSError."""
    contents: dict[str, bytes] = {}
    for path, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            whole = os.path.join(path, name)
            if not stat.S_ISREG(os.stat(whole).st_mode):
                raise BundleError(f"{whole}: is no regular file")
            with open(whole, "rb") as file:
                contents[os.path.relpath(whole, folder)] = file.read(MOST_BYTES + 1)
            if sum(map(len, contents.values())) > MOST_BYTES:
                raise BundleError(f"the files have more than {MOST_BYTES} bytes")
            if len(contents) > MOST_FILES:
                raise BundleError(f"there are more than {MOST_FILES} files")
    check_names(contents)
    return contents


def _raise(error: OSError) -> None:
    raise error
