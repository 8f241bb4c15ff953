"""An exchange out of the ring -> a Recording, as the operator's hook returns it.

Only whole exchanges are recorded, except a stream, or a call of gRPC, whose client or
origin has left: it is recorded as cut.
"""

import importlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import msgspec

from cutthrough.contained import contain
from cutthrough.exchange.content import join_chunks
from cutthrough.exchange.failures import Failures, reason_of
from cutthrough.exchange.messages import Message as Passed
from cutthrough.exchange.messages import read_messages
from cutthrough.exchange.redaction.redactor import REDACTED
from cutthrough.recording.match.begins import whole_messages
from cutthrough.recording.model.masking import without
from cutthrough.recording.model.recorded_echoes import RecordedEchoes
from cutthrough.recording.model.recorded_heads import (
    HeadCache,
    is_call,
    read_request,
    read_response,
)
from cutthrough.recording.model.recording import (
    Chunk,
    Fields,
    Message,
    Recording,
    Response,
    find,
)
from cutthrough.recording.model.sharing import owner_of
from cutthrough.tape.ring_exchange import RingExchange

log = logging.getLogger("cutthrough")

OnRecord = Callable[[Recording], Recording | None]

MOST_LINE = 65536
# Another client asks without a condition, or for another range
CONDITIONAL = (206, 304)
# The endings of an exchange that is left before its end, by any side
LEFT = ("client_closed", "client_reset", "origin_reset", "response_truncated",
        "idle_timeout", "write_timeout", "lifetime", "drained", "stopped", "cut")
BY_CLIENT = ("client_closed", "client_reset")
# A stream's units by its media type: the end of the last one that is whole
_LINE = re.compile(rb".*\n", re.S)
_STREAMS = {
    "text/event-stream": re.compile(rb".*(?:\r\n\r\n|\n\n|\r\r)", re.S),
    "application/x-ndjson": _LINE, "application/ndjson": _LINE,
    "application/jsonl": _LINE, "application/stream+json": _LINE}

_NO_HEAD: tuple[int, str, str, Fields] = 0, "", "", ()

Pieces = list[tuple[int, bytes]]             # each with its number


class NotRecordable(ValueError):
    """An exchange that cannot be played again, with the reason."""


class Converter:
    """The slow path, which can convert all that can be recorded; the fast one is
    RowEncoder, which makes a row without a Recording."""

    def __init__(self, hooks: str, cuts: str, failures: Failures | None = None
                 ) -> None:
        """`hooks`: module:class; "": there are none. `cuts`: as of make_recording.
        `failures`: counts failures without a fault of the exchange."""
        self.failures = failures or Failures("recorded")
        self._on_record = find_hook(hooks)
        self._cuts = cuts
        self._partial = self._faults = 0
        self.slow_paths: Counter[str] = Counter()        # by RowEncoder's reasons

    @property
    def has_hook(self) -> bool:
        return self._on_record is not None

    def convert_all(self, exchanges: Iterable[RingExchange], heads: HeadCache
                    ) -> list[Recording]:
        """Of those that are recorded."""
        return [recording for exchange in exchanges
                if (recording := self.convert(exchange, heads)) is not None]

    def take_slow_path(self, exchange: RingExchange, heads: HeadCache, reason: str,
                       error: Exception | None = None) -> Recording | None:
        """`reason`: why the fast path did not make a row; `error`: if it failed. None:
        the exchange is not recorded."""
        self.slow_paths[reason] += 1
        recording = self.convert(exchange, heads)
        if recording is not None and error is not None:
            self._faults += 1
            if self._faults & (self._faults - 1) == 0:
                log.warning("a recording's row was made the long way: %s (%d so far)",
                            reason_of(error), self._faults)
        return recording

    def convert(self, exchange: RingExchange, heads: HeadCache) -> Recording | None:
        """None: the exchange is not recorded."""
        try:
            recording: Any = make_recording(exchange, heads, self._cuts)
            if self._on_record is not None:
                recording = self._on_record(recording)
            if recording is None or isinstance(recording, Recording):
                return recording
            raise TypeError(f"on_record returned {type(recording).__name__}")
        except NotRecordable as error:
            self.leave_out(exchange, error)
        except BaseException as error:       # the operator's code may raise anything
            self.failures.add(contain(error))
            self.leave_out(exchange, contain(error))
        return None

    def leave_out(self, exchange: RingExchange, error: BaseException) -> None:
        self._partial += 1
        if self._partial & (self._partial - 1) == 0:
            log.warning("an answer of %s is not recorded: %s (%d so far)",
                        exchange.host, error, self._partial)


