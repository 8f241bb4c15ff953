"""Reads an access log in JSON lines, for `explain --log` and `suggest`.

Other lines are counted and skipped, because a log may end in the middle of a line, and
several programs may write to one file.
"""

import os
import stat
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import msgspec

from cutthrough.config.config import ConfigError
from cutthrough.exchange.flow import TUNNEL_METHODS

# The refusals of a policy by a tunnel's first bytes, and all of them.
BY_OPENING = frozenset((
    "protocol_denied", "sni_denied", "ja4_denied", "tls_refused"))
DENIED = BY_OPENING | {
    "destination_denied", "path_denied", "address_denied", "port_denied"}
# The refusals before a policy's decision, or without one.
UNDECIDED = frozenset((
    "auth_required", "auth_failed", "auth_expired", "auth_throttled", "auth_timeout",
    "bad_credentials_field", "policy_unavailable", "loop_detected", "misdirected",
    "peek_timeout"))


# Bytes of a line, which has fields of requests; and of a file's begin without a line of
# an access log: what follows may have no end
MOST_LINE, MOST_STRANGE = 1 << 20, 16 << 20

# At the end of a value that is cut
_CUT = "\u2026"


class Line(msgspec.Struct, frozen=True):
    """The fields of a line that a decision needs."""

    reason: str
    client: str
    user: str | None
    method: str
    host: str | None
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    url: str = ""
    peer: str | None = None
    rule: str = ""
    report: bool = False
    hook: str | None = None
    upgrade: bool = False
    tunnel_protocol: str = ""   # "": the first bytes were not looked at
    sni: str = ""
    ja4: str = ""
    client_ja4: str = ""
    http2_fingerprint: str = ""
    origin: str = ""            # server of a named origin; "": it was for none
    proxy_tlvs: dict[str, str] = {}

    @property
    def is_decided(self) -> bool:
        """Whether rules, floor or ports have decided. Without a user, who is nobody on
        a listener without authentication, the line must show that."""
        return bool(self.host) and self.reason not in UNDECIDED and bool(
            self.user or self.rule or self.peer or self.reason in DENIED)

    @property
    def kind(self) -> str:
        """The method in the terms of rules: an offer to upgrade is UPGRADE, and SOCKS
        or a transparent tunnel a CONNECT."""
        if self.upgrade:
            return "UPGRADE"
        return "CONNECT" if self.method in TUNNEL_METHODS else self.method

    @property
    def path(self) -> bytes | None:
        """Path and query of a plain request; None: it has none, or the line has not
        all of it. The log escapes octet by octet."""
        _, _, rest = self.url.partition("://")
        host, slash, path = rest.partition("/")
        if not slash and host.endswith("*"):
            return b"*"
        if not slash or path.endswith(_CUT):
            return None
        return (slash + path).encode("latin-1", "replace")

    @property
    def who(self) -> str:
        """The user in the form of policy files: the log escapes octet by octet."""
        try:
            return (self.user or "").encode("latin-1").decode()
        except UnicodeError:
            return self.user or ""

    @property
    def place(self) -> str:
        """host:port, with brackets around an IPv6 address."""
        host = self.host or "-"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class LogReader:
    """Iterates over the lines with a decision in the file `path`; "-": standard input.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.read = self.unreadable = 0

    def __iter__(self) -> Iterator[Line]:
        """Raises ConfigError if no line of the file is of an access log."""
        decoder = msgspec.json.Decoder(Line)
        try:
            with open(0 if self.path == "-" else self.path, "rb",
                      closefd=self.path != "-") as file:
                for text in self._lines(file):
                    try:
                        line = decoder.decode(text)
                    except (msgspec.DecodeError, UnicodeError):
                        self.unreadable += 1
                        continue
                    self.read += 1
                    if line.is_decided:
                        yield line
        except OSError as error:
            raise ConfigError(
                self.path, "", error.strerror or str(error)) from None
        if self.unreadable and not self.read:
            raise ConfigError(self.path, "", "has no line of an access log in JSON: "
                              "set access_log_format = \"json\"")

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """The lines that are not blank; of one that is too long its first part alone.
        Ends early if the file cannot be an access log. Raises ConfigError."""
        if is_endless(file.fileno()):
            raise ConfigError(self.path, "", "is a device, not a file")
        total, is_begun = 0, False
        while text := file.readline(MOST_LINE):
            total += len(text)
            if total > MOST_STRANGE and not self.read:
                return
            if text.strip() and not is_begun:
                yield text
            is_begun = not text.endswith(b"\n")

    def tell_unreadable(self) -> None:
        if self.unreadable:
            print(f"cutthrough: {self.path}: {self.unreadable} lines are not of an "
                  "access log in JSON", file=sys.stderr)


def is_endless(fd: int) -> bool:
    """Is it a device such as /dev/zero? A terminal has an end, by ^D."""
    status = os.fstat(fd)
    return (stat.S_ISCHR(status.st_mode) and status.st_rdev != os.makedev(1, 3)
            and not os.isatty(fd)) or stat.S_ISBLK(status.st_mode)
