"""The access log of the past, in JSON lines, for those who ask what should have been.

Lines that are none of ours are counted and read over: a log may end in the middle of
one, and several programs may write to one file.
"""

import sys
from collections.abc import Iterator

import msgspec

from cutthrough.config.config import ConfigError

# What a policy refused, as opposed to everything that happened to what it let pass.
DENIED = frozenset(("destination_denied", "address_denied", "port_denied"))
# These came before a policy, or say that it could not be asked.
UNDECIDED = frozenset((
    "auth_required", "auth_failed", "auth_expired", "auth_throttled", "auth_timeout",
    "bad_credentials_field", "policy_unavailable", "loop_detected"))


class Line(msgspec.Struct, frozen=True):
    """What a decision needs of a line."""

    reason: str
    client: str
    user: str | None
    method: str
    host: str | None
    port: int
    peer: str | None = None
    rule: str = ""
    report: bool = False
    hook: str | None = None
    upgrade: bool = False

    @property
    def kind(self) -> str:
        """The method as rules have it: what offers to upgrade is a kind of its own."""
        return "UPGRADE" if self.upgrade else self.method

    @property
    def who(self) -> str:
        """The user as policy files have it: the log escapes octet by octet."""
        try:
            return (self.user or "").encode("latin-1").decode()
        except UnicodeError:
            return self.user or ""

    @property
    def place(self) -> str:
        """host:port, with brackets where that needs them."""
        host = self.host or "-"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class LogReader:
    """Iterates over the decided lines of the file `path`, "-" for standard input."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.read = self.unreadable = 0

    def __iter__(self) -> Iterator[Line]:
        """Raises ConfigError where nothing of the file is a line of ours."""
        decoder = msgspec.json.Decoder(Line)
        try:
            with open(0 if self.path == "-" else self.path, "rb",
                      closefd=self.path != "-") as file:
                for text in file:
                    if not text.strip():
                        continue
                    try:
                        line = decoder.decode(text)
                    except (msgspec.DecodeError, UnicodeError):
                        self.unreadable += 1
                        continue
                    self.read += 1
                    if line.user and line.host and line.reason not in UNDECIDED:
                        yield line
        except OSError as error:
            raise ConfigError(
                self.path, "", error.strerror or str(error)) from None
        if self.unreadable and not self.read:
            raise ConfigError(self.path, "", "no line of it is of an access log in "
                              "JSON: access_log_format = \"json\" makes them")

    def tell_unreadable(self) -> None:
        if self.unreadable:
            print(f"cutthrough: {self.path}: {self.unreadable} lines are none of an "
                  "access log in JSON", file=sys.stderr)
