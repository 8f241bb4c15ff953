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


def run(args: argparse.Namespace) -> int:
    """Runs one of the actions; returns the exit status. Raises ConfigError."""
    listener = Listener(*find_listener(args.admin, args.token_file, os.environ))
    try:
        if args.action == "held":
            return show_one(listener, args) if args.id else show_all(listener, args)
        if args.action in ("arm", "disarm"):
            return arm(listener, arming_of(args))
        decision: dict[str, Any] = {"action": _ACTIONS[args.action]}
        if args.action == "edit":
            decision |= read_edit(listener, args)
        ask(listener, "POST", path_of(args.id), decision)
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


def arming_of(args: argparse.Namespace) -> dict[str, Any]:
    """As `POST /breakpoints/armed` takes it."""
    if args.action == "disarm":
        return {"seconds": 0.0}
    return {"seconds": args.seconds, "hosts": args.host, "methods": args.method,
            "paths": args.path}


def arm(listener: Listener, arming: dict[str, Any]) -> int:
    answer = json.loads(ask(listener, "POST", "/breakpoints/armed", arming))
    print(show_armed(answer))
    return tell(answer["unanswered"])


def show_all(listener: Listener, args: argparse.Namespace) -> int:
    answer = json.loads(ask(listener, "GET", "/breakpoints"))
    if args.json:
        print(json.dumps(answer))
        return tell(answer["unanswered"])
    for line in table_of(answer["held"]):
        print(line)
    print(show_armed(answer), file=sys.stderr)
    return tell(answer["unanswered"])


def table_of(held: list[dict[str, Any]]) -> list[str]:
    """The lines of a table of these messages, as `GET /breakpoints` has them."""
    rows = [COLUMNS, *((
        entry["id"], f"{entry['left_s']:g}", entry["side"], entry["user"] or "-",
        entry["method"], str(entry.get("status", "-")), entry["body"], entry["url"])
        for entry in held)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [safe("  ".join(cell.ljust(width) for cell, width in
                           zip(row, widths, strict=True)).rstrip()) for row in rows]


def show_armed(answer: dict[str, Any]) -> str:
    """`answer`: of `GET /breakpoints`, or of an arming."""
    if not answer["armed_s"]:
        return "not armed"
    chosen = answer.get("armed_for", {})
    texts = [text for name in ("methods", "hosts", "paths")
             for text in chosen.get(name, ())]
    return safe(" ".join([f"armed for {answer['armed_s']:g} s", *texts]))


def show_one(listener: Listener, args: argparse.Namespace) -> int:
    message = json.loads(ask(listener, "GET", path_of(args.id)))
    print(json.dumps(message) if args.json else "\n".join(lines_of(message)))
    return 0


def lines_of(message: dict[str, Any]) -> Iterator[str]:
    for key, value in message.items():
        if key not in ("fields", "content"):
            yield safe(f"{key:<24}{value}")
    yield ""
    for name, value in message["fields"]:
        yield safe(f"{name}: {value}")
    if message.get("content"):
        yield ""
        for line in b64decode(message["content"]).decode(errors="replace").splitlines():
            yield safe(line)


def read_edit(listener: Listener, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the changes of the command line. The fields are the message's, with the
    given ones in place of those of the same names."""
    changes: dict[str, Any] = {
        name: getattr(args, name) for name in ("method", "path", "status")
        if getattr(args, name) is not None}
    if args.header:
        message = json.loads(ask(listener, "GET", path_of(args.id)))
        changes["fields"] = edit_fields(message["fields"], args.header)
    if args.data_file is not None:
        try:
            with open(args.data_file, "rb") as file:
                changes["body"] = b64encode(file.read()).decode()
        except OSError as error:
            raise ConfigError(
                "command line", "--data-file",
                f"{args.data_file}: {error.strerror or error}") from None
    if args.hold_body:
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
        fields = [field for field in fields if field[0].lower() != name.lower()]
        if value.strip():
            added.append([name, value.strip()])
    return [*fields, *added]


def tell(unanswered: list[str]) -> int:
    for name in unanswered:
        print(f"cutthrough: {name} does not answer", file=sys.stderr)
    return 1 if unanswered else 0
