"""The delays of a simulation of hoverfly that hold for all its pairs -> delays of
recordings.

    {"urlPattern": REGEX, "httpMethod": METHOD or "", "delay": MS}
    {"urlPattern": REGEX, "httpMethod": METHOD or "", "min", "max", "mean", "median"}

The first whose expression is found in host, port and path has effect. If the patterns
of a recording do not say whether it is found, there are two of the recording: one with
the delay, and with the expression as a further pattern. All others get further patterns
then, which hold for any request: those with more patterns come first, and the order of
the pairs is to stay.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cutthrough.exchange.bounds import KeyMistake, TooMuch
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.model.recording import DEFAULT_PORTS, Pattern, Recording

# Recordings that one may become
MOST_COPIES = 16
# Rules of a simulation, and the rules times the patterns of the pairs: 3 s of work
MOST_RULES, MOST_WORK = 256, 1 << 20
# ms: an hour
MOST_MS = 3_600_000
# An expression with these depends on the text's begin or end
_ANCHORS = re.compile(r"[$^]|\\[AbBzZ]|\(\?")
_ANY = (Pattern(part="url", how="glob", value="*"),
        Pattern(part="method", how="glob", value="*"))


class Rule(NamedTuple):
    pattern: str
    method: str                              # upper case; "": any
    delay_us: int


def milliseconds(value: Any) -> int:
    """In microseconds; 0 if it is none."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value * 1000 if is_whole and 0 <= value <= MOST_MS else 0


def read_rules(value: Any, key: str) -> list[Rule]:
    """`key` has the delay. Raises NotImported."""
    rules = []
    if not isinstance(value or [], list) or len(value or ()) > MOST_RULES:
        raise NotImported(f"delays are no list, or more than {MOST_RULES}")
    for row in value or ():
        pattern = row.get("urlPattern") if isinstance(row, dict) else None
        method = row.get("httpMethod") or "" if isinstance(row, dict) else ""
        if not isinstance(pattern, str) or not isinstance(method, str):
            raise NotImported("a delay has no `urlPattern`")
        try:
            compile_expression(pattern)
        except KeyMistake as error:
            raise NotImported(f"a delay: {error}") from None
        rules.append(Rule(pattern, method.upper(), milliseconds(row.get(key))))
    return rules


def delayed(recordings: list[Recording], lists: Sequence[list[Rule]]
            ) -> list[Recording]:
    """Returns the recordings with delays: of each list the first delay that applies,
    unless the recording has one of its own. Raises NotImported if there would be too
    many."""
    copies: list[tuple[tuple[Pattern, ...], Recording]] = []
    if sum(map(len, lists)) * sum(
            1 + len(recording.patterns) for recording in recordings) > MOST_WORK:
        raise NotImported("there are too many for the patterns of so many pairs")
    for recording in recordings:
        variants: list[tuple[tuple[Pattern, ...], Recording]] = [((), recording)]
        for rules in lists if not recording.delay_us else ():
            variants = [((*patterns, *more), late) for patterns, early in variants
                        for more, late in spread(early, rules)]
        if len(variants) > MOST_COPIES:
            raise NotImported(f"more than {MOST_COPIES} may apply to one pair")
        copies += variants
    most = max([len(patterns) for patterns, _ in copies], default=0)
    return [msgspec.structs.replace(recording, patterns=(
        *recording.patterns, *patterns, *_ANY * ((most - len(patterns)) // len(_ANY))))
        for patterns, recording in copies]


def spread(recording: Recording, rules: list[Rule]
           ) -> list[tuple[tuple[Pattern, ...], Recording]]:
    """The recording with each delay that it may have, and the patterns that tell when
    it has it; the last has none of them."""
    variants: list[tuple[tuple[Pattern, ...], Recording]] = []
    for rule in rules:
        applies = holds(rule, recording.patterns)
        if applies is False:
            continue
        if len(variants) > MOST_COPIES:
            break
        late = msgspec.structs.replace(
            recording, delay_us=recording.delay_us + rule.delay_us)
        if applies:
            return [*variants, ((), late)]
        method = Pattern(part="method", value=rule.method) if rule.method else _ANY[1]
        variants.append((
            (Pattern(part="url", how="regex", value=rule.pattern), method), late))
    return [*variants, ((), recording)]


def holds(rule: Rule, patterns: tuple[Pattern, ...]) -> bool | None:
    """Whether the delay applies to each request that the patterns match; None: it does
    to some, perhaps."""
    known = {pattern.part: pattern.value for pattern in patterns
             if pattern.how == "exact"}
    if rule.method and known.get("method", rule.method).upper() != rule.method:
        return False
    search = compile_expression(rule.pattern).search
    host, path = known.get("host", ""), known.get("path", "")
    authority = with_port(host, known.get("port", "80"), "http") if host else ""
    is_match: bool | None
    try:
        if host and path:
            is_match = search(authority + path) is not None
        else:                                # a path begins with a slash
            is_match = (not _ANCHORS.search(rule.pattern) and (
                search(path or f"{authority}/") is not None)) or None
    except TooMuch as error:
        raise NotImported(f"a path {error}") from None
    if is_match and rule.method and "method" not in known:
        return None
    return is_match


def with_port(host: str, port: str, scheme: str) -> str:
    return host if DEFAULT_PORTS.get(scheme) == int(port) else f"{host}:{port}"
