"""The tools for a model that look at captured flows, or change them. Each method is
one, and its docstring the model's description."""

import json
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from cutthrough.capture.query import MOST_IMPORT, QueryError, Request
from cutthrough.capture.send import check_whole, replay_of
from cutthrough.capture.views import VIEWS, line_of
from cutthrough.exchange.content import octets_codec
from cutthrough.exchange.flow import find
from cutthrough.exchange.redaction.redactor import Options
from cutthrough.tools.flow_source import SIDES, FlowSource, read_flow
from cutthrough.tools.mcp_results import (
    MOST_BODY,
    MOST_RESULT,
    MOST_TEXT,
    USUAL_BODY,
    Secrets,
    body_of,
    bound,
    bounded,
    lines_of,
    report,
    report_answer,
    report_rows,
    report_text,
    shorten,
)

FORMS = ("curl", "fetch", "httpx", "json")
# Entries of an archive that are asked for together, because its reader has them all in
# memory; characters of a page of them, and seconds in which another may be begun
STEP, MOST_PAGE, PAGE_S = 10, MOST_RESULT // 2, 10.0


class FlowTools:
    def __init__(self, source: FlowSource, user: str = "", password: str = "",
                 secrets: Secrets = Options, folder: str = "") -> None:
        """`secrets`: which are removed from the answer to a request that is sent. None:
        not known. `folder`: has the files that may be imported."""
        self._source, self._folder = source, folder
        self._secrets = secrets
        self._user, self._password = user, password

    def list_flows(self, filter: str = "", before: int = 0, limit: int = 50
                   ) -> list[str]:
        """Lists captured requests, the newest first. `next` in the result is the
        `before` of the next page; null: there are no more."""
        return self._list(filter, "", before, limit)

    def search_flows(self, words: str, before: int = 0, limit: int = 50) -> list[str]:
        """Lists captured requests with all these whole words in their URL, heads or
        text bodies, the newest first. Of Chinese, Japanese, Korean or Thai any part of
        a text is found."""
        return self._list("", words, before, limit)

    def _list(self, filter: str, words: str, before: int, limit: int) -> list[str]:
        return report(self._source.list(filter=filter, words=words, before=before,
                                        limit=bounded(limit)))

    def hosts(self, filter: str = "", before: int = 0, limit: int = 50) -> list[str]:
        """Counts the captured requests of each host, those that failed, and bytes both
        ways; the hosts with the most first, `left` is the number of others. `next`:
        only requests from that one on were counted; give it as `before` for the
        rest."""
        return report(self._source.summary(
            "hosts", filter=filter, before=before, limit=bounded(limit)))

    def slowest_flows(self, filter: str = "", before: int = 0, limit: int = 20
                      ) -> list[str]:
        """Lists the slowest captured requests, tunnels left out, the slowest first.
        `next` is as in `hosts`."""
        return report(self._source.summary(
            "slowest", filter=filter, before=before, limit=bounded(limit)))

    def failures(self, filter: str = "", before: int = 0, limit: int = 50
                 ) -> list[str]:
        """Groups captured requests that failed or were refused: reason, side at fault,
        status, rule, their number, the newest one's id and host. `next` is as in
        `hosts`."""
        return report(self._source.summary(
            "failures", filter=filter, before=before, limit=bounded(limit)))

    def statistics(self, filter: str = "", before: int = 0) -> list[str]:
        """Counts captured requests: all, failed, tunnels, bytes, by status, method and
        content type; durations in ms (median, 90th, 99th percentile, maximum) without
        tunnels. `next` is as in `hosts`."""
        return report(self._source.summary(
            "statistics", filter=filter, before=before, limit=20))

    def show_flow(self, id: int, view: str = "auto", most: int = USUAL_BODY
                  ) -> list[str]:
        """Shows one captured request: decision, rule, phases in microseconds, heads,
        and of each body and of its messages at most `most` characters. `view`: auto,
        text, json, form, html, xml, hex, grpc, protobuf, msgpack or graphql."""
        if view not in VIEWS:
            raise ToolError(f"view: {view!r} is none of {', '.join(VIEWS)}")
        shown, flow = read_flow(self._source, id)
        cut = {}
        for side in SIDES:
            shown[f"{side}_head"] = lines_of(getattr(flow, f"{side}_head") or "")
            lines = body_of(flow, side, view)
            if lines is not None:
                shown[f"{side}_body"], left = bound(lines, 0, most)
                if left:
                    cut[f"{side}_body"] = left
        if flow.messages:
            shown["messages"], left = bound(
                "\n".join(map(line_of, flow.messages)), 0, most)
            if left:
                cut["messages"] = left
        return report(shown, cut, MOST_BODY)

    def read_body(self, id: int, side: str, offset: int = 0, most: int = USUAL_BODY,
                  view: str = "auto") -> list[str]:
        """Reads a part of one body (side: request or response) as show_flow shows it,
        from the character `offset` on."""
        if side not in SIDES or view not in VIEWS:
            raise ToolError(f"side is request or response, view one of "
                            f"{', '.join(VIEWS)}")
        text = body_of(read_flow(self._source, id)[1], side, view)
        if text is None:
            raise ToolError(f"no body of this {side} is kept")
        piece, left = bound(text, max(0, offset), most)
        return report({"offset": offset, "text": piece},
                      {"text": left} if left else {}, MOST_BODY)

    def read_messages(self, id: int, offset: int = 0, limit: int = 50) -> list[str]:
        """Lists the messages of a WebSocket or of a stream of server-sent events, from
        the one of number `offset` on."""
        messages = json.loads(self._source.messages(id))
        begin = max(0, offset)
        return report({"offset": begin, "of": len(messages),
                       "messages": messages[begin:begin + bounded(limit)]})

    def export_har(self, filter: str = "", id: int = 0, after: int = 0,
                   limit: int = 50, most: int = MOST_TEXT) -> list[str]:
        """Exports captured requests as an HTTP Archive (HAR 1.2): one by its id, or by
        pages those that pass the filter, the oldest first. `next` in the result is the
        `after` of the next page; null: there are no more. A page has `limit` entries,
        200 at most, or fewer if they are long; of each text at most `most` characters;
        `_flow` of an entry is its id."""
        most = min(max(most, 1), MOST_BODY)
        if id:
            return report(json.loads(self._source.har(filter=filter, number=id)), {},
                          most)
        entries: list[Any] = []
        end, room = time.monotonic() + PAGE_S, MOST_PAGE
        going_on: int | None = max(after, 0)
        log: dict[str, Any] = {}
        for rest, entry, behind in self._entries(
                filter, max(after, 0), bounded(limit)):
            log = rest
            if entry is not None:
                room -= len(json.dumps(shorten(entry, most, "", {})))
                if entries and room < 0:
                    break
                entries.append(entry)
            going_on = behind
            if len(entries) >= bounded(limit) or time.monotonic() > end:
                break
        return report({"log": {**log, "entries": entries}, "next": going_on}, {}, most)

    def _entries(self, filter: str, after: int | None, limit: int
                 ) -> Iterator[tuple[dict[str, Any], Any, int | None]]:
        """The entries behind a number, each with the rest of its archive's log and the
        number to go on from; None: an archive has ended."""
        while after is not None:
            log = json.loads(self._source.har(
                filter=filter, after=after, limit=min(limit, STEP)))["log"]
            entries, after = log.pop("entries"), log.pop("_next")
            for entry in entries:
                yield log, entry, entry["_flow"]
            yield log, None, after

    def copy_flow(self, id: int, form: str = "curl") -> list[str]:
        """Writes a captured request as a command of curl, a call of fetch or httpx, or
        as json. If values were not kept, its first line names them."""
        if form not in FORMS:
            raise ToolError(f"form: {form!r} is none of {', '.join(FORMS)}")
        return report_text("text", self._source.copy(id, form))

    def diff_flows(self, id: int, other: int) -> list[str]:
        """Shows the lines in which heads and bodies of two captured requests differ, as
        a unified diff; nothing if none do."""
        return report_text("diff", self._source.diff(id, other))

    def reads(self) -> list[str]:
        """Lists who has read captured requests, the newest first."""
        return report_rows("reads", self._source.reads())

    # Changes

    def tag_flow(self, id: int, tag: str | None = None, comment: str | None = None
                 ) -> list[str]:
        """Sets the tag or the comment of a captured request; "" removes it."""
        return report(self._source.mark(id, tag, comment))

    def delete_flow(self, id: int) -> list[str]:
        """Deletes a captured request for good."""
        return report(self._source.delete(id))

    def import_flows(self, file: str) -> list[str]:
        """Adds the exchanges of a file to the captured requests: of an HTTP Archive
        (HAR) or a dump of mitmproxy, without credentials. `file`: its path in the
        directory of imports. What is there already is not added again."""
        return report(self._source.import_file(
            read_below(self._folder, file), os.path.basename(file)[:200]))

    def replay_flow(self, id: int, method: str = "", url: str = "",
                    fields: dict[str, str] | None = None, body: str | None = None,
                    most: int = USUAL_BODY) -> list[str]:
        """Sends a captured request once more, through the proxy and under its policy.
        `method`, `url` and `body` replace its own; each of `fields` replaces those of
        its name, "" removes them. `body` is sent in the charset of its Content-Type.
        Redacted values were not kept: fields are left out, and a URL or a body with
        one needs another."""
        request, left = replay_of(read_flow(self._source, id)[1])
        changed = {name.lower(): value for name, value in (fields or {}).items()}
        unchanged = tuple(field for field in request.fields
                          if field[0].lower() not in changed)
        replaced = ["url"] * bool(url) + ["body"] * (body is not None)
        left = [part for part in left if part.lower() not in changed
                and part.partition(" ")[0] not in replaced]
        try:
            check_whole(left)
        except QueryError as error:
            raise ToolError(f"{error}: `url` or `body`") from None
        return self._send(method or request.method, url or request.url, unchanged,
                          fields, request.body if body is None else body, most, left)

    def send_request(self, url: str, method: str = "GET",
                     fields: dict[str, str] | None = None, body: str = "",
                     most: int = USUAL_BODY) -> list[str]:
        """Sends a new request through the proxy and under its policy. `body` is sent in
        the charset of its Content-Type."""
        return self._send(method, url, (), fields, body, most, [])

    def _send(self, method: str, url: str, kept: tuple[tuple[str, str], ...],
              fields: dict[str, str] | None, body: str | bytes, most: int,
              left: list[str]) -> list[str]:
        sent = kept + tuple(
            (name, value) for name, value in (fields or {}).items() if value)
        if isinstance(body, str):
            codec = octets_codec(body, find(list(sent), "content-type"))
            if not codec:
                raise ToolError("the body has characters beyond the charset of its "
                                "Content-Type: change that in `fields`")
            body = body.encode(codec)
        answer = self._source.send(Request(
            url=url, method=method, body=body, fields=sent, user=self._user,
            password=self._password))
        return report_answer(answer, left, most, self._secrets())


def read_below(folder: str, name: str) -> bytes:
    """A file in the folder or below. Raises ToolError and OSError."""
    folder = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(folder, name))
    if os.path.commonpath((folder, path)) != folder:
        raise ToolError(f"{name!r} is not below the directory of --import-from")
    # No link, after all, and no wait for the writer of a pipe
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ToolError(f"{name!r} is no regular file")
        content = file.read(MOST_IMPORT + 1)
    if len(content) > MOST_IMPORT:
        raise ToolError(f"{name!r} is longer than {MOST_IMPORT >> 20} MiB: `cutthrough "
                        "flows import` takes more")
    return content
