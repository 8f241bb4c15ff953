"""The options of the admin listener, and `[admin_tokens.NAME]`: the rights of tokens.

`admin_token` has every right; a row has those that it names: docs/admin.md.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from cutthrough.config.bundles import BundleOptions, check_source
from cutthrough.config.mistake import raise_all
from cutthrough.config.option import ConfigError, Option, Table
from cutthrough.config.values import (
    ADMIN,
    FILE,
    FLAG,
    NAMES,
    TEXT,
    Kind,
    is_loopback,
    is_placeholder,
    parse_host,
    show_address,
    split_address,
)

# See cutthrough/admin/rights.py for the extent of each
RIGHTS = ("read", "flows", "breakpoints", "recordings", "operate")


# Of Basic authentication (RFC 7617), as the replies of wire.reply have it
REALM = "cutthrough"
_REALM = re.compile(r"[ !#-\[\]-~]{1,64}")


def parse_realm(text: str) -> str:
    """Reads a text that stands between quotes as it is (RFC 9110 section 5.6.4)."""
    if not _REALM.fullmatch(text):
        raise ValueError(f"{text!r} is not 1 to 64 characters of ASCII, without quotes "
                         "and backslashes")
    return text


def parse_right(text: str) -> str:
    if text not in RIGHTS:
        raise ValueError(f"{text!r} is not one of {', '.join(RIGHTS)}")
    return text


def parse_public(text: str) -> str:
    """Reads `http://host[:port]`, the same with https, or nothing; returns it with its
    port."""
    if not text:
        return ""
    scheme, mark, where = text.removesuffix("/").partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in ("http", "https"):
        raise ValueError(f"{text!r} is not http://host:port or https://host:port")
    if where.endswith("]") or ":" not in where:
        where += ":443" if scheme == "https" else ":80"
    host, port = split_address(where)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = parse_host(host)
    if not port:
        raise ValueError(f"{text!r}: port 0 is none that others can reach")
    return f"{scheme}://{show_address((host, port))}"


class AdminToken(msgspec.Struct, frozen=True, kw_only=True):
    """One token with rights of its own; valid once it exists."""

    name: str
    token: Annotated[str, Option(
        TEXT, "the token", "none", file="token_file", swapped=True)] = ""
    token_file: Annotated[str, Option(
        FILE, "file with the token on one line", "none: required", swapped=True)] = ""
    rights: Annotated[tuple[str, ...], Option(
        Kind("RIGHT", parse_right, many=True), "what its owner may do: "
        "`read` captured requests and recordings, change `flows` or send them again, "
        "decide at `breakpoints`, change `recordings` and their mode, `operate` "
        "(reload, drain, close connections)", "captured requests and recordings alone",
        swapped=True)] = ("read",)

    def __post_init__(self) -> None:
        raise_all([*self._contradictions()])

    def _contradictions(self) -> Iterator[ConfigError]:
        if not self.token:
            yield ConfigError("", "token_file", "is missing or empty")
        if not self.rights:
            yield ConfigError("", "rights", "are none")


class AdminOptions(BundleOptions, frozen=True, kw_only=True):
    """A part of Config."""

    admin: Annotated[str, Option(
        ADMIN, "address of the admin listener: docs/admin.md; beyond loopback it "
        "requires admin_token", "off: no listener unless it is configured (R39)",
        section="Administration", swapped=True, of_program=True)] = "off"
    admin_token: Annotated[str, Option(
        TEXT, "token for all changes by the admin listener; ps shows flags, so prefer "
        "admin_token_file", "none: the admin listener changes nothing",
        file="admin_token_file", swapped=True, of_program=True)] = ""
    admin_token_file: Annotated[str, Option(
        FILE, "file with the token on one line", "none",
        swapped=True, of_program=True)] = ""
    admin_tokens: Annotated[tuple[AdminToken, ...], Table(
        AdminToken, "Further tokens for the admin listener, each with rights of its "
        "own: docs/admin.md.", named=True, swapped=True, of_program=True)] = ()
    admin_names: Annotated[tuple[str, ...], Option(
        NAMES, "host names of the admin listener, beside localhost and addresses",
        "none: under another name a page may have been rebound to it (R39)",
        swapped=True, of_program=True)] = ()
    admin_public: Annotated[str, Option(
        Kind("URL", parse_public), "the admin listener as other hosts reach it, "
        "http://host:port, or https:// if TLS is in front: docs/fleet.md",
        "admin, unless that is loopback, a unix socket or every address",
        swapped=True, of_program=True)] = ""
    ca_certificate: Annotated[str, Option(
        FILE, "certificate of an authority in PEM, which the admin listener offers at "
        "/ca: docs/ca.md", "none", swapped=True, of_program=True)] = ""
    rule_metrics: Annotated[bool, Option(
        FLAG, "count requests by the rule that decided and by the user's groups, for "
        "the metrics: docs/admin.md", "a request takes a microsecond more",
        swapped=True)] = False
    realm: Annotated[str, Option(
        Kind("TEXT", parse_realm), "the realm of the challenge to a client without "
        "credentials, which a browser shows in its prompt", "the program's name",
        swapped=True)] = REALM
    error_pages: Annotated[str, Option(
        FILE._replace(metavar="DIR"), "directory of contents for refusals: "
        "REASON.html, 403.txt, default.json: docs/endings.md", "a line of text",
        swapped=True)] = ""

    @property
    def admin_exposed(self) -> bool:
        """Whether other hosts can reach the admin listener."""
        return not (self.admin == "off" or self.admin.startswith("unix:")
                    or is_loopback(split_address(self.admin)[0]))

    def contradictions_of_administration(self) -> Iterator[ConfigError]:
        yield from check_source(self.bundle_source)
        if self.admin_exposed and not (self.admin_token or self.admin_tokens):
            yield ConfigError("", "admin", f"{self.admin} is not loopback: give "
                              "--admin-token-file")
        if self.admin_exposed and is_placeholder(self.admin_token, token=True):
            yield ConfigError("", "admin_token", "is a well-known placeholder, and "
                              f"{self.admin} is not loopback: make a token with "
                              "`openssl rand -hex 32`")
        owners = {self.admin_token: "admin_token"} if self.admin_token else {}
        for row in self.admin_tokens:
            path = row.name, "token_file"
            if self.admin_exposed and is_placeholder(row.token, token=True):
                yield ConfigError("", "admin_tokens", "has a well-known placeholder, "
                                  f"and {self.admin} is not loopback", path=path)
            if row.token != "-" and row.token in owners:    # -: the file was not read
                yield ConfigError("", "admin_tokens", "is the token of "
                                  f"{owners[row.token]}, too", path=path)
            owners[row.token] = row.name
