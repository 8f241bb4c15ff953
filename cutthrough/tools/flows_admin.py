"""`cutthrough flows … --admin`: the same actions by the admin listener, with its token.

Filters and searches run there, and bodies come with the flows that are shown. Nobody
needs the rights of the database, because the command knows no file.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from cutthrough.capture.query import MOST_IMPORT, MOST_ROWS
from cutthrough.capture.views import line_of
from cutthrough.config.config import ConfigError
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.visible import visible
from cutthrough.tools.console import Listener, Unanswered, find_listener
from cutthrough.tools.flow_source import ANSWER_S, ByListener, read_flow
from cutthrough.tools.flows import (
    print_flow,
    print_flows,
    print_hosts,
    print_import,
    print_line,
    print_lines,
    print_read,
    safe,
    write_text,
)
from cutthrough.tools.replay import replay_flow, send_new

# The listener gives an import two minutes
IMPORT_S = 130.0
# Until a listener that has gone is tried again: the first, doubled until the last
AGAIN_S, MOST_AGAIN_S = 0.25, 5.0
# Characters of a file's name that it takes
MOST_NAME = 200


def run(args: argparse.Namespace) -> int:
    """Runs one of the actions; returns the exit status. Raises ConfigError."""
    for name in ("file", "url_file"):
        if getattr(args, name, None):
            refuse(f"--{name.replace('_', '-')}", "and --admin are both given")
    listener = Listener(*find_listener(args.admin, args.token_file, os.environ))
    try:
        return _ACTIONS[args.action](listener, args)
    except Unanswered as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1


def refuse(flag: str, why: str) -> None:
    raise ConfigError("command line", flag, why)


def fetch(listener: Listener, method: str, path: str, body: bytes | None = None,
          patience_s: float = ANSWER_S, **query: object) -> bytes:
    said = urlencode({name: value for name, value in query.items() if value},
                     quote_via=quote)
    return listener.fetch(method, f"{path}?{said}" if said else path, body, patience_s)


def filter_of(args: argparse.Namespace) -> str:
    return " ".join(args.filter)


def pages(listener: Listener, filter_: str, words: str, limit: int
          ) -> Iterator[dict[str, Any]]:
    """The newest flows, newest first; `limit` of them, 0: all."""
    source = ByListener(listener)
    before = count = 0
    while True:
        page = source.list(filter=filter_, words=words, before=before,
                           limit=min(limit - count, MOST_ROWS) if limit else MOST_ROWS)
        yield page
        count += len(page["flows"])
        before = page["next"]
        if not before or (limit and count >= limit):
            return


def flow_of(row: dict[str, Any]) -> Flow:
    """A row of the list as a flow, for a line of a table."""
    begun = datetime.fromisoformat(row["time"]).timestamp()
    return Flow({**dict.fromkeys(("user", "status", "tag")), **row,
                 "begun_us": round(begun * 1e6), "total_us": row["ms"] * 1000,
                 "bytes_up": row["bytes"], "bytes_down": 0,
                 "id": row.get("id") or row["request"]})


def list_flows(listener: Listener, args: argparse.Namespace) -> int:
    words = " ".join(getattr(args, "words", ()))
    rows = [row for page in pages(listener, filter_of(args), words, args.limit)
            for row in page["flows"]]
    if args.json:
        print_lines(map(json.dumps, rows))
    else:
        print_flows(list(map(flow_of, rows)), False)
    return 0


def hosts(listener: Listener, args: argparse.Namespace) -> int:
    answer = summary(listener, args)
    print_hosts(answer["hosts"], args.json)
    return 0


def list_slowest(listener: Listener, args: argparse.Namespace) -> int:
    rows = summary(listener, args)["flows"]
    if args.json:
        print_lines(map(json.dumps, rows))
    else:
        print_flows(list(map(flow_of, rows)), False)
    return 0


def summary(listener: Listener, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the summary of as many flows as the listener has time for. If these are
    not all, a line says so."""
    answer = ByListener(listener).summary(
        args.action, filter=filter_of(args), before=0,
        limit=min(args.limit or MOST_ROWS, MOST_ROWS))
    if answer["next"]:
        print(f"cutthrough: for want of time only flows from {answer['next']} on were "
              "looked at", file=sys.stderr)
    return answer


def follow(listener: Listener, args: argparse.Namespace) -> int:
    filter_ = filter_of(args)
    newest = list(pages(listener, filter_, "", args.lines or 1))
    rows = [row for page in newest for row in page["flows"]][:args.lines]
    if not args.json:
        print_line(None)
    for row in reversed(rows):
        print_row(row, args.json)
    for row in come(listener, filter_, newest[0]["newest"], is_open=args.open):
        print_row(row, args.json)
    return 0                                 # not reached: it ends with an interrupt


def come(listener: Listener, filter_: str, last: int, *, is_open: bool
         ) -> Iterator[dict[str, Any]]:
    """The rows after number `last` as they come, for ever. If the listener goes away,
    as in a reload or an upgrade, it is tried again, and the rows go on from there;
    that is told once, until it has answered. `is_open`: also each flow when it has
    begun. Raises Unanswered for a refusal."""
    known: set[str] = set()
    delay = 0.0
    while True:
        query = urlencode({"filter": filter_, "after": last, **(
            {"open": "true"} if is_open else {})}, quote_via=quote)
        reason = f"{listener.where}: the stream has ended"
        try:
            for name, data in events(listener, f"/flows/live?{query}"):
                delay = 0.0
                if name == "":
                    yield from data
                    last = data[-1]["id"]
                elif name == "open":
                    yield from (row for row in data["rows"]
                                if row["request"] not in known)
                    known = (set() if data["all"] else known) - set(data["gone"])
                    known |= {row["request"] for row in data["rows"]}
        except Unanswered as error:
            if 400 <= error.status < 500:
                raise
            reason = str(error)
        if not delay:
            print(f"cutthrough: {reason}; trying again", file=sys.stderr, flush=True)
        delay = min(2 * delay or AGAIN_S, MOST_AGAIN_S)
        time.sleep(delay)                    # the listener may come back meanwhile


