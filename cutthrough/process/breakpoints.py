"""An operator's decision about a message at a breakpoint, as the admin API has it."""

from typing import Literal

import msgspec

# Seconds for which breakpoints may be armed: an operator who has gone arms no more
MOST_ARMED = 3600.0


class Arming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how many seconds breakpoints are heeded; 0: not any more."""

    seconds: float


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None: unchanged. `hold_body`: it is held again when its body is there."""

    action: Literal["pass", "edit", "abort"]
    method: str | None = None
    path: str | None = None
    status: int | None = None
    fields: tuple[tuple[str, str], ...] | None = None
    body: bytes | None = None
    hold_body: bool = False
