"""The reported state of the fleet: the programs that share limits through Redis, and
those in its registry."""

from collections.abc import Mapping
from typing import NamedTuple

# Reasons for which an exchange with Redis fails
FAILURES = ("timeout", "connection", "refused", "error")


class FleetState(NamedTuple):
    """`steps`: exchanges that succeeded; `failures`: those that failed, by reason."""

    is_up: bool
    instances: int
    steps: int
    failures: Mapping[str, int]


class RegistryState(NamedTuple):
    """`is_registered`: this program's entry was written at the last attempt.
    `programs`: those whose lease ran then, this one included; 0: Redis is away.
    `expired`: leases that this program found ended. `renewals`: writes of the entry
    that succeeded; `failures`: those that failed, by reason."""

    is_registered: bool
    programs: int
    expired: int
    renewals: int
    failures: Mapping[str, int]
