"""Captured flows for a program of the operator: by the admin listener, with its token,
or from the database, with the rights of its file. Both give the same objects.

A database is read by a process of its own (capture/query_process.py), because a filter
over many large bodies may take long. After ANSWER_S the process is killed.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, Protocol
from urllib.parse import quote, urlencode

import msgspec

from cutthrough.capture.query import MOST_FRAME, Answer, Query, Request
from cutthrough.config.database import is_url, show_database
from cutthrough.exchange.flow import Flow
from cutthrough.process.environment import worker_environment
from cutthrough.tools.console import STRANGER, Listener, Unanswered

# Until the next piece of an answer; a request to be sent has 30 s of its own, and a
# file to be imported two minutes
ANSWER_S, SEND_S, IMPORT_S = 20.0, 40.0, 150.0
# Between two looks for new flows in a database
LOOK_S = 1.0
SIDES = ("request", "response")

Summary = Literal["hosts", "slowest", "failures", "statistics"]
Rows = list[dict[str, Any]]


class FlowSource(Protocol):
    """All raise Unanswered."""

    def list(self, *, filter: str, words: str, before: int, limit: int
             ) -> dict[str, Any]: ...
    def summary(self, verb: Summary, *, filter: str, before: int, limit: int
                ) -> dict[str, Any]: ...
    def show(self, number: int) -> dict[str, Any]: ...
    def body(self, number: int, side: str) -> bytes: ...
    def messages(self, number: int) -> bytes: ...
    def har(self, *, filter: str, number: int = 0, after: int | None = None,
            limit: int = 0) -> bytes: ...
    def copy(self, number: int, form: str) -> str: ...
    def diff(self, number: int, other: int) -> str: ...
    def reads(self) -> Rows: ...
    def delete(self, number: int) -> dict[str, Any]: ...
    def mark(self, number: int, tag: str | None, comment: str | None
             ) -> dict[str, Any]: ...
    def send(self, request: Request) -> dict[str, Any]: ...
    def import_file(self, content: bytes, name: str) -> dict[str, Any]: ...
    def follow(self) -> Iterator[bool]: ...


class ByListener:
    """Flows by the admin listener: docs/traffic.md. `area`: the path of their list,
    which has those that are read one by one."""

    def __init__(self, listener: Listener, area: str = "/flows") -> None:
        self._listener = listener
        self._area = area

    def _ask(self, method: str, path: str, value: object = None,
             patience_s: float = ANSWER_S) -> dict[str, Any]:
        body = None if value is None else msgspec.json.encode(value)
        answer: dict[str, Any] = self._read(
            self._listener.fetch(method, path, body, patience_s), dict)
        return answer

    def _read(self, text: bytes, kind: Any) -> Any:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError:              # another server's, or a gateway's
            raise Unanswered(f"{self._listener.where}: {STRANGER}") from None

    def list(self, *, filter: str, words: str, before: int, limit: int
             ) -> dict[str, Any]:
        query = {"filter": filter, "search": words, "limit": limit,
                 **({"before": before} if before else {})}
        return self._ask("GET", "/flows?" + urlencode(query, quote_via=quote))

    def summary(self, verb: Summary, *, filter: str, before: int, limit: int
                ) -> dict[str, Any]:
        query = {"filter": filter, "limit": limit,
                 **({"before": before} if before else {})}
        return self._ask("GET", f"/flows/{verb}?" + urlencode(query, quote_via=quote))

    def show(self, number: int | str) -> dict[str, Any]:
        return self._ask("GET", f"{self._area}/{number}")

    def body(self, number: int | str, side: str) -> bytes:
        return self._listener.fetch(
            "GET", f"{self._area}/{number}/{side}-body", None, ANSWER_S)

    def messages(self, number: int | str) -> bytes:
        return self._listener.fetch(
            "GET", f"{self._area}/{number}/messages", None, ANSWER_S)

    def har(self, *, filter: str, number: int = 0, after: int | None = None,
            limit: int = 0) -> bytes:
        """`after`: a page of so many entries, see /flows.har in docs/traffic.md."""
        query = {"filter": filter, **({"id": number} if number else {}),
                 **({} if after is None else {"after": after, "limit": limit})}
        return self._listener.fetch(
            "GET", "/flows.har?" + urlencode(query, quote_via=quote), None, ANSWER_S)

    def copy(self, number: int, form: str) -> str:
        return self._listener.ask("GET", f"/flows/{number}/as/{form}")

    def diff(self, number: int, other: int) -> str:
        return self._listener.ask("GET", f"/flows/{number}/diff/{other}")

    def reads(self) -> Rows:
        rows: Rows = self._read(self._listener.fetch("GET", "/flows/reads"), list)
        return rows

    def delete(self, number: int) -> dict[str, Any]:
        return self._ask("DELETE", f"/flows/{number}")

    def mark(self, number: int, tag: str | None, comment: str | None
             ) -> dict[str, Any]:
        marks = {"tag": tag, "comment": comment}
        return self._ask("PATCH", f"/flows/{number}", {
            name: value for name, value in marks.items() if value is not None})

    def send(self, request: Request) -> dict[str, Any]:
        return self._ask("POST", "/flows/send", request, SEND_S)

    def import_file(self, content: bytes, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._read(self._listener.fetch(
            "POST", "/flows/import?" + urlencode({"name": name}, quote_via=quote),
            content, IMPORT_S), dict)
        return answer

    def follow(self) -> Iterator[bool]:
        """Yields whether there may be flows that the yield before did not know; at the
        latest with the stream's next sign of life. Raises Unanswered in the end."""
        newest = self.list(filter="", words="", before=0, limit=1).get("newest", 0)
        yield True
        for line in self._listener.lines(f"/flows/live?after={newest}"):
            yield line.startswith(b"data: ")