def make_recording(exchange: RingExchange, heads: HeadCache | None = None,
                   cuts: str = "streams") -> Recording:
    """With its secrets. `heads`: those that were read before. `cuts`: the kind that may
    be recorded as cut (recording_cut). Raises NotRecordable."""
    recording = _make(exchange, heads, cuts)
    if not exchange.added:
        return recording
    return msgspec.structs.replace(recording, response=without(
        recording.response, RecordedEchoes(exchange.added, _hidden), _hidden))


def _hidden(_secret: str) -> str:
    return REDACTED


def _make(exchange: RingExchange, heads: HeadCache | None, cuts: str) -> Recording:
    if exchange.pieces:
        return _of_websocket(exchange)
    is_rpc = is_call(exchange.up_head)
    # Without an answer nobody knows if the call is a stream
    is_silent = (is_rpc and cuts == "any" and exchange.is_unanswered
                 and exchange.reason in BY_CLIENT)
    _check_parts(exchange, is_silent)
    places = None
    is_chunked = exchange.up_chunked or (
        "chunked" in field_of(exchange.up_head, "transfer-encoding"))
    up, ended = join_chunks(exchange.up) if is_chunked else (
        exchange.up, len(exchange.up) >= announced(exchange.up_head))
    head_at, asked_at = exchange.head_asked, exchange.asked
    if not (is_rpc or ended):
        raise NotRecordable("its answer came before the end of the request"
                            if exchange.reason == "ok" else
                            f"it ended as {exchange.reason}")
    if exchange.asked is not None or not ended:
        if asked_at is None:
            head_at = len(exchange.up)
            asked_at = [head_at] * len(exchange.down)
        up, places = find_places(exchange, {head_at, *asked_at}, is_chunked)
    status, reason, protocol, fields = (
        _NO_HEAD if is_silent else read_response(exchange.down_head, heads))
    left = exchange.reason != "ok"
    if left and not is_silent:
        _judge_left(exchange, fields, cuts)
    if status in CONDITIONAL:
        raise NotRecordable(f"{status} answers a client that has a part of it")
    pieces, times = list(enumerate(exchange.down)), exchange.times
    trailers: Fields = ()
    head_asked, chunk_asked, end_asked = -1, [-1] * len(pieces), -1
    if places is not None and asked_at is not None:
        head_asked = places[head_at]
        chunk_asked = [places[at] for at in asked_at]
        end_asked = chunk_asked[-1] if chunk_asked else head_asked
    if exchange.down_chunked:
        pieces, trailers, is_whole = read_chunks(pieces)
        left = left and not is_whole
        if not (left or is_whole):
            raise NotRecordable("the last chunk is missing")
    if left:
        pieces = _whole_part(pieces, _kind(fields), is_rpc)
    has_ended = places is None or places[len(exchange.up)] == -1
    if is_rpc and (left or not has_ended):
        up = up[:whole_messages(up)]
    if left and is_rpc:
        # What was asked, and not answered, was asked before somebody left
        end_asked = places[len(exchange.up)] if places else -1
    head_us = max(0, exchange.wait_us)
    return Recording(
        request=read_request(
            exchange.up_head, "https" if exchange.is_intercepted else "http",
            exchange.host, exchange.port, up, heads=heads),
        response=Response(
            status=status, reason=reason, protocol=protocol, fields=fields,
            head_us=head_us, trailers=trailers, chunks=tuple([
                Chunk(head_us + max(0, times[n] - exchange.head_at_us), data,
                      chunk_asked[n])
                for n, data in pieces if data]),
            head_asked=head_asked, end_asked=end_asked, is_cut=left,
            cut_by_client=left and is_rpc and exchange.reason in BY_CLIENT),
        created_us=exchange.begun_us, owner=owner_of(exchange.user))


