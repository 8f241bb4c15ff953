"""What is reported of the fleet: the programs that share limits through Redis."""

from collections.abc import Mapping
from typing import NamedTuple

# Why a step of the fleet's may fail
FAILURES = ("timeout", "connection", "refused", "error")


class FleetState(NamedTuple):
    """How it stands with the fleet. `failures`: steps that failed, by reason."""

    is_up: bool
    instances: int
    steps: int
    failures: Mapping[str, int]
