"""`cutthrough flows`: captured requests, from their database.

A file is its owner's alone, and a server asks for a password. If a user may open the
database, the user may read and change it, and gives no token. Each read is logged in
the database itself.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
from cutthrough.capture.selection import read_rows, select
from cutthrough.capture.shown import LightRow, show_read
from cutthrough.capture.summaries import by_host, slowest
from cutthrough.capture.views import choose, line_of, show_body
from cutthrough.config.config import ConfigError
from cutthrough.exchange.flow import Fields, Flow, find
from cutthrough.exchange.formats.har import make_archive
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.exchange.visible import visible
from cutthrough.storage.sqlite_store import SqliteReader
from cutthrough.storage.store import Reader, StoreError
from cutthrough.storage.stores import open_reader
from cutthrough.tools.database import find_database
from cutthrough.tools.replay import replay_flow, send_new

COLUMNS = ("ID", "TIME", "USER", "METHOD", "STATUS", "REASON", "MS", "BYTES", "URL")
# Of a line that comes alone
WIDTHS = (6, 12, 10, 7, 6, 14, 8, 9, 0)
# Between two looks for new flows
LOOK_S = 0.2
# Flows of one transaction of `delete`. The writer of a running proxy waits for its end
BATCH = 500
# Entries of an imported file that are named, each with its reason
MOST_ENTRIES = 100_000
# Lines of a body in hex, if it is not asked for
SHORT_HEX = 8
PHASES = ("client_tls", "head", "auth", "hook", "dns", "connect", "origin_tls", "send",
          "wait", "receive", "held", "total")


def run(args: argparse.Namespace) -> int:
    """Runs one of the actions; returns the exit status. Raises ConfigError."""
    if args.action == "send":                # it needs no database
        return send_new(args)
    database = find_database(args.file, args.url_file, os.environ)
    try:
        test = parse_filter(" ".join(getattr(args, "filter", ())))
    except FilterError as error:
        raise ConfigError("command line", "FILTER", str(error)) from None
    try:
        if args.action == "import":          # which may make the file
            return import_flows(database, args)
        reader = open_reader(database)
        try:
            return _ACTIONS[args.action](reader, args, test)
        finally:
            reader.close()
    except StoreError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1


def _matching(reader: Reader, test: Test, limit: int, words: str = ""
              ) -> Iterator[Flow]:
    """The newest flows that pass, newest first; `limit` of them, 0: all."""
    count = 0
    for row in reader.flows(words):
        flow = Flow(row)
        if test(flow):
            yield flow
            count += 1
            if count == limit:
                return


def list_flows(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    flows = list(_matching(reader, test, args.limit))
    reader.log("list", " ".join(args.filter), len(flows))
    print_flows(flows, args.json)
    return 0


def search(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    words = " ".join(args.words)
    flows = list(_matching(reader, test, args.limit, words)) if words else []
    reader.log("search", " --filter ".join((words, *args.filter)), len(flows))
    print_flows(flows, args.json)
    return 0


def hosts(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    rows = by_host(_light(reader, test))
    reader.log("hosts", " ".join(args.filter), len(rows))
    print_hosts(rows[:args.limit or None], args.json)
    return 0


def list_slowest(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    flows = slowest(_light(reader, test), args.limit)
    reader.log("slowest", " ".join(args.filter), len(flows))
    print_flows(flows, args.json)
    return 0


def _light(reader: Reader, test: Test) -> Iterator[Flow]:
    """All flows that pass; their bodies are read if the filter looks at them."""
    for row in read_rows(reader, Query(verb="list", database="")):
        flow = Flow(LightRow(row, reader))
        if test(flow):
            yield flow


def print_hosts(rows: list[dict[str, Any]], as_objects: bool) -> None:
    if as_objects:
        print_lines(map(json.dumps, rows))
        return
    print_table([("FLOWS", "FAILED", "BYTES", "HOST"), *(
        (*(str(row[name]) for name in ("count", "failed", "bytes")), row["host"])
        for row in rows)])


def follow(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    """The newest flows, and then each that is captured, until it is interrupted."""
    if args.open:                            # they are in no database
        raise ConfigError("command line", "--open", "is for --admin")
    newest, text = reader.newest(), " ".join(args.filter)
    reader.log("watch", text, 0)
    if not args.json:
        print_line(None)
    recent = list(_matching(reader, test, args.lines)) if args.lines else []
    for flow in reversed(recent):
        if flow.id <= newest:                # a newer one comes again below
            follow_one(flow, args.json)
    while True:
        flows, last = select(reader, Query(
            verb="watch", database="", filter=text, after=newest), MOST_ROWS)
        newest = last or newest
        for flow in flows:
            follow_one(flow, args.json)
        if not flows:
            if isinstance(reader, SqliteReader):
                reader.check_place()
            time.sleep(LOOK_S)               # nobody tells of a new row


def follow_one(flow: Flow, as_object: bool) -> None:
    if as_object:
        print(json.dumps(flow.as_dict()), flush=True)
    else:
        print_line(flow)


def show(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    flows = list(map(Flow, reader.flows(number=args.id)))
    reader.log("show", str(args.id), len(flows))
    if not flows:
        print(f"cutthrough: there is no flow {args.id}", file=sys.stderr)
        return 1
    return print_flow(flows[0], args)


def print_flow(flow: Flow, args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps({**flow.as_dict(), **{
            name: as_json(getattr(flow, name)) for name in (
                "request_head", "response_head", "request_body", "response_body",
                "request_trailers", "response_trailers")},
            **({"messages": flow.messages} if flow.messages else {})}))
        return 0
    if args.body:
        sys.stdout.flush()
        sys.stdout.buffer.write(flow.octets(args.body))
        return 0
    lines = lines_of(flow, args.view, 0 if args.view == "hex" else SHORT_HEX)
    print("\n".join(fitting(lines)))
    return 0


def find_flow(reader: Reader, number: int) -> Flow | None:
    """None: there is none, which is printed."""
    for row in reader.flows(number=number):
        return Flow(row)
    print(f"cutthrough: there is no flow {number}", file=sys.stderr)
    return None


def copy(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    flow = find_flow(reader, args.id)
    reader.log("copy", str(args.id), int(flow is not None))
    if flow is None:
        return 1
    if flow.is_tunnel:
        print(f"cutthrough: flow {flow.id} is a tunnel: there is no request",
              file=sys.stderr)
        return 1
    try:
        print(copy_as(flow, args.form), end="")
    except QueryError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    return 0


def diff(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    """Exit status 1 if there are differences, as diff(1) has it."""
    first, other = (find_flow(reader, number) for number in (args.id, args.other))
    reader.log("diff", f"{args.id} {args.other}", sum(
        flow is not None for flow in (first, other)))
    if first is None or other is None:
        return 2
    lines = list(differences(first, other))
    print("\n".join(map(safe, lines)) or "no difference")
    return int(bool(lines))


def export(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    if args.id:
        flow = find_flow(reader, args.id)
        flows = [flow] if flow is not None else []
    else:
        flows = list(_matching(reader, test, args.limit))
    reader.log("export", str(args.id) if args.id else " ".join(args.filter),
               len(flows))
    if args.id and not flows:
        return 1
    archive = make_archive(flows)
    write_text(json.dumps(archive, ensure_ascii=False, indent=1), args.output)
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


def import_flows(database: str, args: argparse.Namespace) -> int:
    """Adds the exchanges of files; exit status 1 if one is refused."""
    refused = False
    bound_memory(MOST_MEMORY)
    for name in args.files:
        try:
            with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
                result = import_file(
                    file, database, name, keep_credentials=args.keep_credentials,
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


def delete(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    """Deletes the flows of these numbers, or those that pass the filter."""
    numbers = args.id or [flow.id for flow in _matching(reader, test, 0)]
    count = sum(reader.delete(numbers[at:at + BATCH])
                for at in range(0, len(numbers), BATCH))
    reader.log("delete", " ".join(map(str, args.id or args.filter)), count)
    print(f"{count} deleted")
    return int(count < len(args.id))


def tag(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    count = reader.mark(args.id, args.tag, args.comment)
    reader.log("tag", str(args.id), count)
    if not count:
        print(f"cutthrough: there is no flow {args.id}", file=sys.stderr)
    return int(not count)


def reads(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    for row in reader.reads():
        print_read(show_read(row))
    return 0


def print_read(read: dict[str, Any]) -> None:
    who = f"admin {read['client']}" if "client" in read else f"uid {read['uid']}"
    if "program" in read:
        who += f" at {read['program']}"
    print(safe(f"{read['time']}  {who}  {read['verb']} {read['what']}  "
               f"{read['found']} found"))


def replay(reader: Reader, args: argparse.Namespace, test: Test) -> int:
    flows = list(map(Flow, reader.flows(number=args.id)))
    reader.log("replay", str(args.id), len(flows))
    if not flows:
        print(f"cutthrough: there is no flow {args.id}", file=sys.stderr)
        return 1
    return replay_flow(flows[0], args)


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
    """Returns the cells of a flow, in the order of COLUMNS."""
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


def lines_of(flow: Flow, view: str = "auto", most_hex: int = 0) -> Iterator[str]:
    """The flow in words: heads and bodies, messages, then the phases and one line for
    each fact. `most_hex`: lines of a body in hex, 0: all."""
    for side in ("request", "response"):
        head, body = getattr(flow, f"{side}_head"), getattr(flow, f"{side}_body")
        if head:
            yield from (safe(line) for line in head.rstrip().splitlines())
            yield ""
        if body:
            fields: Fields = getattr(flow, f"{side}_fields")
            kind, coding = find(fields, "content-type"), find(fields, "grpc-encoding")
            lines = show_body(body, kind, view, coding)
            if most_hex and view == "auto" and choose(body, kind) == "hex":
                lines = shortened(
                    lines, most_hex, len(body), f"{flow.id} --body {side}")
            yield from map(safe, lines)
            yield ""
        trailers = getattr(flow, f"{side}_trailers")
        if trailers:
            yield from map(safe, trailers.splitlines())
            yield ""
    for message in flow.messages:
        yield safe(line_of(message))
    if flow.messages:
        yield ""
    for key, value in flow.as_dict().items():
        if not key.endswith("_us"):
            yield safe(f"{key:<24}{value}")
    for phase in PHASES:
        us = getattr(flow, f"{phase}_us")
        if us is not None:
            yield f"{phase + '_ms':<24}{us / 1000:.3f}"


def shortened(lines: Iterable[str], most: int, size: int, words: str) -> Iterator[str]:
    """The first lines of a body in hex; `words`: of `flows show`, for all of it."""
    for number, line in enumerate(lines):
        if number == most:
            yield (f"… {size} bytes: --view hex shows all, cutthrough flows show "
                   f"{words} prints them")
            return
        yield line


def fitting(lines: Iterable[str]) -> Iterator[str]:
    """Cut to the terminal's width, if standard output is one."""
    if not sys.stdout.isatty():
        yield from lines
        return
    width = shutil.get_terminal_size().columns
    for line in lines:
        yield line if len(line) <= width else f"{line[:width - 1]}…"


def as_json(value: str | bytes | None) -> Any:
    return {"latin-1": value.decode("latin-1")} if isinstance(value, bytes) else value


def safe(text: str) -> str:
    """A line for a terminal."""
    return visible(text, "\t\xa0")
