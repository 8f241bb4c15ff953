"""`cutthrough flows held`, `resume`, `edit` and `abort`, by the admin listener."""

import argparse
import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from cutthrough.config.config import ConfigError
from cutthrough.tools.console import Listener, Unanswered, find_listener
from cutthrough.tools.flows import safe

COLUMNS = ("ID", "LEFT_S", "SIDE", "USER", "METHOD", "STATUS", "BODY", "URL")


def run(given: argparse.Namespace) -> int:
    """Runs one of arguments_held.HELD; returns the exit status. Raises ConfigError."""
    listener = Listener(*find_listener(given.admin, given.token_file, os.environ))
    try:
        if given.action == "held":
            return show_one(listener, given) if given.id else show_all(listener, given)
        if given.action in ("arm", "disarm"):
            return arm(listener, given.seconds if given.action == "arm" else 0.0)
        decision: dict[str, Any] = {"action": _ACTIONS[given.action]}
        if given.action == "edit":
            decision |= read_edit(listener, given)
        ask(listener, "POST", path_of(given.id), decision)
    except Unanswered as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    return 0


_ACTIONS = {"resume": "pass", "abort": "abort", "edit": "edit"}


def ask(listener: Listener, method: str, path: str, value: object = None) -> bytes:
    return listener.fetch(
        method, path, None if value is None else json.dumps(value).encode())


def path_of(name: str) -> str:
    number, dash, other = name.partition("-")
    if not (dash and number.isdecimal() and other.isdecimal() and name.isascii()):
        raise ConfigError("command line", "ID", f"{name!r} is no ID: `cutthrough "
                          "flows held` prints them")
    return f"/breakpoints/{name}"


def arm(listener: Listener, seconds: float) -> int:
    found = json.loads(ask(listener, "POST", "/breakpoints/armed",
                           {"seconds": seconds}))
    print(f"armed for {found['armed_s']:g} s" if found["armed_s"] else "not armed")
    return tell(found["unanswered"])


def show_all(listener: Listener, given: argparse.Namespace) -> int:
    found = json.loads(ask(listener, "GET", "/breakpoints"))
    if given.json:
        print(json.dumps(found))
        return tell(found["unanswered"])
    rows = [COLUMNS, *((
        one["id"], f"{one['left_s']:g}", one["side"], one["user"] or "-", one["method"],
        str(one.get("status", "-")), one["body"], one["url"])
        for one in found["held"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(safe("  ".join(cell.ljust(width) for cell, width in
                             zip(row, widths, strict=True)).rstrip()))
    print(f"armed for {found['armed_s']:g} s" if found["armed_s"] else "not armed",
          file=sys.stderr)
    return tell(found["unanswered"])


def show_one(listener: Listener, given: argparse.Namespace) -> int:
    one = json.loads(ask(listener, "GET", path_of(given.id)))
    print(json.dumps(one) if given.json else "\n".join(lines_of(one)))
    return 0


def lines_of(one: dict[str, Any]) -> Iterator[str]:
    for key, value in one.items():
        if key not in ("fields", "content"):
            yield safe(f"{key:<24}{value}")
    yield ""
    for name, value in one["fields"]:
        yield safe(f"{name}: {value}")
    if one.get("content"):
        yield ""
        for line in b64decode(one["content"]).decode(errors="replace").splitlines():
            yield safe(line)


def read_edit(listener: Listener, given: argparse.Namespace) -> dict[str, Any]:
    """Returns the changes of the command line. The fields are the message's, with the
    given ones in place of those of the same names."""
    changes: dict[str, Any] = {
        name: getattr(given, name) for name in ("method", "path", "status")
        if getattr(given, name) is not None}
    if given.header:
        one = json.loads(ask(listener, "GET", path_of(given.id)))
        changes["fields"] = edit_fields(one["fields"], given.header)
    if given.data_file is not None:
        try:
            with open(given.data_file, "rb") as file:
                changes["body"] = b64encode(file.read()).decode()
        except OSError as error:
            raise ConfigError("command line", "--data-file", str(error)) from None
    if given.hold_body:
        changes["hold_body"] = True
    if not changes:
        raise ConfigError("command line", "edit", "changes nothing: give --method, "
                          "--path, --status, --header, --data-file or --hold-body")
    return changes


def edit_fields(fields: list[list[str]], texts: list[str]) -> list[list[str]]:
    added = []
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon:
            raise ConfigError("command line", "--header", f"{text!r} has no colon")
        fields = [one for one in fields if one[0].lower() != name.lower()]
        if value.strip():
            added.append([name, value.strip()])
    return [*fields, *added]


def tell(unanswered: list[str]) -> int:
    for name in unanswered:
        print(f"cutthrough: {name} does not answer", file=sys.stderr)
    return 1 if unanswered else 0