def events(listener: Listener, path: str) -> Iterator[tuple[str, Any]]:
    """Name and data of each event; a sign of life has neither. Raises Unanswered."""
    name = ""
    for line in listener.lines(path):
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])
        elif line.startswith(b":"):
            yield "alive", None
        else:
            name = ""


def print_row(row: dict[str, Any], as_object: bool) -> None:
    if as_object:
        print(json.dumps(row), flush=True)
    else:
        print_line(flow_of(row))


def show(listener: Listener, args: argparse.Namespace) -> int:
    return print_flow(read_flow(ByListener(listener), args.id)[1], args)


def copy(listener: Listener, args: argparse.Namespace) -> int:
    text = fetch(listener, "GET", f"/flows/{args.id}/as/{args.form}").decode()
    print(visible(text), end="")
    return 0


def diff(listener: Listener, args: argparse.Namespace) -> int:
    """Exit status 2 if one of the flows is not there, as diff(1) has it."""
    try:
        text = fetch(listener, "GET", f"/flows/{args.id}/diff/{args.other}").decode()
    except Unanswered as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 2
    print_lines(map(safe, text.splitlines() or ["no difference"]))
    return int(bool(text))


def export(listener: Listener, args: argparse.Namespace) -> int:
    if args.limit:
        refuse("--limit", "is not for --admin: an archive has all that pass")
    content = fetch(listener, "GET", "/flows.har", filter=filter_of(args), id=args.id)
    if args.id and not json.loads(content)["log"]["entries"]:
        raise Unanswered(f"there is no flow {args.id} that an archive can have")
    write_text(content.decode().rstrip("\n"), args.output)
    return 0


def import_flows(listener: Listener, args: argparse.Namespace) -> int:
    if args.keep_credentials:
        refuse("--keep-credentials", "is not for --admin")
    refused = False
    for name in args.files:
        try:
            with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
                content = file.read(MOST_IMPORT + 1)
            if len(content) > MOST_IMPORT:
                raise Unanswered(f"is longer than {MOST_IMPORT >> 20} MiB: import it "
                                 "where the database is")
            result = json.loads(fetch(
                listener, "POST", "/flows/import", content, IMPORT_S,
                name=os.path.basename(name)[:MOST_NAME]))
        except (Unanswered, OSError) as error:
            what = error.strerror if isinstance(error, OSError) else error
            print(safe(f"cutthrough: {name}: {what}"), file=sys.stderr)
            refused = True
            continue
        refused |= print_import(name, result)
    return int(refused)


def delete(listener: Listener, args: argparse.Namespace) -> int:
    if args.id:
        count = sum(ByListener(listener).delete(number)["deleted"]
                    for number in args.id)
    else:
        count = json.loads(fetch(
            listener, "DELETE", "/flows", filter=filter_of(args),
            all="true" if args.all else ""))["deleted"]
    print(f"{count} deleted")
    return int(count < len(args.id))


def tag(listener: Listener, args: argparse.Namespace) -> int:
    ByListener(listener).mark(args.id, args.tag, args.comment)
    return 0


def replay(listener: Listener, args: argparse.Namespace) -> int:
    return replay_flow(read_flow(ByListener(listener), args.id)[1], args, listener)


def send(listener: Listener, args: argparse.Namespace) -> int:
    return send_new(args, listener)


def reads(listener: Listener, args: argparse.Namespace) -> int:
    for read in json.loads(fetch(listener, "GET", "/flows/reads")):
        print_read(read)
    return 0


def open_flows(listener: Listener, args: argparse.Namespace) -> int:
    """Prints the flows that have not ended, or one of them."""
    if not args.id:
        if args.follow:
            refuse("--follow", "takes an --id")
        rows = json.loads(fetch(
            listener, "GET", "/flows/open", filter=filter_of(args)))
        if args.json:
            print_lines(map(json.dumps, rows))
        else:
            print_flows(list(map(flow_of, rows)), False)
        return 0
    name = quote(args.id, safe="")
    if not args.follow:
        args.view, args.body = "auto", None
        return print_flow(read_flow(ByListener(listener, "/flows/open"), name)[1],
                          args)
    for kind, data in events(listener, f"/flows/open/{name}/live"):
        if kind == "end":
            return 0
        for message in data or ():
            print(json.dumps(message) if args.json else safe(line_of(message)),
                  flush=True)
    raise Unanswered("the stream was cut off")


_ACTIONS: dict[str, Callable[[Listener, argparse.Namespace], int]] = {
    "list": list_flows, "search": list_flows, "hosts": hosts, "slowest": list_slowest,
    "follow": follow, "show": show,
    "copy": copy, "diff": diff, "export": export, "import": import_flows,
    "delete": delete, "tag": tag, "replay": replay, "send": send, "reads": reads,
    "open": open_flows}
