"""A table of `[headers.NAME]`: fields that a rule sets, adds and removes.

    [headers.team.request]
    remove = ["Cookie"]
    set = { X-Team = "platform", X-User = "{user}" }

First the names of `remove` and of `set` are dropped, then the fields of `set` and `add`
are appended. The next table of the rule is applied to the result of the one before it.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from cutthrough.policy.source import Edits, Headers, Policy, Rule
from cutthrough.wire.edits import KNOWN, HeadEdits

Fail = Callable[..., NoReturn]
# Bytes of a name and of a value: all of them have to fit into a head
MOST_NAME, MOST_VALUE, MOST_FIELDS = 64, 1024, 32
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[^\x00-\x1f\x7f]*")
_KNOWN = re.compile(r"\{([a-z0-9_]*)\}")
# The end of a message, its way and its hop depend on them, so they are the proxy's
OURS = {"connection", "content-length", "expect", "host", "http2-settings",
        "keep-alive", "max-forwards", "te", "trailer", "transfer-encoding", "upgrade",
        "via"}
_KEYS = ("set", "add", "remove")


def read_headers(table: dict[str, Any], fail: Fail) -> Headers:
    """Returns the edits of one table. `fail` raises, for a key and a reason."""
    headers = Headers(**{key: _read(key, table[key], fail) for key in (
        "request", "response") if key in table})
    # An unknown key has been reported, and may be the missing one
    if headers == Headers() and not table.keys() - {"request", "response"}:
        fail("", "changes nothing: give request or response, with set, add or remove")
    return headers


def _read(direction: str, table: Any, fail: Fail) -> Edits:
    if not isinstance(table, dict) or table.keys() - {*_KEYS}:
        return fail(direction, f"takes a table with {', '.join(_KEYS)}")
    removed = table.get("remove", [])
    if not isinstance(removed, list):
        fail(direction, "remove takes a list of names")
    for name in removed:
        _check_name(direction, name, fail)
    fields = {key: _read_fields(direction, key, table.get(key, {}), fail)
              for key in ("set", "add")}
    if sum(map(len, (removed, *fields.values()))) > MOST_FIELDS:
        fail(direction, f"has more than {MOST_FIELDS} fields")
    return Edits(remove=tuple(removed), **fields)


def _read_fields(direction: str, key: str, table: Any, fail: Fail
                 ) -> tuple[tuple[str, str], ...]:
    if not isinstance(table, dict):
        return fail(direction, f"{key} takes a table of fields: {key} = {{ Name = "
                               "\"value\" }}")
    for name, value in table.items():
        _check_name(direction, name, fail)
        if not isinstance(value, str) or not _VALUE.fullmatch(value) or (
                value != value.strip(" ") or len(value.encode()) > MOST_VALUE):
            fail(direction, f"{key}.{name} takes a text of one line, without spaces at "
                            f"its ends, of at most {MOST_VALUE} bytes")
        for word in _KNOWN.findall(value):
            if word not in KNOWN:
                fail(direction, f"{key}.{name}: {{{word}}} is none of "
                                + ", ".join(f"{{{known}}}" for known in KNOWN))
            if word == "traceparent" and (direction, key) != ("request", "set"):
                fail(direction, f"{key}.{name}: {{traceparent}} is of set, in requests")
    return tuple(table.items())


def _check_name(direction: str, name: Any, fail: Fail) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MOST_NAME:
        fail(direction, f"{name!r} is no name of a field")
    if name.lower() in OURS or name.lower().startswith("proxy-"):
        fail(direction, f"{name} is the proxy's own: it belongs to the message's end, "
                        "its way or its hop")


def make_edits(policy: Policy, ratio: float = 1
               ) -> dict[int, tuple[HeadEdits | None, HeadEdits | None]]:
    """Returns the changes of requests and of responses by a rule's number; None: no
    changes. `ratio`: the share of new traces that are sampled."""
    return {number: (_compiled(policy, rule, "request", ratio),
                     _compiled(policy, rule, "response", ratio))
            for number, rule in enumerate(policy.rules) if rule.headers}


def _compiled(policy: Policy, rule: Rule, direction: str, ratio: float
              ) -> HeadEdits | None:
    dropped: dict[str, None] = {}
    fields: list[tuple[str, str]] = []
    for table in rule.headers:
        edits: Edits = getattr(policy.headers[table], direction)
        gone = {name.lower() for name in (*edits.remove, *dict(edits.set))}
        dropped |= dict.fromkeys(sorted(gone))
        fields = [(name, value) for name, value in fields if name.lower() not in gone]
        fields += (*edits.set, *edits.add)
    if not dropped and not fields:
        return None
    return HeadEdits((name.encode() for name in dropped),
                     (_pieces(name, value) for name, value in fields), ratio)


def _pieces(name: str, value: str) -> Iterable[bytes | int]:
    """Every second text of the split is a name in braces."""
    yield f"{name}: ".encode()
    for i, text in enumerate(_KNOWN.split(value)):
        if i % 2:
            yield KNOWN.index(text)
        elif text:
            yield text.encode()
