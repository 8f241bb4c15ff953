"""The values of one table of limits in a policy."""

import re
from collections.abc import Callable
from typing import Any, NoReturn

from cutthrough.config.mistake import noting
from cutthrough.config.values import parse_duration, parse_size
from cutthrough.policy.source import Limits

KEYS = Limits.__struct_fields__
_SIZES = ("bytes_per_second", "bytes_per_second_up", "bytes_per_second_down",
          "tunnel_bytes_per_second", "bytes_per_day")
_SUBJECTS = ("user", "client", "all")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,100}")
# Fields that end here: no request has them behind its head
_OF_THE_HOP = ("connection", "keep-alive", "proxy-authorization", "proxy-connection",
               "te", "trailer", "transfer-encoding", "upgrade")
_PREFIXES = {"ipv4_prefix": (8, 32), "ipv6_prefix": (16, 64)}
# An option, and the option that it needs
_NEEDS = {"queue": "requests_per_second", "queue_timeout": "queue"}
MOST_WAIT, MOST_QUEUE = 600.0, 100_000
# The advice for a limit of 0, if it is not "no limit"
_ABSENT = {"burst": "one second's worth",
           "tunnels": "no limit, or deny CONNECT and UPGRADE to forbid tunnels"}


def read_limits(table: dict[str, Any], fail: Callable[[str, str], NoReturn],
                mistakes: list[Any]) -> Limits:
    """Returns the limits of one table; other keys are not read. `fail` raises, for a
    key and a reason; each value's mistake is added to `mistakes`."""
    values: dict[str, Any] = {}
    for key in table.keys() & {*KEYS}:
        with noting(mistakes):
            values[key] = (
                _read_subject(table[key], fail) if key == "per" else
                _read_prefix(key, table, fail) if key in _PREFIXES else
                _read_wait(key, table, fail) if key in _NEEDS else
                _read_amount(key, table[key], fail))
    return Limits(**values)


def _read_subject(value: Any, fail: Callable[[str, str], NoReturn]) -> str:
    if isinstance(value, str) and value.startswith("field:"):
        name = value.removeprefix("field:").lower()
        if not _NAME.fullmatch(name):
            fail("per", f"{name!r} is no name of a field")
        if name in _OF_THE_HOP:
            fail("per", f"{name} is not of the request, but of one connection")
        return f"field:{name}"
    if value not in _SUBJECTS:
        fail("per", f"takes one of {', '.join(_SUBJECTS)}, field:NAME")
    return str(value)


def _read_prefix(key: str, table: dict[str, Any],
                 fail: Callable[[str, str], NoReturn]) -> int:
    least, most = _PREFIXES[key]
    value = table[key]
    if table.get("per") != "client":
        fail(key, "belongs to per = \"client\"")
    if isinstance(value, bool) or not isinstance(value, int) or not (
            least <= value <= most):
        fail(key, f"takes a length of {least} to {most} bits")
    return value


def _read_wait(key: str, table: dict[str, Any],
               fail: Callable[[str, str], NoReturn]) -> float:
    """A number of requests, or seconds."""
    value = table[key]
    if _NEEDS[key] not in table:
        fail(key, f"has no effect without {_NEEDS[key]}")
    if key == "queue":
        if type(value) is int and 0 < value <= MOST_QUEUE:
            return value
        fail(key, f"takes a number of requests, 1 to {MOST_QUEUE}")
    try:
        seconds = parse_duration(value) if isinstance(value, str) else 0.0
    except ValueError as error:
        fail(key, str(error))
    if 0 < seconds <= MOST_WAIT:
        return seconds
    return fail(key, "takes a duration up to 10m, such as \"5s\"")


def _read_amount(key: str, value: Any, fail: Callable[[str, str], NoReturn]) -> Any:
    if key in _SIZES:
        if isinstance(value, str):
            try:
                value = parse_size(value)
            except ValueError as error:
                fail(key, str(error))
        what = "a size such as \"10MiB\""
    else:
        what = "a number" if key == "requests_per_second" else "a whole number"
    kinds = (int, float) if key == "requests_per_second" else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not (
            0 <= value < 1 << 63):           # nor nan
        fail(key, f"takes {what}")
    if value == 0:
        fail(key, "cannot be 0; leave it out for " + _ABSENT.get(key, "no limit"))
    return value
