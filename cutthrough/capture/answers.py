"""Answers the admin listener's queries from the database.

A page of the list takes a bounded time: if few flows pass a filter, it ends early,
with the number to go on from. Bodies are read only if a filter looks at them. A read is
logged in the database before its answer (R59).
"""

import io
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec

from cutthrough.capture.archives import make_page, write_archive
from cutthrough.capture.copies import copy_as, differences
from cutthrough.capture.filters import FilterError, Test, parse_filter
from cutthrough.capture.importing import import_file, show_result
from cutthrough.capture.opened import OpenReader, read_opened, whole_messages
from cutthrough.capture.pasted import read_curl
from cutthrough.capture.preview import make_preview
from cutthrough.capture.query import MOST_ROWS, Answer, Query, QueryError
from cutthrough.capture.selection import BATCH, read_rows, select
from cutthrough.capture.send import redact_answer, send
from cutthrough.capture.shown import (
    LightRow,
    add_shown,
    bound,
    show_open,
    show_read,
    show_row,
)
from cutthrough.capture.summaries import SUMMARIES
from cutthrough.capture.views import VIEWS, show_body, views_of
from cutthrough.config.database import show_database
from cutthrough.exchange.content import as_text
from cutthrough.exchange.flow import Flow, read_fields
from cutthrough.exchange.flow import find as flow_find
from cutthrough.exchange.formats.har import has_entry
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.exchange.redaction.redactor import Redactor
from cutthrough.storage.store import NoStore, Reader, StoreError
from cutthrough.storage.stores import open_reader

# Seconds after which a summary ends with its results so far
SUMMARY_S = 5.0
# Bytes that are written at a time
PIECE = 256 << 10
# The view of HTML that is HTML again
PREVIEW = "preview"
# Entries of a page of an archive, whose bodies are in memory together
MOST_ENTRIES = 50
# Characters of a tag and of a comment
MOST_TAG, MOST_COMMENT = 64, 2000

Result = tuple[Answer, Iterable[bytes]]
encode = msgspec.json.encode


def answer(query: Query, content: bytes = b"") -> Result:
    """The answer, or a refusal in words. The answer's content is made when it is
    taken. `content`: a file to be imported."""
    try:
        if query.verb == "send":
            return _send(query)
        if query.verb == "import":
            return _import(query, content)
        if query.verb == "curl":
            return _json(read_curl(query.words), 1)
        reader = open_reader(query.database, keep=True)
        try:
            if query.settings is not None:
                reader = cast(Reader, OpenReader(      # verbs of exchanges in hand
                    reader, read_opened(content, query.settings)))  # need no more
            head, pieces = _ANSWERS[query.verb](reader, query)
        except BaseException:
            reader.close()
            raise
        return head, _closing(reader, pieces)
    except QueryError as error:
        return _words(error.status, str(error))
    except FilterError as error:
        return _words(400, f"filter: {error}")
    except NoStore:
        return _words(404, "nothing has been captured yet")
    except StoreError as error:
        return _words(503, str(error))
    except OSError as error:                 # of a file that import would make
        return _words(503, f"{show_database(query.database)}: "
                           f"{error.strerror or error}")


def _words(status: int, text: str) -> Result:
    return Answer(status=status, kind="text/plain"), [f"{text}\n".encode()]


