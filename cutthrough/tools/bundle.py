"""`cutthrough bundle`: makes a key, builds a bundle, verifies one. Nothing is sent."""

import argparse
import base64
import datetime
import sys
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from cutthrough.bundle.archive import build_bundle, read_bundle
from cutthrough.bundle.manifest import MOST_BYTES, BundleError
from cutthrough.config.bundles import parse_public_key
from cutthrough.config.files import naming
from cutthrough.config.values import show_count
from cutthrough.exchange.whole_file import write_file


def run(args: argparse.Namespace) -> int:
    """Runs `args.action`; returns the exit status."""
    action = {"key": make_key, "build": build, "verify": verify}[args.action]
    try:
        return action(args)
    except (BundleError, ValueError) as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cutthrough: {error.filename}: {error.strerror or error}",
              file=sys.stderr)
        return 1


def make_key(args: argparse.Namespace) -> int:
    key = Ed25519PrivateKey.generate()
    write_file(Path(args.file), key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    print(f'bundle_key = ["{public_text(key)}"]')
    return 0


def public_text(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes(
        Encoding.Raw, PublicFormat.Raw)).decode()


def build(args: argparse.Namespace) -> int:
    with naming(args.key), open(args.key, "rb") as file:
        text = file.read(1 << 16)
    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError):          # or it has a password
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BundleError(f"{args.key}: is no private key of Ed25519 in PEM")
    now = datetime.datetime.now(datetime.UTC)
    data = build_bundle(
        args.directory, key.sign, args.revision,
        int(time.time()) if args.serial is None else args.serial,
        f"{now:%Y-%m-%dT%H:%M:%SZ}", args.canary)
    bundle = read_bundle(data, [public_text(key)])      # as a host will
    # A program may poll it
    write_file(Path(args.output), data, over=True, mode=0o644)
    print(f"{args.output}: {bundle.manifest.label}, "
          f"{show_count(len(bundle.manifest.files), 'file')}, {len(data)} bytes")
    return 0


def verify(args: argparse.Namespace) -> int:
    try:
        keys = [parse_public_key(text) for text in args.key]
    except ValueError as error:
        raise BundleError(f"--key: {error}") from None
    with naming(args.file), open(args.file, "rb") as file:
        manifest = read_bundle(file.read(MOST_BYTES + 1), keys).manifest
    print(f"{args.file}: {manifest.label}, created {manifest.created}")
    for name, item in manifest.files.items():
        print(f"  {item.bytes:>9} {name}")
    if manifest.canary is not None:
        print(f"for {manifest.canary.percent} % of the hosts")
    if args.host is not None:
        print(f"{args.host} takes it" if manifest.is_for(args.host)
              else f"{args.host} waits for a later bundle")
    return 0
