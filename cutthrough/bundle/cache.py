"""Bundles on disk: a directory for each, by its serial, and two links.

    current    read by a reload
    good       the last bundle in force; `current` returns to it

The files keep their manifest and signature, so that a start can verify them again.
Links are replaced by rename(2): a reader sees the old bundle or the new one.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence

from cutthrough.bundle.archive import Bundle
from cutthrough.bundle.manifest import (
    MANIFEST,
    SIGNATURE,
    BundleError,
    Manifest,
    check_file,
    parse_manifest,
    read_manifest,
)

CURRENT, GOOD = "current", "good"


class Cache:
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self) -> None:
        """Makes the directory if it does not exist. Raises OSError, and BundleError if
        others could change the files."""
        os.makedirs(self.directory, 0o700, exist_ok=True)
        if stat.S_IMODE(os.stat(self.directory).st_mode) & 0o022:
            raise BundleError(f"{self.directory}: other users can write there")

    def manifest(self, link: str) -> Manifest | None:
        """Returns the manifest of the link's bundle; None if there is none. Raises
        BundleError."""
        try:
            return parse_manifest(self._read(link, MANIFEST))
        except OSError:
            return None

    def verify(self, link: str, keys: Sequence[str]) -> Manifest | None:
        """The same, with signature and files compared. Raises BundleError."""
        try:
            manifest = read_manifest(
                self._read(link, MANIFEST), self._read(link, SIGNATURE), keys)
            for name, file in manifest.files.items():
                check_file(name, self._read(link, name), file)
        except FileNotFoundError:
            if not os.path.lexists(self._path(link)):
                return None
            raise BundleError("files are missing") from None
        except OSError as error:
            raise BundleError(error.strerror or str(error)) from None
        return manifest

    def holds(self, link: str, bundle: Bundle) -> bool:
        """Whether the link names this very bundle."""
        try:
            return self._read(link, MANIFEST) == bundle.files[MANIFEST]
        except OSError:
            return False

    def unpack(self, bundle: Bundle) -> None:
        """Writes the files, and removes bundles without a link. Raises OSError."""
        self._remove_others()
        folder = tempfile.mkdtemp(prefix=".new-", dir=self.directory)
        try:
            for name, content in bundle.files.items():
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(fd, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(fd)
            self._put(folder, self._path(str(bundle.manifest.serial)))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _put(self, folder: str, path: str) -> None:
        """Renames it. A damaged bundle of the same serial is removed."""
        if os.path.lexists(path):
            os.rename(path, f"{folder}-old")
        os.rename(folder, path)
        shutil.rmtree(f"{folder}-old", ignore_errors=True)

    def point(self, link: str, serial: int) -> None:
        """Has the link name the bundle of this serial. Raises OSError."""
        temporary = self._path(f".{link}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(str(serial), temporary)
        os.rename(temporary, self._path(link))

    def _remove_others(self) -> None:
        kept = {os.readlink(self._path(link)) for link in (CURRENT, GOOD)
                if os.path.islink(self._path(link))}
        for entry in os.listdir(self.directory):
            if entry not in kept and (entry.isdecimal() or entry.startswith(".new-")):
                shutil.rmtree(self._path(entry))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _read(self, link: str, name: str) -> bytes:
        with open(os.path.join(self.directory, link, name), "rb") as file:
            return file.read()
