"""The result of a check, and the host as the checks read it.

A check returns findings and changes nothing. `ok`: as it should be. `note`: could be
better, or worth knowing; nothing is wrong. `warn`: will fail when the load is high, or
shows others more than they should see. `fail`: does not work.
"""

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from cutthrough.config.config import Config
from cutthrough.config.settings import Settings
from cutthrough.policy.source import Policy

Verdict = Literal["ok", "note", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    verdict: Verdict
    seen: str
    wanted: str = ""
    advice: str = ""                     # a command, or what to change, and why
    section: str = ""


class Case(NamedTuple):
    """The subject of the checks: a configuration on a host."""

    config: Config
    policy: Policy
    settings: Settings
    config_file: str                     # "": none
    workers: int
    host: "Host"

    @property
    def exposed(self) -> bool:
        return not self.config.loopback


class Host:
    """Files of the kernel; `root` stands for / in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        """A file's text with single spaces; None if it cannot be read."""
        try:
            return " ".join((self.root / path.lstrip("/")).read_text().split())
        except (OSError, ValueError):
            return None

    def lines(self, path: str) -> list[str]:
        try:
            return (self.root / path.lstrip("/")).read_text().splitlines()
        except (OSError, ValueError):
            return []

    def number(self, path: str) -> int | None:
        text = self.text(path)
        return int(text) if text is not None and text.lstrip("-").isdigit() else None

    def may(self, *capabilities: int) -> bool:
        """Whether this process has one of these capabilities on the host: those that it
        has in a user namespace of its own are of nothing that is the host's."""
        if self.text("proc/self/uid_map") not in (None, "0 0 4294967295"):
            return False
        for line in self.lines("proc/self/status"):
            if line.startswith("CapEff:"):
                held = int(line.split()[1], 16)
                return any(held >> bit & 1 for bit in capabilities)
        return False

    def sysctl(self, key: str) -> str | None:
        return self.text("proc/sys/" + key.replace(".", "/"))
