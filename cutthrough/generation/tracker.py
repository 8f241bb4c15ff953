"""The activity tracker that a configuration names."""

from collections.abc import Mapping

from cutthrough.activity.calls import functions_of
from cutthrough.config.config import Config
from cutthrough.generation.operator_code import make_object
from cutthrough.policy.source import Code, PolicyError


def make_tracker(config: Config, code: Mapping[str, Code]) -> object | None:
    """`code`: the policy's. None: none is named. Raises PolicyError if it cannot be
    used."""
    if not config.activity_hook:
        return None
    tracker: object
    tracker, reason = make_object(config.activity_hook, code)
    if not reason:
        try:
            functions_of(tracker)
        except ValueError as error:
            reason = str(error)
    if reason:
        raise PolicyError("", "activity_hook", f"{config.activity_hook}: {reason}")
    return tracker
