"""A table of `[filters.NAME]`: the class of a filter, and how it may run."""

import re
from collections.abc import Callable
from typing import Any, NoReturn

from cutthrough.config.values import parse_duration, parse_size
from cutthrough.policy.source import Filter

_CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
# A whole body is held twice, raw and decoded
MOST_BODY = 1 << 28
MOST_BUDGET = 600.0


def read_filter(table: dict[str, Any], fail: Callable[[str, str], NoReturn]) -> Filter:
    """Returns the filter of one table. `fail` raises, for a key and a reason."""
    if "code" not in table:
        fail("code", "is missing: module:Class")
    return Filter(**{key: _READ[key](key, value, fail) for key, value in table.items()
                     if key in _READ})


def _code(key: str, value: Any, fail: Callable[[str, str], NoReturn]) -> str:
    if isinstance(value, str) and _CODE.fullmatch(value):
        return value
    return fail(key, f"{value!r} is not module:Class")


def _budget(key: str, value: Any, fail: Callable[[str, str], NoReturn]) -> float:
    try:
        seconds = parse_duration(value) if isinstance(value, str) else 0.0
    except ValueError as error:
        fail(key, str(error))
    if 0 < seconds <= MOST_BUDGET:
        return seconds
    return fail(key, "takes a duration up to 10m, such as \"50ms\"")


def _on_fault(key: str, value: Any, fail: Callable[[str, str], NoReturn]) -> Any:
    return value if value in ("refuse", "pass") else fail(
        key, "takes \"refuse\" or \"pass\"")


def _max_body(key: str, value: Any, fail: Callable[[str, str], NoReturn]) -> int:
    try:
        size = parse_size(str(value)) if type(value) in (str, int) else 0
    except ValueError as error:
        fail(key, str(error))
    return size if 0 < size <= MOST_BODY else fail(
        key, "takes a size up to 256MiB, such as \"1MiB\"")


def _shown(key: str, value: Any, fail: Callable[[str, str], NoReturn]) -> bool:
    return value if isinstance(value, bool) else fail(key, "takes true or false")


_READ: dict[str, Callable[..., Any]] = {
    "code": _code, "budget": _budget, "on_fault": _on_fault, "max_body": _max_body,
    "shown": _shown}
