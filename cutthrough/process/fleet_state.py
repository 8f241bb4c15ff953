"""The reported state of the fleet: the programs that share limits through Redis."""

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