def announced(head: str) -> int:
    """The bytes of the body, by its Content-Length; 0: there is none."""
    length = field_of(head, "content-length")
    return int(length) if length.isdecimal() else 0


def _check_parts(exchange: RingExchange, is_silent: bool) -> None:
    """Raises NotRecordable if a head, or a part of a body, is missing."""
    if exchange.reason != "ok" and not is_silent and (
            exchange.reason not in LEFT or not exchange.down_head):
        raise NotRecordable(f"it ended as {exchange.reason}")
    if exchange.was_cut or not exchange.up_head or not (
            exchange.down_head or is_silent):
        raise NotRecordable("the ring had no room for all of it")
    down_bytes = sum([len(piece) for piece in exchange.down])
    # If an answer has no head, its bytes are not counted
    if (len(exchange.up), down_bytes) != (
            exchange.up_bytes, 0 if is_silent else exchange.down_bytes):
        raise NotRecordable("a body is longer than recording_body")


def _judge_left(exchange: RingExchange, fields: Fields, cuts: str) -> None:
    """Raises NotRecordable if the answer is no stream, or if a secret might be in
    a part of it that is not found there."""
    is_stream = _kind(fields) in _STREAMS or is_call(exchange.up_head)
    if cuts == "none" or (cuts == "streams" and not is_stream) or (
            find(fields, "content-length")):
        raise NotRecordable(f"it ended as {exchange.reason}")
    if find(fields, "content-encoding").lower() not in ("", "identity"):
        raise NotRecordable(
            f"it ended as {exchange.reason}, and what came of it has a coding")


def _kind(fields: Fields) -> str:
    return find(fields, "content-type").partition(";")[0].strip().lower()


def _whole_part(pieces: Pieces, kind: str, is_rpc: bool) -> Pieces:
    """Without an event, line or message that is cut: a client ignores it."""
    body = b"".join([data for _, data in pieces])
    if is_rpc:
        left = whole_messages(body)
    elif kind in _STREAMS:
        match = _STREAMS[kind].match(body)
        left = match.end() if match else 0
    else:
        return pieces
    whole = Pieces()
    for number, data in pieces:
        whole.append((number, data[:left]))
        left -= len(whole[-1][1])
    return whole


def find_places(exchange: RingExchange, wanted: set[int], is_chunked: bool
                ) -> tuple[bytes, dict[int, int]]:
    """The content of the request's body; and for each count of its framed bytes in
    `wanted`, how many bytes of content these have, -1 if all, and the body's end. The
    end is missing if the answer came before it."""
    bounds = sorted(wanted | {0, len(exchange.up)})
    pieces = [(end, exchange.up[begin:end]) for begin, end in pairwise(bounds)]
    ended = field_of(exchange.up_head, "content-length") == str(len(exchange.up))
    if is_chunked:
        pieces, _, ended = read_chunks(pieces)
    places, at = dict.fromkeys(bounds, 0), 0
    for end, data in pieces:
        at += len(data)
        places[end] = at
    at = 0
    for end in bounds:                       # a piece may have framing alone
        at = places[end] = max(at, places[end])
    if ended:
        places[len(exchange.up)] = -1
    return b"".join([data for _, data in pieces]), places


