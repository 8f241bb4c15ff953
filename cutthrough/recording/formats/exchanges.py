"""HTTP Archives and dumps of mitmproxy -> recordings; recordings -> an archive.

The readers and the writer also serve captures. Their bodies are content without
codings, so the fields of a coding and of the length are left out. An archive has two
times of an answer: of its head and of its end.
"""

import json
from collections.abc import Iterable, Iterator
from typing import TextIO

from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.content import MOST_COMPARED, as_text, codec_of, undo_coding
from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.flow import Fields as Pairs
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.formats.har import make_archive
from cutthrough.exchange.formats.imported import (
    MOST_US,
    Altered,
    Body,
    Exchange,
    Frame,
    NotImported,
    bounded,
    clean,
    make_redactor,
    make_row,
)
from cutthrough.exchange.formats.imported import Message as Side
from cutthrough.exchange.formats.reader import read
from cutthrough.exchange.formats.tnetstring import Readable
from cutthrough.exchange.messages import KINDS, OPCODES
from cutthrough.recording.formats.foreign import (
    clean_fields,
    lost,
    make_request,
    why_not,
)
from cutthrough.recording.match.statuses import SWITCHED
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.model.recorded_heads import has_body
from cutthrough.recording.model.recording import (
    Chunk,
    Fields,
    Message,
    Recording,
    Response,
    find,
)

_FRAMING = ("content-encoding", "content-length", "transfer-encoding")


def read_exchanges(file: Readable) -> Iterator[Recording | NotImported]:
    """Yields the recordings of an archive or a dump, with their secrets. Raises
    NotImported if the file is neither."""
    yield from recordings_of(read(file, make_redactor(keep_credentials=True)))


def recordings_of(exchanges: Iterable[Exchange | NotImported]
                  ) -> Iterator[Recording | NotImported]:
    for exchange in exchanges:
        if isinstance(exchange, NotImported):
            yield exchange
            continue
        try:
            yield make_recording(exchange)
        except NotImported as error:
            error.args = (f"{exchange.name}: {error}",)
            yield error
            continue
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this one (R71)
            yield NotImported(f"{exchange.name}: {reason_of(error)}")
            continue
        for what in lost_of(exchange):
            yield Altered(f"{exchange.name}: {what}")


def lost_of(exchange: Exchange) -> Iterator[str]:
    """The parts of an exchange missing in its recording."""
    yield from exchange.notes
    if exchange.request.trailers:
        yield "without its request's trailers: a recording has no place for them"
    cut = {frame.state for frame in exchange.frames or () if frame.state}
    if exchange.frames_state:
        yield f"without some of its messages: {clean(exchange.frames_state)}"
    if cut:
        yield f"with messages that are not whole: {clean(', '.join(sorted(cut)))}"


def make_recording(exchange: Exchange) -> Recording:
    """Raises NotImported."""
    if not exchange.status:
        raise NotImported("has no response")
    for side in (exchange.request, exchange.response):
        if side.state or side.body is None:
            raise NotImported(f"a body is not whole: {side.state or 'absent'}")
    phases = {name: bounded(us, MOST_US) or 0 for name, us in exchange.phases.items()}
    head_us = phases.get("wait", 0) + phases.get("send", 0)
    switched_us = exchange.begun_us + sum(
        us for name, us in phases.items() if name != "receive")
    request = exchange.request
    body = to_bytes(exchange.response.body, exchange.response.fields)
    return checked(Recording(
        request=make_request(exchange.method, exchange.url, plain(request.fields),
                             to_bytes(request.body, request.fields)),
        response=Response(
            status=exchange.status, reason=clean(exchange.reason_phrase),
            fields=plain(exchange.response.fields, has_content=body != b"" or has_body(
                exchange.method.upper(), exchange.status)),
            head_us=head_us,
            chunks=(Chunk(head_us + phases.get("receive", 0), body),)
            if body else (),
            trailers=plain(exchange.response.trailers),
            messages=tuple(read_frame(frame, switched_us)
                           for frame in exchange.frames or ())),
        created_us=max(0, exchange.begun_us)))