def _closing(reader: Reader, pieces: Iterable[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    finally:
        reader.close()


def _json(value: Any, count: int, last: int = 0) -> Result:
    return Answer(found=count, last=last), [encode(value)]


# Lists

def _list(reader: Reader, query: Query) -> Result:
    newest = reader.newest()                 # who follows gets those behind it
    if query.after is None and not query.before:
        query = msgspec.structs.replace(query, before=newest + 1)
    flows, last = select(reader, query, min(max(query.limit, 1), MOST_ROWS))
    reader.log("search" if query.words else "list", query.words or query.filter,
               len(flows), query.client)
    return _json({"flows": [show_row(flow) for flow in flows], "next": last or None,
                  "newest": newest}, len(flows))


class _Bounded:
    """The flows that pass, newest first, as many as there is time for. `next`: the
    number to go on from; 0: all were looked at."""

    def __init__(self, reader: Reader, query: Query) -> None:
        self._rows = read_rows(reader, query)
        self._reader, self._test = reader, parse_filter(query.filter)
        self.next = 0

    def __iter__(self) -> Iterator[Flow]:
        end = time.monotonic() + SUMMARY_S
        for row in self._rows:
            self.next = row["id"]
            flow = Flow(LightRow(row, self._reader))
            if self._test(flow):
                yield flow
            if time.monotonic() > end:
                return
        self.next = 0


def _summary(reader: Reader, query: Query) -> Result:
    flows = _Bounded(reader, query)
    content, count = SUMMARIES[query.verb](flows, query.limit)
    reader.log(query.verb, query.filter, count, query.client)
    return _json({**content, "next": flows.next or None}, count)


def _watch(reader: Reader, query: Query) -> Result:
    """The flows after a number. An answer is logged only if the query has no number, as
    the first one."""
    if query.after is None:
        parse_filter(query.filter)
        reader.log("watch", query.filter, 0, query.client)
        return Answer(last=reader.newest()), []
    after = reader.resume(query.after)
    flows, last = select(
        reader, msgspec.structs.replace(query, after=after), MOST_ROWS)
    return Answer(found=len(flows), last=last or after), (
        [encode([show_row(flow) for flow in flows])] if flows else [])


def _open(reader: Reader, query: Query) -> Result:
    """Answers with the flows in hand. They are logged once: see _tail."""
    test = parse_filter(query.filter)
    assert isinstance(reader, OpenReader)
    flows = [flow for flow in map(Flow, reader.rows) if test(flow)]
    if query.after is None:
        reader.log("list", query.filter, len(flows), query.client)
    return _json([show_open(flow) for flow in flows], len(flows))


def _reads(reader: Reader, query: Query) -> Result:
    """The readers of the database, newest first."""
    rows = [show_read(row) for row in reader.reads()]
    return _json(rows, len(rows))


# One flow

def find(reader: Reader, query: Query) -> Flow:
    what = str(query.number) if query.settings is None else query.name
    row = reader.light(query.number)
    if query.verb != "tail" or query.after is None:
        reader.log(query.verb, what, int(row is not None), query.client)
    if row is None:
        raise QueryError(f"there is no flow {what}", 404)
    return Flow(LightRow(row, reader))


def _show(reader: Reader, query: Query) -> Result:
    flow = find(reader, query)
    shown = {key: value for key, value in flow.as_dict().items() if value != ""}
    for side in ("request", "response"):
        shown[f"{side}_head"] = getattr(flow, f"{side}_head")
        shown[f"{side}_type"] = getattr(flow, f"{side}_type")
        if trailers := getattr(flow, f"{side}_trailers"):
            shown[f"{side}_trailers"] = trailers
        body = getattr(flow, f"{side}_body")
        shown[f"{side}_body"] = "none" if not body else (
            "text" if isinstance(body, str) else "bytes")
        if body and isinstance(body, str):
            shown[f"{side}_charset"] = flow.charset_of(side) or "utf-8"
        if body:
            shown[f"{side}_views"] = shown_views(body, getattr(flow, f"{side}_type"))
    if query.settings is not None:
        shown["open"] = True
    shown["messages"] = len(flow.messages)
    return _json(shown, 1)


def shown_views(body: str | bytes, kind: str) -> list[str]:
    views = views_of(body, kind)
    return [*views, PREVIEW] if views[0] == "html" else views


def _messages(reader: Reader, query: Query) -> Result:
    """If a view is asked for, text in JSON is also there as it is shown."""
    messages = find(reader, query).messages
    if query.view:
        add_shown(messages)
    return _json(messages, 1)


def _tail(reader: Reader, query: Query) -> Result:
    """The messages of an exchange in hand from a number on. An answer is logged only if
    the query has no number, as the first one."""
    messages = whole_messages(find(reader, query))
    new = messages[query.after or 0:]
    if query.view:
        add_shown(new)
    return _json(new, 1, len(messages))


def _ended(reader: Reader, query: Query) -> Result:
    """The number of an exchange that was in hand, and its messages from a number on."""
    for row in reader.page((1 << 63) - 1, BATCH):
        if row["request"] == query.name:
            new = Flow(LightRow(row, reader)).messages[query.after or 0:]
            if query.view:
                add_shown(new)
            return _json({"id": row["id"], "messages": new}, 1)
    raise QueryError(f"{query.name} is not written", 404)


def _body(reader: Reader, query: Query) -> Result:
    if query.view not in ("", *VIEWS, PREVIEW):
        raise QueryError(f"view: {query.view!r} is none of "
                         f"{', '.join((*VIEWS, PREVIEW))}", 400)
    flow = find(reader, query)
    body = getattr(flow, f"{query.verb}_body")
    if body is None:
        raise QueryError(f"no body of this {query.verb} is kept", 404)
    if query.view == PREVIEW:
        data = make_preview(
            body if isinstance(body, str) else body.decode("latin-1")).encode()
    elif query.view:
        fields = getattr(flow, f"{query.verb}_fields")
        lines = show_body(body, flow_find(fields, "content-type"), query.view,
                          flow_find(fields, "grpc-encoding"))
        return Answer(kind="text/plain", found=1,
                      name=f"flow-{query.number}-{query.verb}.txt"), _lines(lines)
    else:
        data = flow.octets(query.verb)
    # Never its own type, because a browser must not run it when it opens the address
    return Answer(kind="application/octet-stream", found=1,
                  name=f"flow-{query.number}-{query.verb}.bin"), _pieces(data)


def _copy(reader: Reader, query: Query) -> Result:
    flow = find(reader, query)
    if flow.is_tunnel:
        raise QueryError(f"flow {query.number} is a tunnel: there is no request", 409)
    text = copy_as(flow, query.form)
    if query.form == "json":
        return Answer(found=1), [text.encode()]
    return _text(text, f"flow-{query.number}-{query.form}.txt")


def _diff(reader: Reader, query: Query) -> Result:
    flow = find(reader, query)
    other = find(reader, msgspec.structs.replace(query, number=query.other))
    return _text("".join(f"{line}\n" for line in differences(flow, other)),
                 f"flow-{query.number}-{query.other}.diff")


def _text(text: str, name: str) -> Result:
    return Answer(kind="text/plain", found=1, name=name), _pieces(
        text.encode(errors="replace"))


def _lines(lines: Iterable[str]) -> Iterator[bytes]:
    piece: list[str] = []
    size = 0
    for line in bound(lines):
        piece.append(f"{line}\n")
        size += len(line) + 1
        if size >= PIECE:
            yield "".join(piece).encode(errors="replace")
            piece.clear()
            size = 0
    yield "".join(piece).encode(errors="replace")


def _pieces(data: bytes, size: int = PIECE) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at:at + size]


def _mark(reader: Reader, query: Query) -> Result:
    for value, most, name in ((query.tag, MOST_TAG, "tag"),
                              (query.comment, MOST_COMMENT, "comment")):
        if value is not None and len(value) > most:
            raise QueryError(f"{name}: longer than {most} characters", 400)
    if not reader.mark(query.number, query.tag, query.comment):
        raise QueryError(f"there is no flow {query.number}", 404)
    return _json({"marked": query.number}, 1)


# Many flows

def _numbers(reader: Reader, query: Query, test: Test) -> list[tuple[int, int]]:
    """Begin and number of each passing flow, oldest first."""
    pairs = []
    for row in read_rows(reader, query):
        flow = Flow(LightRow(row, reader))
        if test(flow):
            pairs.append((flow.begun_us, flow.id))
    return sorted(pairs)


def _delete(reader: Reader, query: Query) -> Result:
    if not (query.number or query.filter.strip() or query.all):
        raise QueryError("no flows are selected", 400)
    numbers = [query.number] if query.number else [
        number for _, number in _numbers(reader, query, parse_filter(query.filter))]
    count = 0
    for at in range(0, len(numbers), BATCH):
        count += reader.delete(numbers[at:at + BATCH])
    reader.log("delete", str(query.number or query.filter), count, query.client)
    return _json({"deleted": count}, count)


def _har(reader: Reader, query: Query) -> Result:
    if query.after is not None:
        return _har_page(reader, query)
    test = parse_filter(query.filter)
    if query.number:
        numbers = [(0, query.number)]
    else:
        numbers = _numbers(reader, query,
                           lambda flow: has_entry(flow) and test(flow))
    reader.log("export", str(query.number or query.filter), len(numbers), query.client)
    return Answer(kind="application/json", name="flows.har", found=len(numbers)), (
        write_archive(reader, numbers))


def _har_page(reader: Reader, query: Query) -> Result:
    """The archive of the flows behind a number."""
    newest = reader.newest()
    flows, last = select(reader, query, min(max(query.limit, 1), MOST_ENTRIES))
    reader.log("export", query.filter, len(flows), query.client)
    return Answer(name="flows.har", found=len(flows)), _pieces(
        make_page(flows, last if last and last < newest else None))


def _send(query: Query) -> Result:
    if query.request is None:
        raise QueryError("no request is given", 400)
    response = send(query.request, query.proxy, query.authorities)
    if query.settings is not None:
        response = redact_answer(response, Redactor(query.settings.redaction))
    if query.view:
        add_view(response)
    return _json(response, 1)


def add_view(response: dict[str, Any]) -> None:
    """Adds the views of a response that was sent for, and the first one's text."""
    data = b64decode(response["body"])
    fields = read_fields(response["head"])
    kind = flow_find(fields, "content-type")
    text = as_text(data, kind, whole=not response["truncated"])
    body = data if text is None else text
    response["views"] = views_of(body, kind) if body else []
    if response["views"]:
        response["shown"] = "\n".join(bound(show_body(
            body, kind, response["views"][0], flow_find(fields, "grpc-encoding"))))


def _import(query: Query, content: bytes) -> Result:
    """Adds the exchanges of a file, as `cutthrough flows import` does."""
    try:
        result = import_file(io.BytesIO(content), query.database, query.name,
                             query.client, keep=True)
    except NotImported as error:
        raise QueryError(f"the file {error}", 400) from None
    return _json(show_result(result), result.added)


_ANSWERS: dict[str, Callable[[Reader, Query], Result]] = {
    "list": _list, "watch": _watch, "show": _show, "request": _body, "response": _body,
    "messages": _messages, "open": _open, "tail": _tail, "ended": _ended,
    "reads": _reads, "har": _har, "delete": _delete, "mark": _mark, "copy": _copy,
    "diff": _diff,
    **dict.fromkeys(SUMMARIES, _summary)}
