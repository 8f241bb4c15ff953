"""Faults on purpose, to test clients: read from the policy, drawn for requests.

The words are toxiproxy's (github.com/Shopify/toxiproxy). A rule names one or several
tables of faults; each is drawn by its own toxicity, and if several are, they add up.
"""

import math
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from cutthrough.config.values import parse_duration, parse_size
from cutthrough.policy.source import Faults

_DURATIONS = ("latency", "jitter")
_SIZES = ("bandwidth", "limit_data")
# Above the keep-alive of most clients, a request is not slow but lost
MOST_LATENCY = 600.0


class RequestFaults(NamedTuple):
    """The faults of one request or tunnel."""

    latency_ms: int = 0
    bandwidth: int = 0                  # bytes a second; 0: no bound
    limit_data: int = 0                 # bytes; 0: no bound
    reset_peer: bool = False
    status: int = 0                     # 0: none


def draw(faults: Iterable[Faults],
         chance: Callable[[], float] = random.random) -> RequestFaults:
    """Draws. `chance` returns a number from 0 up to 1, without 1."""
    latency = 0.0
    bandwidths, bounds, status, reset_peer = list[int](), list[int](), 0, False
    for fault in faults:
        if fault.toxicity < 1 and chance() >= fault.toxicity:
            continue
        latency += max(0.0, fault.latency + fault.jitter * (
            2 * chance() - 1 if fault.jitter else 0))
        bandwidths += [fault.bandwidth] if fault.bandwidth else []
        bounds += [fault.limit_data] if fault.limit_data else []
        reset_peer |= fault.reset_peer
        status = status or fault.status
    return RequestFaults(round(latency * 1000), min(bandwidths, default=0),
                         min(bounds, default=0), reset_peer, status)


def read_faults(table: dict[str, Any], fail: Callable[[str, str], NoReturn]) -> Faults:
    """Returns the faults of one table. `fail` raises, for a key and a reason."""
    values = {key: _read(key, value, fail) for key, value in table.items()
              if key in Faults.__struct_fields__}
    faults = Faults(**values)
    # An unknown key has been reported, and may be the missing one
    if len(values) == len(table) and not values.keys() - {"toxicity", "jitter"}:
        fail("", "has no fault: give latency, bandwidth, limit_data, reset_peer or "
                 "status")
    if faults.jitter > faults.latency:
        fail("jitter", "cannot exceed latency")
    if faults.reset_peer and faults.status:
        fail("status", "has no effect beside reset_peer")
    return faults


def _read(key: str, value: Any, fail: Callable[[str, str], NoReturn]) -> Any:
    try:
        if key in _DURATIONS and isinstance(value, str):
            value = parse_duration(value)
            if 0 < value <= MOST_LATENCY:
                return value
        elif key in _SIZES and isinstance(value, str | int) and value is not True:
            value = parse_size(str(value))
            if 0 < value < 1 << 62:
                return value
    except ValueError as error:
        fail(key, str(error))
    if key == "reset_peer" and value is True:
        return value
    if key == "status" and type(value) is int and 400 <= value <= 599:
        return value
    if key == "toxicity" and type(value) in (int, float) and (
            math.isfinite(value) and 0 < value <= 1):
        return float(value)
    return fail(key, _TAKES[key])


_TAKES = {
    "latency": "takes a duration up to 10m, such as \"100ms\"",
    "jitter": "takes a duration up to 10m, such as \"20ms\"",
    "bandwidth": "takes a size above 0, for each second, such as \"64KiB\"",
    "limit_data": "takes a size above 0, such as \"1KiB\"",
    "reset_peer": "takes true; leave it out for no reset",
    "status": "takes a status from 400 to 599",
    "toxicity": "takes a probability above 0, and up to 1",
}
