"""HTTP Archives and dumps of mitmproxy -> recordings; recordings -> an archive.

The readers and the writer are those of captures. Their bodies are content without
codings, so the fields of a coding and of the length are left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cutthrough.capture.bodies import as_text, charset_of
from cutthrough.capture.flow import Fields as Pairs
from cutthrough.capture.flow import Flow
from cutthrough.capture.har import make_archive
from cutthrough.capture.imported import (
    Body,
    Exchange,
    Frame,
    NotImported,
    make_redactor,
    make_row,
)
from cutthrough.capture.imported import Message as Side
from cutthrough.capture.importing import read
from cutthrough.capture.messages import KINDS, OPCODES
from cutthrough.capture.records import COLUMNS
from cutthrough.capture.tnetstring import Readable
from cutthrough.recording.model import (
    Chunk,
    Fields,
    Message,
    Recording,
    Response,
    find,
)
from cutthrough.recording.vcr import make_request

_FRAMING = ("content-encoding", "content-length", "transfer-encoding")


def read_exchanges(file: Readable) -> Iterator[Recording | NotImported]:
    """Of an archive or a dump. The secrets are in them. Raises NotImported if it is
    neither."""
    for one in read(file, make_redactor(keep_credentials=True)):
        try:
            yield one if isinstance(one, NotImported) else make_recording(one)
        except NotImported as error:
            yield error


def make_recording(one: Exchange) -> Recording:
    """Raises NotImported."""
    if not one.status:
        raise NotImported(f"{one.name}: has no response")
    for side in (one.request, one.response):
        if side.state or side.body is None:
            raise NotImported(
                f"{one.name}: a body is not whole: {side.state or 'absent'}")
    phases = one.phases
    head_us = (phases.get("wait") or 0) + (phases.get("send") or 0)
    switched_us = one.begun_us + sum(
        us or 0 for name, us in phases.items() if name != "receive")
    request = one.request
    body = to_bytes(one.response.body, one.response.fields)
    return Recording(
        request=make_request(one.method, one.url, plain(request.fields),
                             to_bytes(request.body, request.fields)),
        response=Response(
            status=one.status, reason=one.reason_phrase,
            fields=plain(one.response.fields), head_us=head_us,
            chunks=(Chunk(head_us + (phases.get("receive") or 0), body),)
            if body else (),
            messages=tuple(read_frame(frame, switched_us)
                           for frame in one.frames or ())),
        created_us=one.begun_us)


def read_frame(frame: Frame, switched_us: int) -> Message:
    """`switched_us`: when the head came."""
    kind, content, code = KINDS[frame.opcode], frame.content, None
    if kind == "close" and len(content) >= 2:
        code, content = int.from_bytes(content[:2]), content[2:]
    return Message(max(0, frame.at_us - switched_us), frame.is_up, kind, content, code)


def plain(fields: Pairs) -> Fields:
    return tuple(pair for pair in fields if pair[0].lower() not in _FRAMING
                 and not pair[0].startswith(":"))


def to_bytes(body: Body, fields: Iterable[tuple[str, str]]) -> bytes:
    """The content; text is encoded as its type says."""
    if isinstance(body, bytes) or body is None:
        return body or b""
    kind = find(tuple(fields), "content-type")
    try:
        return body.encode(charset_of(kind) or "utf-8")
    except (UnicodeError, LookupError):
        return body.encode(errors="replace")


def write_archive(recordings: Iterable[Recording]) -> dict[str, Any]:
    """HAR 1.2. Raises NotImported if a recording cannot be in one."""
    redactor = make_redactor(keep_credentials=True)
    return make_archive(
        Flow(dict(zip(("id", *COLUMNS), (one.number, *make_row(
            make_exchange(one), redactor)), strict=True))) for one in recordings)


def make_exchange(one: Recording) -> Exchange:
    request, response = one.request, one.response
    last = response.chunks[-1].at_us if response.chunks else response.head_us
    return Exchange(
        name=f"recording-{one.number}", begun_us=one.created_us, method=request.method,
        url=request.url, request=make_side(request.protocol, request.fields,
                                           request.body),
        response=make_side(response.protocol, response.fields, response.body),
        status=response.status, reason_phrase=response.reason,
        phases={"send": 0, "wait": response.head_us,
                "receive": max(0, last - response.head_us)},
        frames=[make_frame(message, one.created_us + response.head_us)
                for message in response.messages] if response.messages else None)


def make_side(version: str, fields: Fields, body: bytes) -> Side:
    kind = find(fields, "content-type")
    text = as_text(body, kind, whole=True) if not find(
        fields, "content-encoding") else None
    return Side(
        version=version, fields=list(fields), body=body if text is None else text,
        body_bytes=len(body), content_bytes=len(body))


def make_frame(message: Message, switched_us: int) -> Frame:
    content = message.data
    if message.code is not None:
        content = message.code.to_bytes(2) + content
    return Frame(
        message.is_up, switched_us + message.at_us, OPCODES[message.kind], content)