def _of_websocket(exchange: RingExchange) -> Recording:
    """However it ended. Extensions are undone, pings and pongs left out."""
    moved = [sum([len(piece.data) for piece in exchange.pieces if piece.is_up == is_up])
             for is_up in (True, False)]
    if exchange.was_cut or not exchange.up_head or not exchange.down_head:
        raise NotRecordable("the ring had no room for all of it")
    if moved != [exchange.up_bytes, exchange.down_bytes]:
        raise NotRecordable("its messages are longer than recording_body")
    messages, state = read_messages(exchange.pieces, exchange.down_head)
    if state is not None or any(message.state for message in messages):
        raise NotRecordable("its messages cannot be read")
    status, reason, protocol, fields = read_response(exchange.down_head)
    return Recording(
        request=read_request(
            exchange.up_head, "https" if exchange.is_intercepted else "http",
            exchange.host, exchange.port),
        response=Response(
            status=status, reason=reason, protocol=protocol, fields=fields,
            head_us=max(0, exchange.wait_us), messages=tuple(
                _message(message, max(0, exchange.pieces[message.piece].at_us
                                      - exchange.head_at_us))
                for message in messages if message.kind not in ("ping", "pong"))),
        created_us=exchange.begun_us, owner=owner_of(exchange.user))


def _message(message: Passed, at_us: int) -> Message:
    data, code = message.content, None
    if message.kind == "close":
        code = int.from_bytes(data[:2]) if len(data) >= 2 else None
        data = data[2:]
    return Message(at_us, message.is_up, message.kind, data, code)


def field_of(head: str, name: str) -> str:
    """In lower case."""
    pairs = [line.partition(":")[::2] for line in head.split("\r\n")[1:]]
    return find(tuple(pairs), name).strip().lower()


def unframe(pieces: Iterable[tuple[int, bytes]]
            ) -> tuple[list[tuple[int, bytes]], Fields]:
    """The content of a body in chunks, each piece with its number, and its trailers.
    Raises NotRecordable."""
    content, trailers, ended = read_chunks(pieces)
    if not ended:
        raise NotRecordable("the last chunk is missing")
    return content, trailers


def read_chunks(pieces: Iterable[tuple[int, bytes]]
                ) -> tuple[list[tuple[int, bytes]], Fields, bool]:
    """As `unframe`, and whether the last chunk is there."""
    content: list[tuple[int, bytes]] = []
    line = bytearray()                       # of a size, or of the trailers
    left, behind, trailers = 0, 0, list[tuple[str, str]]()
    is_last = ended = False
    for number, piece in pieces:
        at = 0
        while at < len(piece):
            if ended:
                raise NotRecordable("bytes follow the last chunk")
            if left:
                data = piece[at:at + left]
                content.append((number, data))
                at += len(data)
                left -= len(data)
                behind = 0 if left else 1    # its line's end
                continue
            end = piece.find(b"\n", at)
            line += piece[at:end + 1 if end >= 0 else len(piece)]
            at = end + 1 if end >= 0 else len(piece)
            if len(line) > MOST_LINE:
                raise NotRecordable("a chunk's line is too long")
            if end < 0:
                continue
            text = line.strip(b"\r\n").decode("latin-1")
            line.clear()
            if behind:
                behind = 0
            elif not is_last:
                left = int(text.partition(";")[0].strip(), 16)
                is_last = left == 0
            elif text:
                name, _, value = text.partition(":")
                trailers.append((name, value.strip(" \t")))
            else:
                ended = True
    return content, tuple(trailers), ended


def find_hook(name: str) -> OnRecord | None:
    """The method on_record of `module:Class`, or None. If it cannot be had, nothing is
    recorded: it may be there to remove secrets."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        hooks = getattr(importlib.import_module(module), attribute)()
        on_record: OnRecord | None = getattr(hooks, "on_record", None)
        return on_record
    except BaseException as error:
        reason = f"{name}: {type(error).__name__}: {contain(error)}"
        log.error("nothing is recorded: %s", reason)

        def refuse(recording: Recording) -> Recording | None:
            raise NotRecordable(reason)

        return refuse
