"""The options of signed bundles of configuration: docs/bundles.md."""

import base64
import os
import re
from collections.abc import Iterator
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from cutthrough.config.fleet import FleetOptions
from cutthrough.config.option import ConfigError, Option
from cutthrough.config.values import DAY, DURATION, FILE, TEXT, Kind, is_loopback

FORM = "must be https://host/path, file:/path, or http:// to this host's loopback"
# RFC 9110 section 5; a value has no control characters
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*[!-~](?:[ -~]*[!-~])?")
KEY_BYTES = 32


def parse_public_key(text: str) -> str:
    """Reads an Ed25519 public key in base64."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError("is no Ed25519 public key in base64, as `cutthrough bundle "
                         "key` prints it")
    return base64.b64encode(key).decode()


def check_url(url: str) -> str:
    """The reason why no bundle comes from there, without a part of the URL (R37); "":
    it may."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return FORM
    if parts.scheme == "file":
        return "" if parts.path.startswith("/") and url == (
            f"file:{'//' * url.startswith('file:///')}{parts.path}") else FORM
    if "@" in parts.netloc:
        return "has a user: give credentials by bundle_header_file"
    if not host or parts.fragment or re.fullmatch(r"[!-~]+", url) is None:
        return FORM
    if parts.scheme == "http":
        return "" if _is_here(host) else f"{FORM}: others could hold bundles back"
    return "" if parts.scheme == "https" else FORM


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or is_loopback(host)
    except ValueError:                       # a name
        return False


class BundleSource(NamedTuple):
    """The source of bundles, the key of their signatures, and their directory. The
    fields are those of BundleOptions without `bundle_`."""

    url: str
    key: tuple[str, ...]
    header: str
    ca: str
    cache: str


class BundleOptions(FleetOptions, frozen=True, kw_only=True):
    """A part of Config."""

    bundle_url: Annotated[str, Option(
        TEXT._replace(metavar="URL"), "signed bundle of configuration, policy, lists "
        "and users: https:// or file:/path, docs/bundles.md; a URL may be a secret, so "
        "prefer bundle_url_file then", "none: files of this host alone",
        section="Bundles", file="bundle_url_file", stand_in="https://localhost/",
        swapped=True, of_program=True)] = ""
    bundle_url_file: Annotated[str, Option(
        FILE, "file with the URL on one line", "none",
        swapped=True, of_program=True)] = ""
    bundle_key: Annotated[tuple[str, ...], Option(
        Kind("KEY", parse_public_key, many=True), "Ed25519 public keys in base64; a "
        "bundle needs the signature of one", "none: required",
        swapped=True, of_program=True)] = ()
    bundle_header: Annotated[str, Option(
        TEXT, "field of requests for it, such as Authorization: Bearer …; prefer "
        "bundle_header_file", "none", file="bundle_header_file",
        stand_in="Authorization: -", swapped=True, of_program=True)] = ""
    bundle_header_file: Annotated[str, Option(
        FILE, "file with the field on one line", "none",
        swapped=True, of_program=True)] = ""
    bundle_ca: Annotated[str, Option(
        FILE, "authorities in PEM that verify its server", "the system's",
        swapped=True, of_program=True)] = ""
    bundle_interval: Annotated[float, Option(
        DURATION._replace(low=0.1, high=DAY), "time between two requests for it; up to "
        "a fifth less, by chance", "100 hosts have a bundle within 10 s, by 25 "
        "requests a second", swapped=True, of_program=True)] = 5.0
    bundle_cache: Annotated[str, Option(
        FILE._replace(metavar="DIR"), "directory of this program for bundles; the one "
        "in force is DIR/current", "none: required", swapped=True,
        of_program=True)] = ""

    @property
    def bundle_source(self) -> BundleSource:
        return BundleSource(
            *(getattr(self, f"bundle_{name}") for name in BundleSource._fields))

    @property
    def bundle_current(self) -> str:
        """The directory of the bundle in force; "": there are no bundles."""
        return current_of(self.bundle_cache) if self.bundle_url else ""


def current_of(cache: str) -> str:
    return os.path.join(cache, "current")


def check_source(source: BundleSource) -> Iterator[ConfigError]:
    if not source.url:
        return
    if reason := check_url(source.url):
        yield ConfigError("", "bundle_url", reason)
    if not source.key:
        yield ConfigError("", "bundle_url", "needs bundle_key: who may sign bundles")
    if not source.cache:
        yield ConfigError("", "bundle_url", "needs bundle_cache: a directory")
    if source.header and _FIELD.fullmatch(source.header) is None:
        yield ConfigError("", "bundle_header", "is not Name: value")
