"""Measures for filters: the time of an entry, its duration, its size.

    ~time 2026-11-27            in this day (UTC), or month, hour, minute, second
    ~time >2026-11-27T10:30     from then on; `<`: before. 10:30 is of today
    ~time >-10m                 in the last ten minutes
    ~dur >1.5s   ~dur <200ms    from its begin to its end; us, ms, s, m, h, d
    ~size >64k   ~size <1M      bytes both ways, as in the list

`>` has the value itself, `<` has not, because two terms with one value must share no
entry.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cutthrough.config.values import parse_duration, parse_size
from cutthrough.exchange.flow import Flow

_SECOND = 1_000_000
_TIME = re.compile(r"(?:(?P<year>\d{4})-(?P<month>\d\d)(?:-(?P<day>\d\d)"
                   r"(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)"
                   r"(?P<fraction>\.\d{1,6})?)?)?)?)?"
                   r"|(?P<h>\d\d):(?P<m>\d\d)(?::(?P<s>\d\d)(?P<f>\.\d{1,6})?)?)"
                   r"(?P<zone>Z|[+-]\d\d:\d\d)?")
_MICROSECONDS = re.compile(r"(\d{1,15})(?:us|µs)")


def compare(operator: str, text: str) -> Callable[[Flow], bool]:
    """The test of a term. Raises ValueError."""
    try:
        return _compare(operator, text)
    except OverflowError:
        raise ValueError(f"{operator} {text!r:.40} is beyond the calendar") from None


def _compare(operator: str, text: str) -> Callable[[Flow], bool]:
    mark, value = (text[0], text[1:]) if text[:1] in ("<", ">") else ("", text)
    if operator == "~time":
        begin, end = _read_time(value)
        if mark == ">":
            return lambda flow: bool(flow.begun_us >= begin)
        if mark == "<":
            return lambda flow: bool(flow.begun_us < begin)
        return lambda flow: bool(begin <= flow.begun_us < end)
    if not mark:
        raise ValueError(f"{operator} takes < or >, as {operator} "
                         f"{'>1.5s' if operator == '~dur' else '>64k'}")
    if operator == "~dur":
        most = _read_duration(value)
        return (lambda flow: (flow.total_us or 0) >= most) if mark == ">" else (
            lambda flow: (flow.total_us or 0) < most)
    size = parse_size(value)
    return (lambda flow: _size_of(flow) >= size) if mark == ">" else (
        lambda flow: _size_of(flow) < size)


def _size_of(flow: Flow) -> int:
    return (flow.bytes_up or 0) + (flow.bytes_down or 0)


def _read_duration(text: str) -> int:
    """Microseconds."""
    if (match := _MICROSECONDS.fullmatch(text)) is not None:
        return int(match[1])
    return round(parse_duration(text) * _SECOND)


def _read_time(text: str) -> tuple[int, int]:
    """The begin and the end of the named time, in microseconds since 1970."""
    now = datetime.now(UTC)
    if text.startswith("-"):
        ago = now - timedelta(microseconds=_read_duration(text[1:]))
        return _since_1970(ago), _since_1970(now) + _SECOND
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"~time takes a time, as 2026-11-27, 2026-11-27T10:30:00, "
                         f"10:30 or -10m, not {text!r:.40}")
    part = match.groupdict()
    if part["h"]:
        part |= {"year": f"{now.year}", "month": f"{now.month}", "day": f"{now.day}",
                 "hour": part["h"], "minute": part["m"], "second": part["s"],
                 "fraction": part["f"]}
    year, month, day, hour, minute, second = (
        int(part[name] or low) for name, low in (
            ("year", 1), ("month", 1), ("day", 1), ("hour", 0), ("minute", 0),
            ("second", 0)))
    zone = datetime.fromisoformat(f"2000-01-01T00:00{part['zone'] or 'Z'}").tzinfo
    try:
        begin = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as error:
        raise ValueError(f"~time {text!r:.40}: {error}") from None
    us = _since_1970(begin) + round(float(part["fraction"] or 0) * _SECOND)
    if part["fraction"]:
        return us, us + round(_SECOND * 10 ** (1 - len(part["fraction"])))
    for name, seconds in (
            ("second", 1), ("minute", 60), ("hour", 3600), ("day", 86400)):
        if part[name]:
            return us, us + seconds * _SECOND
    following = (begin + timedelta(days=31)).replace(day=1)
    return us, _since_1970(following)


def _since_1970(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
