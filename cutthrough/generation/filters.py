"""The filters of a policy: their modules are read, imported, and their classes made."""

from cutthrough.filters.breakpoints import Breakpoints
from cutthrough.filters.chains import Filters
from cutthrough.filters.stage import Stage, Tally, make_stage
from cutthrough.generation.hook import import_code
from cutthrough.policy.source import Filter, Policy, PolicyError


def make_filters(policy: Policy, tally: Tally | None = None,
                 breakpoints: Breakpoints | None = None,
                 hold_s: float = 30.0, refuses: bool = False) -> Filters | None:
    """Returns the filters that rules name; None: they name none, and have no
    breakpoint. `hold_s` and `refuses`: of breakpoints. Raises PolicyError."""
    named = {name for rule in policy.rules for name in rule.filters}
    if not named and not any(rule.breakpoint for rule in policy.rules):
        return None
    return Filters({name: _make(policy, name, policy.filters[name])
                    for name in policy.filters if name in named},
                   tally, breakpoints, hold_s, refuses)


def _make(policy: Policy, name: str, filter: Filter) -> Stage:
    module, _, attribute = filter.code.partition(":")
    try:
        made = getattr(import_code(module, policy.filter_code.get(module)), attribute)()
        return make_stage(name, made, filter.budget, filter.on_fault, filter.max_body)
    except SystemExit as error:         # sys.exit, argparse: no Exception
        reason = f"the module exits when it is imported (status {error})"
    except ModuleNotFoundError as error:
        reason = f"{error}; modules are searched for on PYTHONPATH"
    except Exception as error:          # the operator's code may raise anything
        reason = f"{type(error).__name__}: {error}"
    raise PolicyError(policy.source, f"filters.{name}.code", f"{filter.code}: {reason}")
