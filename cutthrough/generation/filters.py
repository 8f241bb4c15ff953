"""The filters of a policy: their modules are read, imported, and their classes made."""

from cutthrough.config.mistake import raise_all
from cutthrough.filters.breakpoints import HOLDING, Breakpoints, Holding
from cutthrough.filters.chains import Filters
from cutthrough.filters.stage import Stage, Tally, make_stage
from cutthrough.generation.operator_code import make_object
from cutthrough.policy.source import Filter, Policy, PolicyError


def make_filters(policy: Policy, tally: Tally | None = None,
                 breakpoints: Breakpoints | None = None,
                 holding: Holding = HOLDING) -> Filters | None:
    """Returns the filters that rules name; None: they name none, and have no
    breakpoint. `holding`: of breakpoints. Raises PolicyError."""
    named = {name for rule in policy.rules for name in rule.filters}
    if not named and not any(rule.breakpoint for rule in policy.rules):
        return None
    return Filters(_stages(policy, named), tally, breakpoints, holding)


def _stages(policy: Policy, named: set[str]) -> dict[str, Stage]:
    stages = {name: _make(policy, name, policy.filters[name])
              for name in policy.filters if name in named}
    raise_all([
        PolicyError(rule.source, "filters", f"{name!r} may change the bodies of "
                    "requests, and hides what it adds, so nothing could be recorded: "
                    f"set shown = true in [filters.{name}], or drop `recording`")
        for rule in policy.rules if rule.recording for name in rule.filters
        if stages[name].on_request_body and not stages[name].shown])
    return stages


def _make(policy: Policy, name: str, filter: Filter) -> Stage:
    handler, reason = make_object(filter.code, policy.code)
    if not reason:
        try:
            return make_stage(
                name, handler, filter.budget, filter.on_fault, filter.max_body,
                filter.shown)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
    raise PolicyError(policy.source, f"filters.{name}.code", f"{filter.code}: {reason}")
