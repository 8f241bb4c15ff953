"""Stubs: answers of a test's own. They come before all recordings, in the modes
`replay`, `cache`, `spy` and `record`, and are in no session.

    DIRECTORY/NAME.answers      the stubs, MessagePack, written by the test, 0600
    DIRECTORY/NAME.asked        the requests since then, answered by stubs or recordings

A stub is a recording with patterns. Several stubs for the same requests are a sequence.
Requests are redacted like recordings.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats.foreign import make_request
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.model.recording import (
    Chunk,
    Part,
    Pattern,
    Recording,
    Request,
    Response,
)
from cutthrough.recording.model.templates import check
from cutthrough.recording.sessions.aside import aside, leave_aside

SUFFIX = ".answers"
REQUESTS_SUFFIX = ".asked"
_DECODE = msgspec.msgpack.Decoder(list[Recording]).decode


def make_response(status: int, document: Any, text: str, content: bytes,
                  headers: Mapping[str, str]) -> Response:
    """Makes a response with a body: `document` in JSON, or else `text`, or else
    `content`."""
    body, fields = content, dict[str, str]()
    if document is not None:
        body, fields["Content-Type"] = json.dumps(document).encode(), "application/json"
    elif text:
        body, fields["Content-Type"] = text.encode(), "text/plain; charset=utf-8"
    return Response(status=status, fields=tuple((fields | {**headers}).items()),
                    chunks=(Chunk(0, body),) if body else ())


def make_stub(url: str, method: str, response: Response, template: bool = False
              ) -> Recording:
    """* in `method`, and in path and query of `url`, stands for anything. Raises
    NotImported if the URL is malformed, and TemplateMistake."""
    if "*" in "/".join(url.split("/", 3)[:3]):
        raise NotImported(f"{url}: * may be in path and query alone")
    request = make_request(method, url, (), b"")
    if not template:
        fields = {**dict(response.fields), "Content-Length": str(len(response.body))}
        response = msgspec.structs.replace(response, fields=tuple(fields.items()))
    wanted: dict[Part, str] = {
        "method": method, "scheme": request.scheme, "host": request.host,
        "port": str(request.port), "path": request.path, "query": request.query}
    stub = checked(Recording(
        request=request, patterns=tuple(
            Pattern(part=part, how="glob" if "*" in value else "exact", value=value)
            for part, value in wanted.items()),
        response=response, template=template))
    if template:
        check(stub)
    return stub


def write_stubs(directory: Path, name: str, stubs: Sequence[Recording]) -> None:
    """Raises OSError."""
    new = directory / f".{name}{SUFFIX}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                 | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.msgpack.encode([
            msgspec.structs.replace(stub, number=number)
            for number, stub in enumerate(stubs, 1)]))
    new.replace(directory / f"{name}{SUFFIX}")


class RequestLog:
    """The file of the requests. Raises OSError."""

    def __init__(self, directory: Path, name: str) -> None:
        self._fd = os.open(
            directory / f"{name}{REQUESTS_SUFFIX}", os.O_WRONLY | os.O_APPEND
            | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    async def append(self, request: Request) -> None:
        data = msgspec.msgpack.encode(request)
        await aside(os.write, self._fd, len(data).to_bytes(4) + data)

    def close(self) -> None:
        leave_aside(os.close, self._fd)      # after all writes


def read_requests(directory: Path, name: str) -> list[Request]:
    """In order. Raises OSError."""
    path, requests, at = directory / f"{name}{REQUESTS_SUFFIX}", list[Request](), 0
    data = path.read_bytes() if path.exists() else b""
    while at < len(data):
        behind = at + 4 + int.from_bytes(data[at:at + 4])
        requests.append(msgspec.msgpack.decode(data[at + 4:behind], type=Request))
        at = behind
    return requests


def read_stubs(directory: Path, name: str) -> list[Recording]:
    """With their numbers. Raises OSError, and ValueError if the file is malformed."""
    return _DECODE((directory / f"{name}{SUFFIX}").read_bytes())
