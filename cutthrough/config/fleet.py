"""The options of limits that several programs share, and of the programs' registry."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from cutthrough.config.option import ConfigError, Option
from cutthrough.config.values import DURATION, FILE, FLAG, TEXT


class FleetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A part of Config, behind another: a msgspec.Struct has one base."""

    fleet_register: Annotated[bool, Option(
        FLAG, "register this program in the Redis of fleet_url, for `cutthrough fleet` "
        "and the verbs with --fleet: docs/fleet.md; it needs admin_token, which signs "
        "the entry", "our choice: a program alone is in no registry",
        section="Several hosts", swapped=True, of_program=True)] = False
    fleet_lease: Annotated[float, Option(
        DURATION._replace(low=0.5, high=600.0), "time after which a program that is "
        "gone leaves the registry; each writes its entry three times in it",
        "our choice: five seconds between two entries", swapped=True, of_program=True)
        ] = 15.0
    ticket_keys_file: Annotated[str, Option(
        FILE, "file with keys of TLS session tickets, the newest first, so that "
        "several hosts resume each other's sessions: docs/fleet.md", "none: each "
        "program makes keys of its own", swapped=True, of_program=True)] = ""
    share_credentials: Annotated[bool, Option(
        FLAG, "share verified credentials with the other hosts, through the Redis of "
        "fleet_url: docs/fleet.md; it needs credentials_key_file", "who has the key "
        "can let anybody in on every host", swapped=True, of_program=True)] = False
    credentials_key: Annotated[str, Option(
        TEXT, "key of what hosts share of credentials, 32 characters or more; ps shows "
        "flags, so prefer credentials_key_file", "none", file="credentials_key_file",
        swapped=True, of_program=True)] = ""
    credentials_key_file: Annotated[str, Option(
        FILE, "file with that key on one line", "none", swapped=True, of_program=True)
        ] = ""

    @property
    def shared_secret(self) -> str:
        """The key, if credentials are shared, else ""."""
        return self.credentials_key if self.share_credentials else ""


def contradictions_of_fleet(url: str, prefix: str, interval: float, expiry: float
                            ) -> Iterator[ConfigError]:
    """`interval`, `expiry`: seconds."""
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        yield ConfigError("", "fleet_url", "must be redis://host:port/db, the same "
                          "with rediss:// for TLS, or unix:///path")
    if not prefix:
        yield ConfigError("", "fleet_prefix", "is empty")
    if expiry < 5 * interval:
        yield ConfigError("", "fleet_expiry", "is less than five times "
                          "fleet_interval: one slow answer would drop the counts")
