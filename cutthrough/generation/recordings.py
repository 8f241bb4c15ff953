"""The operator's hooks of recordings: an object with `on_record`, `on_replay` or both.

    on_record(recording) -> Recording | None      in the writer; None: it is not kept
    on_replay(request, recording) -> Response | None      in a worker; None: as it is
"""

import inspect
from typing import Any

from cutthrough.config.config import Config, ConfigError
from cutthrough.generation.filters import make_object
from cutthrough.policy.source import Policy

NAMES = ("on_record", "on_replay")


def make_hooks(config: Config, policy: Policy) -> Any:
    """Returns the object; None: there is none. Raises ConfigError."""
    name = config.recording_hooks
    if not name or not policy.records:
        return None
    made, reason = make_object(name, policy.code)
    if not reason:
        functions = [getattr(made, one, None) for one in NAMES]
        if not any(map(callable, functions)):
            reason = f"has neither {' nor '.join(NAMES)}"
        elif any(map(inspect.iscoroutinefunction, functions)):
            reason = "on_record and on_replay are no async functions"
    if reason:
        raise ConfigError("", "recording_hooks", f"{name}: {reason}")
    return made