class ByDatabase:
    """Flows of a database, a path or a URL. `proxy`: for requests to be sent, and the
    authorities in PEM of its tunnels. `close` ends the process."""

    def __init__(self, database: str, proxy: tuple[str, int] | None = None,
                 authorities: str = "") -> None:
        self._database = database if is_url(database) else os.path.abspath(database)
        self._shown = show_database(self._database)
        self._proxy, self._authorities = proxy, authorities
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def _ask(self, verb: Any, **fields: Any) -> bytes:
        return self._answer(verb, **fields)[1]

    def _answer(self, verb: Any, file: bytes = b"", wait_s: float = ANSWER_S,
                **fields: Any) -> tuple[Answer, bytes]:
        try:
            query = msgspec.json.encode(Query(
                verb=verb, database=self._database, size=len(file), **fields))
            msgspec.json.decode(query, type=Query)      # its reader would end by it
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise Unanswered(str(error)) from None
        try:
            self._write(query, file)
            head = msgspec.json.decode(self._frame(wait_s), type=Answer)
            pieces = []
            while piece := self._frame(ANSWER_S):
                pieces.append(piece)
        except TimeoutError:
            self.close()
            raise Unanswered(f"{self._shown}: no answer in time; a simpler filter may "
                             "help") from None
        except OSError as error:
            self.close()
            raise Unanswered(f"{self._shown}: {error.strerror or error}") from None
        content = b"".join(pieces)
        if head.status >= 400:
            raise Unanswered(content.decode(errors="replace").strip())
        return head, content

    def _write(self, data: bytes, file: bytes) -> None:
        """A query, and the file that follows it."""
        if len(data) > MOST_FRAME:
            raise Unanswered("the request is too long")
        if self._channel is None:
            self._channel, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "cutthrough.capture.query_process",
                     str(theirs.fileno())], env=worker_environment(),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),))
        self._channel.settimeout(ANSWER_S)
        self._channel.sendall(len(data).to_bytes(4, "little") + data)
        self._channel.sendall(file)

    def _frame(self, wait_s: float) -> bytes:
        assert self._channel is not None
        self._channel.settimeout(wait_s)
        return self._exactly(int.from_bytes(self._exactly(4), "little"))

    def _exactly(self, size: int) -> bytes:
        assert self._channel is not None
        data = bytearray()
        while len(data) < size:
            piece = self._channel.recv(size - len(data))
            if not piece:
                raise OSError("its reader has died")
            data += piece
        return bytes(data)

    def _object(self, verb: str, **fields: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._ask(verb, **fields))
        return answer

    def list(self, *, filter: str, words: str, before: int, limit: int
             ) -> dict[str, Any]:
        return self._object(
            "list", filter=filter, words=words, before=before, limit=limit)

    def summary(self, verb: Summary, *, filter: str, before: int, limit: int
                ) -> dict[str, Any]:
        return self._object(verb, filter=filter, before=before, limit=limit)

    def show(self, number: int) -> dict[str, Any]:
        return self._object("show", number=number)

    def body(self, number: int, side: str) -> bytes:
        return self._ask(side, number=number)

    def messages(self, number: int) -> bytes:
        return self._ask("messages", number=number)

    def har(self, *, filter: str, number: int = 0, after: int | None = None,
            limit: int = 0) -> bytes:
        return self._ask("har", filter=filter, number=number, after=after, limit=limit)

    def copy(self, number: int, form: str) -> str:
        return self._ask("copy", number=number, form=form).decode(errors="replace")

    def diff(self, number: int, other: int) -> str:
        return self._ask("diff", number=number, other=other).decode(errors="replace")

    def reads(self) -> Rows:
        rows: Rows = json.loads(self._ask("reads"))
        return rows

    def delete(self, number: int) -> dict[str, Any]:
        return self._object("delete", number=number)

    def mark(self, number: int, tag: str | None, comment: str | None
             ) -> dict[str, Any]:
        return self._object("mark", number=number, tag=tag, comment=comment)

    def send(self, request: Request) -> dict[str, Any]:
        if self._proxy is None:
            raise Unanswered("no --proxy is given to send it through")
        return self._object("send", request=request, proxy=self._proxy,
                            authorities=self._authorities, wait_s=SEND_S)

    def import_file(self, content: bytes, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._answer(
            "import", content, IMPORT_S, name=name)[1])
        return answer

    def follow(self) -> Iterator[bool]:
        """As ByListener.follow, without an end. By a process of its own, because the
        other one's answers are taken meanwhile."""
        own, last = ByDatabase(self._database), None
        try:
            while True:
                newest = last
                with contextlib.suppress(Unanswered):    # nothing is captured yet
                    newest = own._answer("watch", after=last)[0].last
                yield newest != last
                last = newest
                time.sleep(LOOK_S)           # of a thread that does nothing else
        finally:
            own.close()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Shown(dict[str, Any]):
    """An answer of `show` as a row; a column is null if it is missing."""

    def __missing__(self, key: str) -> None:
        return None


def read_flow(source: FlowSource | ByListener, number: Any
              ) -> tuple[dict[str, Any], Flow]:
    """Everything about a flow but its bodies, and the flow with them. Raises
    Unanswered."""
    facts = source.show(number)
    row = _Shown(facts)
    for side in SIDES:
        kind = facts.pop(f"{side}_body", "none")
        charset = facts.pop(f"{side}_charset", "utf-8")
        row[f"{side}_body"] = None
        for name in ("type", "views", "charset"):      # are made of the columns
            row.pop(f"{side}_{name}", None)
        if kind in ("text", "bytes"):
            data = source.body(number, side)
            row[f"{side}_body"] = data.decode(charset, "replace") if (
                kind == "text") else data
    row["begun_us"] = round(datetime.fromisoformat(row["time"]).timestamp() * 1e6)
    if row["messages"]:
        row["messages"] = source.messages(number)
    return facts, Flow(row)