def read_frame(frame: Frame, switched_us: int) -> Message:
    """`switched_us`: when the head came."""
    kind, content, code = KINDS[frame.opcode], frame.content, None
    if kind == "close" and len(content) >= 2:
        code, content = int.from_bytes(content[:2]), content[2:]
    return Message(max(0, frame.at_us - switched_us), frame.is_up, kind, content, code)


def plain(fields: Pairs, has_content: bool = True) -> Fields:
    """Browsers join the fields of one name by line ends. If an answer has no content,
    such as to a HEAD request, its fields of length and coding are another answer's."""
    return clean_fields(
        (name, value) for name, joined in fields for value in joined.split("\n")
        if not (has_content and name.lower() in _FRAMING) and not name.startswith(":"))


def to_bytes(body: Body, fields: Iterable[tuple[str, str]]) -> bytes:
    """The content; text is encoded by its type."""
    if not body or isinstance(body, bytes):
        return body or b""                   # "" would be a mark in UTF-16
    kind = find(tuple(fields), "content-type")
    try:
        return body.encode(codec_of(kind) or "utf-8")
    except (UnicodeError, LookupError):
        return body.encode(errors="replace")


def write_archive(file: TextIO, recordings: Iterable[Recording]
                  ) -> list[tuple[int, str]]:
    """HAR 1.2. Returns the numbers of recordings left out or not whole, with the
    reasons. Raises OSError."""
    redactor = make_redactor(keep_credentials=True)
    left_out: list[tuple[int, str]] = []
    flows = []
    for recording in recordings:
        try:
            reason = why_not(recording)
            if reason:
                raise NotImported(reason)
            flow = Flow(dict(zip(("id", *COLUMNS), (recording.number, *make_row(
                make_exchange(recording), redactor)), strict=True)))
            for name in ("request_body", "response_body", "messages"):
                if getattr(flow, f"{name}_state"):
                    what = name.replace("_", "'s ")
                    raise NotImported(f"left out: its {what} cannot be in it whole")
        except NotImported as error:
            left_out.append((recording.number, str(error)))
            continue
        flows.append(flow)
        left_out += [(recording.number, what) for what in lost(recording)]
        if find(recording.response.fields, "content-encoding") and (
                recording.response.chunks or has_body(
                    recording.request.method, recording.response.status)):
            left_out.append((recording.number, "without the coding of its content: a "
                             "file has what is in it"))
    json.dump(make_archive(flows), file, ensure_ascii=False)
    return left_out


def make_exchange(recording: Recording) -> Exchange:
    request, response = recording.request, recording.response
    last = response.chunks[-1].at_us if response.chunks else response.head_us
    is_websocket = response.status == SWITCHED
    way = (("Upgrade", "websocket"),) if is_websocket else ()
    return Exchange(
        name=f"recording-{recording.number}", begun_us=recording.created_us,
        method=request.method, url=request.ascii_url, request=make_side(
            request.protocol, (*request.fields, *way), request.body),
        response=make_side(
            response.protocol, (*response.fields, *way), response.body),
        status=response.status, reason_phrase=response.reason,
        phases={"send": 0, "wait": response.head_us,
                "receive": max(0, last - response.head_us)},
        frames=[make_frame(message, recording.created_us + response.head_us)
                for message in response.messages] if is_websocket else None)


def make_side(version: str, fields: Fields, body: bytes) -> Side:
    """Raises NotImported if a coding cannot be undone."""
    content = body
    coding = find(fields, "content-encoding").lower()
    if body and coding not in ("", "identity"):
        decoded, is_whole = undo_coding(body, coding, MOST_COMPARED)
        if decoded is None or not is_whole:
            raise NotImported(f"left out: the coding {coding!r:.40} of its content "
                              "cannot be undone")
        content = decoded
    text = as_text(content, find(fields, "content-type"), whole=True)
    if text is not None and to_bytes(text, fields) != content:
        text = None                          # such as UTF-16 with another mark
    return Side(
        version=version, fields=list(fields), body=content if text is None else text,
        body_bytes=len(body), content_bytes=len(content))


def make_frame(message: Message, switched_us: int) -> Frame:
    content = message.data
    if message.code is not None:
        content = message.code.to_bytes(2) + content
    return Frame(
        message.is_up, switched_us + message.at_us, OPCODES[message.kind], content)
