"""The manifest of a bundle: it is signed, and names files and hosts.

    {"serial": 17, "revision": "2026-11-29.1", "created": "2026-11-29T08:00:00Z",
     "files": {"policy.toml": {"sha256": "…", "bytes": 412}}, "canary": {"percent": 5}}

The signature is Ed25519 (RFC 8032) over the manifest's octets; through the digests it
covers every file. Nothing of a bundle is interpreted before it has been verified.
"""

import base64
import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Annotated, NamedTuple

import msgspec

# Most bytes of a packed bundle, and of its files together
MOST_BYTES = 32 << 20
MOST_FILES = 1024
# Bytes of a manifest: MOST_FILES long names, with their digests
MOST_MANIFEST = 512 << 10
# Bytes of a name: the field of ustar(5)
MOST_NAME = 100

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
# No part begins with a dot: neither ".." nor a hidden file
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class BundleError(ValueError):
    """A bundle that cannot be used: the reason."""


class Label(NamedTuple):
    """Names a bundle for people, and orders it; no bundle: `NO_LABEL`."""

    revision: str = ""
    serial: int = 0

    def __str__(self) -> str:
        return f"revision {self.revision} (serial {self.serial})"


NO_LABEL = Label()


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]


class Canary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True,
               omit_defaults=True):
    """An unknown field is an error: it may be a condition that this program would
    ignore."""

    serial: Annotated[int, msgspec.Meta(ge=1, le=(1 << 53) - 1)]
    revision: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._+-]{1,64}\Z")]
    created: Annotated[str, msgspec.Meta(max_length=64)]
    files: Annotated[dict[str, File], msgspec.Meta(max_length=MOST_FILES)]
    canary: Canary | None = None

    @property
    def label(self) -> Label:
        return Label(self.revision, self.serial)

    def is_for(self, host: str) -> bool:
        """Whether the host of this name takes the bundle now. If `percent` grows and
        the revision stays, no host leaves."""
        if self.canary is None:
            return True
        digest = hashlib.sha256(f"{host}\0{self.revision}".encode()).digest()
        return int.from_bytes(digest[:8], "big") * 100 >> 64 < self.canary.percent


def read_manifest(data: bytes, signature: bytes, keys: Sequence[str]) -> Manifest:
    """`keys`: Ed25519 public keys in base64, one of which has to have signed it. Raises
    BundleError."""
    if not any(is_signed(data, signature, key) for key in keys):
        raise BundleError("the signature is of none of the keys of bundle_key")
    return parse_manifest(data)


def parse_manifest(data: bytes) -> Manifest:
    """Raises BundleError."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BundleError(f"{MANIFEST}: {error}") from None
    check_names(manifest.files)
    if sum(file.bytes for file in manifest.files.values()) > MOST_BYTES:
        raise BundleError(f"the files have more than {MOST_BYTES} bytes")
    return manifest


def check_names(names: Collection[str]) -> None:
    """Raises BundleError if a name could leave the bundle's directory, or is both a
    file and a directory."""
    for name in names:
        if len(name) > MOST_NAME or NAME.fullmatch(name) is None:
            raise BundleError(f"{name!r:.120}: names have letters, digits, dots, - and "
                              f"_, no part begins with a dot, {MOST_NAME} at most")
        if name in (MANIFEST, SIGNATURE):
            raise BundleError(f"{name}: is no name for a file")
        parts = name.split("/")
        if any("/".join(parts[:count]) in names for count in range(1, len(parts))):
            raise BundleError(f"{name}: is below a file")


def check_file(name: str, content: bytes, file: File) -> None:
    """Raises BundleError."""
    if len(content) != file.bytes or hashlib.sha256(content).hexdigest() != file.sha256:
        raise BundleError(f"{name}: is not the file of the manifest")


def is_signed(data: bytes, signature: bytes, key: str) -> bool:
    # Imported here: most programs have no bundle, and it adds 7 MB
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(key)).verify(
            signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
