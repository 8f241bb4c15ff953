"""The filters of a policy: their modules are read, imported, and their classes made."""

from collections.abc import Mapping
from typing import Any

from cutthrough.filters.breakpoints import HOLDING, Breakpoints, Holding
from cutthrough.filters.chains import Filters
from cutthrough.filters.stage import Stage, Tally, make_stage
from cutthrough.generation.hook import import_code
from cutthrough.policy.source import Code, Filter, Policy, PolicyError


def make_filters(policy: Policy, tally: Tally | None = None,
                 breakpoints: Breakpoints | None = None,
                 holding: Holding = HOLDING) -> Filters | None:
    """Returns the filters that rules name; None: they name none, and have no
    breakpoint. `holding`: of breakpoints. Raises PolicyError."""
    named = {name for rule in policy.rules for name in rule.filters}
    if not named and not any(rule.breakpoint for rule in policy.rules):
        return None
    return Filters({name: _make(policy, name, policy.filters[name])
                    for name in policy.filters if name in named},
                   tally, breakpoints, holding)


def _make(policy: Policy, name: str, filter: Filter) -> Stage:
    made, reason = make_object(filter.code, policy.code)
    if not reason:
        try:
            return make_stage(
                name, made, filter.budget, filter.on_fault, filter.max_body,
                filter.shown)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
    raise PolicyError(policy.source, f"filters.{name}.code", f"{filter.code}: {reason}")


def make_object(name: str, known: Mapping[str, Code]) -> tuple[Any, str]:
    """What `module:Class` makes, of the code that was read with the generation; and the
    reason if that cannot be."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_code(module, known.get(module)), attribute)(), ""
    except SystemExit as error:         # sys.exit, argparse: no Exception
        return None, f"the module exits when it is imported (status {error})"
    except ModuleNotFoundError as error:
        return None, f"{error}; modules are searched for on PYTHONPATH"
    except Exception as error:          # the operator's code may raise anything
        return None, f"{type(error).__name__}: {error}"
