"""`cutthrough flows`: captured requests, from their database.

A file is its owner's alone, and a server asks for a password: who may open it may read
and change it, and gives no token. Each read is logged in the database itself.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cutthrough.capture.answers import read_rows, select
from cutthrough.capture.copies import copy_as, differences
from cutthrough.capture.filters import FilterError, Test, parse_filter
from cutthrough.capture.importing import (
    MOST_MEMORY,
    bound_memory,
    import_file,
    show_others,
    show_result,
)
from cutthrough.capture.query import MOST_ROWS, Query, QueryError
from cutthrough.capture.shown import LightRow, show_read
from cutthrough.capture.summaries import by_host, slowest
from cutthrough.capture.views import line_of, show_body
from cutthrough.config.config import ConfigError
from cutthrough.exchange.flow import Fields, Flow, find
from cutthrough.exchange.formats.har import make_archive
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.exchange.visible import visible
from cutthrough.storage.store import Reader, StoreError
from cutthrough.storage.stores import open_reader
from cutthrough.tools.database import find_database
from cutthrough.tools.replay import replay_flow, send_new

COLUMNS = ("ID", "TIME", "USER", "METHOD", "STATUS", "REASON", "MS", "BYTES", "URL")
# Of a line that comes alone
WIDTHS = (6, 12, 10, 7, 6, 14, 8, 9, 0)
# Between two looks for new flows
LOOK_S = 0.2
# Flows of one transaction of `delete`: the writer of a running proxy waits for its end
BATCH = 500
# Entries of an imported file that are named, each with its reason
MOST_ENTRIES = 100_000
PHASES = ("client_tls", "head", "auth", "hook", "dns", "connect", "origin_tls", "send",
          "wait", "receive", "held", "total")


def run(given: argparse.Namespace) -> int:
    """Runs one of the actions; returns the exit status. Raises ConfigError."""
    if given.action == "send":               # it needs no database
        return send_new(given)
    database = find_database(given.file, given.url_file, os.environ)
    try:
        test = parse_filter(" ".join(getattr(given, "filter", ())))
    except FilterError as error:
        raise ConfigError("command line", "FILTER", str(error)) from None
    try:
        if given.action == "import":         # which may make the file
            return import_flows(database, given)
        reader = open_reader(database)
        try:
            return _ACTIONS[given.action](reader, given, test)
        finally:
            reader.close()
    except StoreError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1


def _matching(reader: Reader, test: Test, limit: int, words: str = ""
              ) -> Iterator[Flow]:
    """The newest flows that pass, newest first; `limit` of them, 0: all."""
    found = 0
    for row in reader.flows(words):
        flow = Flow(row)
        if test(flow):
            yield flow
            found += 1
            if found == limit:
                return


def list_flows(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    flows = list(_matching(reader, test, given.limit))
    reader.log("list", " ".join(given.filter), len(flows))
    print_flows(flows, given.json)
    return 0


def search(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    words = " ".join(given.words)
    flows = list(_matching(reader, test, given.limit, words)) if words else []
    reader.log("search", " --filter ".join((words, *given.filter)), len(flows))
    print_flows(flows, given.json)
    return 0


def hosts(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    found = by_host(_light(reader, test))
    reader.log("hosts", " ".join(given.filter), len(found))
    print_hosts(found[:given.limit or None], given.json)
    return 0


def list_slowest(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    flows = slowest(_light(reader, test), given.limit)
    reader.log("slowest", " ".join(given.filter), len(flows))
    print_flows(flows, given.json)
    return 0


def _light(reader: Reader, test: Test) -> Iterator[Flow]:
    """All flows that pass; their bodies are read if the filter looks at them."""
    for row in read_rows(reader, Query(verb="list", database="")):
        flow = Flow(LightRow(row, reader))
        if test(flow):
            yield flow


def print_hosts(found: list[dict[str, Any]], as_objects: bool) -> None:
    if as_objects:
        print_lines(map(json.dumps, found))
        return
    print_table([("FLOWS", "FAILED", "BYTES", "HOST"), *(
        (*(str(one[name]) for name in ("count", "failed", "bytes")), one["host"])
        for one in found)])


def follow(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    """The newest flows, and then each that is captured, until it is interrupted."""
    if given.open:                           # they are in no database
        raise ConfigError("command line", "--open", "is for --admin")
    newest, text = reader.newest(), " ".join(given.filter)
    reader.log("watch", text, 0)
    if not given.json:
        print_line(None)
    found = list(_matching(reader, test, given.lines)) if given.lines else []
    for flow in reversed(found):
        if flow.id <= newest:                # a newer one comes again below
            follow_one(flow, given.json)
    while True:
        flows, last = select(reader, Query(
            verb="watch", database="", filter=text, after=newest), MOST_ROWS)
        newest = last or newest
        for flow in flows:
            follow_one(flow, given.json)
        if not flows:
            time.sleep(LOOK_S)               # nobody tells of a new row


def follow_one(flow: Flow, as_object: bool) -> None:
    if as_object:
        print(json.dumps(flow.as_dict()), flush=True)
    else:
        print_line(flow)


def show(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    flows = list(map(Flow, reader.flows(number=given.id)))
    reader.log("show", str(given.id), len(flows))
    if not flows:
        print(f"cutthrough: there is no flow {given.id}", file=sys.stderr)
        return 1
    return print_flow(flows[0], given)


def print_flow(flow: Flow, given: argparse.Namespace) -> int:
    if given.json:
        print(json.dumps({**flow.as_dict(), **{
            name: as_json(getattr(flow, name)) for name in (
                "request_head", "response_head", "request_body", "response_body",
                "request_trailers", "response_trailers")},
            **({"messages": flow.messages} if flow.messages else {})}))
        return 0
    if given.body:
        sys.stdout.flush()
        sys.stdout.buffer.write(flow.octets(given.body))
        return 0
    print("\n".join(lines_of(flow, given.view)))
    return 0


def find_flow(reader: Reader, number: int) -> Flow | None:
    """None: there is none, which is printed."""
    for row in reader.flows(number=number):
        return Flow(row)
    print(f"cutthrough: there is no flow {number}", file=sys.stderr)
    return None


def copy(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    flow = find_flow(reader, given.id)
    reader.log("copy", str(given.id), int(flow is not None))
    if flow is None:
        return 1
    if flow.kind == "tunnel":
        print(f"cutthrough: flow {flow.id} is a tunnel: there is no request",
              file=sys.stderr)
        return 1
    try:
        print(copy_as(flow, given.form), end="")
    except QueryError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    return 0


def diff(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    """Exit status 1 if there are differences, as diff(1) has it."""
    one, other = (find_flow(reader, number) for number in (given.id, given.other))
    reader.log("diff", f"{given.id} {given.other}", sum(
        flow is not None for flow in (one, other)))
    if one is None or other is None:
        return 2
    lines = list(differences(one, other))
    print("\n".join(map(safe, lines)) or "no difference")
    return int(bool(lines))


def export(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    if given.id:
        one = find_flow(reader, given.id)
        flows = [one] if one is not None else []
    else:
        flows = list(_matching(reader, test, given.limit))
    reader.log("export", str(given.id) if given.id else " ".join(given.filter),
               len(flows))
    if given.id and not flows:
        return 1
    archive = make_archive(flows)
    write_text(json.dumps(archive, ensure_ascii=False, indent=1), given.output)
    if left := archive["log"].get("_leftOut"):
        print(f"cutthrough: {len(left)} flows are left out: {left[0]['reason']}",
              file=sys.stderr)
    return int(bool(left))


def write_text(text: str, path: str | None) -> None:
    """To a file, or to standard output."""
    text = text.encode(errors="replace").decode()        # halves of characters
    if path is None:
        print(text)
        return
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def import_flows(database: str, given: argparse.Namespace) -> int:
    """Adds the exchanges of files; exit status 1 if one is refused."""
    refused = False
    bound_memory(MOST_MEMORY)
    for name in given.files:
        try:
            with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
                result = import_file(
                    file, database, name, keep_credentials=given.keep_credentials,
                    most_reasons=MOST_ENTRIES)
        except NotImported as error:
            print(safe(f"cutthrough: {name}: {error}"), file=sys.stderr)
            refused = True
            continue
        except OSError as error:
            print(safe(f"cutthrough: {name}: {error.strerror}"), file=sys.stderr)
            refused = True
            continue
        refused |= print_import(name, show_result(result))
    return int(refused)


def print_import(name: str, result: Mapping[str, Any]) -> bool:
    """`result`: as of show_result. Returns whether an exchange was refused."""
    for reason in (*result["reasons"], *result["notes"]):
        print(safe(f"cutthrough: {name}: {reason}"), file=sys.stderr)
    others = show_others(result["others"])
    print(safe(f"{name}: {result['imported']} imported, {result['known']} were there, "
               f"{result['refused']} refused{others and f', {others}'}"))
    return bool(result["refused"])


def delete(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    """Deletes the flows of these numbers, or those that pass the filter."""
    numbers = given.id or [flow.id for flow in _matching(reader, test, 0)]
    found = sum(reader.delete(numbers[at:at + BATCH])
                for at in range(0, len(numbers), BATCH))
    reader.log("delete", " ".join(map(str, given.id or given.filter)), found)
    print(f"{found} deleted")
    return int(found < len(given.id))


def tag(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    found = reader.mark(given.id, given.tag, given.comment)
    reader.log("tag", str(given.id), found)
    if not found:
        print(f"cutthrough: there is no flow {given.id}", file=sys.stderr)
    return int(not found)


def reads(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    for row in reader.reads():
        print_read(show_read(row))
    return 0


def print_read(read: dict[str, Any]) -> None:
    who = f"admin {read['client']}" if "client" in read else f"uid {read['uid']}"
    if "program" in read:
        who += f" at {read['program']}"
    print(safe(f"{read['time']}  {who}  {read['verb']} {read['what']}  "
               f"{read['found']} found"))


def replay(reader: Reader, given: argparse.Namespace, test: Test) -> int:
    flows = list(map(Flow, reader.flows(number=given.id)))
    reader.log("replay", str(given.id), len(flows))
    if not flows:
        print(f"cutthrough: there is no flow {given.id}", file=sys.stderr)
        return 1
    return replay_flow(flows[0], given)


_ACTIONS = {"list": list_flows, "search": search, "hosts": hosts,
            "slowest": list_slowest, "follow": follow, "show": show,
            "export": export, "copy": copy, "diff": diff, "delete": delete,
            "replay": replay, "tag": tag, "reads": reads}


def print_flows(flows: list[Flow], as_objects: bool) -> None:
    if as_objects:
        for flow in flows:
            print(json.dumps(flow.as_dict()))
        return
    tagged = any(flow.tag for flow in flows)
    rows = [(*COLUMNS[:-1], *(["TAG"] if tagged else []), COLUMNS[-1])]
    for flow in flows:
        *cells, url = cells_of(flow)
        rows.append((*cells, *([flow.tag or "-"] if tagged else []), url))
    print_table(rows)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(safe("  ".join(cell.ljust(width) for cell, width in
                             zip(row, widths, strict=True)).rstrip()))


def cells_of(flow: Flow) -> tuple[str, ...]:
    """Of COLUMNS."""
    return (str(flow.id), flow.begun.strftime("%H:%M:%S.%f")[:-3], flow.user or "-",
            flow.method, str(flow.status or "-"), flow.reason,
            f"{flow.total_us / 1000:.1f}", str(flow.bytes_up + flow.bytes_down),
            flow.url)


def print_line(flow: Flow | None) -> None:
    """A line that comes alone, at once; None: the heads of the columns."""
    cells = COLUMNS if flow is None else cells_of(flow)
    print(safe("  ".join(cell.ljust(width) for cell, width in
                         zip(cells, WIDTHS, strict=True))), flush=True)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def lines_of(flow: Flow, view: str = "auto") -> Iterator[str]:
    """The flow in words: one line for each fact, the phases, heads and bodies."""
    for key, value in flow.as_dict().items():
        if not key.endswith("_us"):
            yield safe(f"{key:<24}{value}")
    for phase in PHASES:
        us = getattr(flow, f"{phase}_us")
        if us is not None:
            yield f"{phase + '_ms':<24}{us / 1000:.3f}"
    for side in ("request", "response"):
        head, body = getattr(flow, f"{side}_head"), getattr(flow, f"{side}_body")
        if head:
            yield ""
            yield from (safe(line) for line in head.rstrip().splitlines())
        if body:
            yield ""
            fields: Fields = getattr(flow, f"{side}_fields")
            kind, coding = find(fields, "content-type"), find(fields, "grpc-encoding")
            yield from map(safe, show_body(body, kind, view, coding))
        trailers = getattr(flow, f"{side}_trailers")
        if trailers:
            yield ""
            yield from map(safe, trailers.splitlines())
    if flow.messages:
        yield ""
    for message in flow.messages:
        yield safe(line_of(message))


def as_json(value: str | bytes | None) -> Any:
    return {"latin-1": value.decode("latin-1")} if isinstance(value, bytes) else value


def safe(text: str) -> str:
    """A line for a terminal."""
    return visible(text, "\t\xa0")
