"""Calls of gRPC, if the sides talk in turn: a recorded answer in step with its request.

    the client's messages ──> Call: the recordings with the same beginning
                                └─ the first with an answer to these: Answering

A message is five bytes and its data (gRPC over HTTP/2, "Length-Prefixed-Message"). The
origin's data behind the recorded nth message is sent behind the client's nth message.
If the client goes on in another way, another recording with the same beginning, both of
messages and answers, takes over. If there is no such recording, the call ends with a
status and the reason.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from cutthrough.exchange.work import is_costly
from cutthrough.recording.match.alike import Alike
from cutthrough.recording.match.begins import PREFIX
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Miss
from cutthrough.recording.model.recording import Recording, Request, Response
from cutthrough.recording.model.sharing import Reader

# FAILED_PRECONDITION: clients do not try again
STATUS = "9"
MOST_TEXT = 1000                             # of a status' message
_PLAIN = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
# In `asked`, and in steps: all messages, and their end
ALL = -1
# In steps: the client has left before
NEVER = sys.maxsize
# Kinds of a key's body: they need the whole body, not each message
_OF_WHOLE = ("regex",)


class CallDiffers(Exception):
    """No recording goes on as the client does, with the reason."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.miss = Miss(reason, details=details)


class Step(NamedTuple):
    """Data due when the client has sent so many messages; ALL: when it has ended."""

    messages: int
    at_us: int
    data: bytes


class Frames:
    """Messages out of pieces of bytes."""

    def __init__(self, most: int) -> None:
        self._held, self._most = bytearray(), most

    @property
    def is_amid(self) -> bool:
        return bool(self._held)

    def take(self, piece: bytes) -> Iterator[bytes]:
        """The messages now whole, each with its prefix. Raises CallDiffers."""
        held = self._held
        held += piece
        while len(held) >= PREFIX:
            end = PREFIX + int.from_bytes(held[1:PREFIX])
            if end > self._most:
                raise CallDiffers(f"a message is longer than {self._most} bytes "
                                  "(recording_body)")
            if len(held) < end:
                return
            yield bytes(held[:end])
            del held[:end]


def split(body: bytes) -> list[bytes] | None:
    """The messages of a body; None if it is not made of whole messages."""
    frames = Frames(len(body) + 1)
    try:
        messages = list(frames.take(body))
    except CallDiffers:
        return None
    return None if frames.is_amid else messages


class _Candidate:
    def __init__(self, recording: Recording, messages: list[bytes], alike: Alike
                 ) -> None:
        self.recording, self.messages, self.alike = recording, messages, alike
        self.steps = make_steps(recording)
        # Whole before the client's end: how much more it sends is a matter of time
        self.is_early = 0 <= self.steps[-1].messages < NEVER and (
            not recording.response.is_cut)

    def has_ended(self, number: int) -> bool:
        return self.is_early and number >= len(self.messages)

    def same(self, number: int, message: bytes) -> bool:
        if number >= len(self.messages):
            return False
        other = self.messages[number]
        return message == other or (
            message[0] == other[0] and are_cheap(message, other)
            and self.alike.same(message[PREFIX:], other[PREFIX:]))

    def tell(self, number: int, message: bytes) -> str:
        other = self.messages[number]
        if not are_cheap(message, other):
            return "its octets"
        return self.alike.tell(message[PREFIX:], other[PREFIX:]) or "its flags"


def are_cheap(*messages: bytes) -> bool:
    """If not, compared as octets, because many candidates are compared in the loop."""
    return not any(is_costly(message[PREFIX:]) for message in messages)


def make_steps(recording: Recording) -> list[Step]:
    """The head without data, the pieces of the body, and the trailers without data."""
    if not recording.response.status:
        return [Step(NEVER, 0, b"")] * 2
    ends = list(accumulate(map(len, split(recording.request.body) or ())))
    return steps_of(recording.response, lambda offset: (
        ALL if offset < 0 else bisect_right(ends, offset)))


def steps_of(response: Response, messages: Callable[[int], int]) -> list[Step]:
    """`messages`: behind how many an offset of the request's body is."""
    last = response.chunks[-1].at_us if response.chunks else response.head_us
    steps = [Step(messages(response.head_asked), response.head_us, b""),
             *(Step(messages(chunk.asked), chunk.at_us, chunk.data)
               for chunk in response.chunks),
             Step(messages(response.end_asked), last, b"")]
    if response.cut_by_client:
        steps[-1] = Step(NEVER, last, b"")
    # The head is not after its messages
    least = min((step.messages for step in steps if step.messages >= 0), default=ALL)
    if steps[0].messages == ALL:
        steps[0] = steps[0]._replace(messages=least)
    return steps


class Call:
    """The possible recordings of a call, as its messages come."""

    is_of_grpc = True
    steps = staticmethod(make_steps)

    def __init__(self, matcher: Matcher, request: Request, most: int,
                 reader: Reader | None = None) -> None:
        """`request`: without its body. `most`: bytes of a message. `reader`: as of
        Matcher.match."""
        self._for = reader
        self._matcher, self._request = matcher, matcher.masked(request)
        self._frames = Frames(most)
        self._route = matcher.route(request)
        key = self._route.key
        self._reader = KeyReader(msgspec.structs.replace(
            key, body="ignore", paths=(), regexes=()))
        self._pending: list[bytes] = []      # messages not compared yet
        self.message_count = 0               # how many were compared
        self._alive: list[_Candidate] | None = None
        # If not, a recording of another path may answer, or an unread recording
        self._knows_all = (key.host and key.path and key.body not in _OF_WHOLE
                           and not matcher.has_patterns)

    @property
    def is_unknown(self) -> bool:
        """No recording could answer it, with any messages."""
        return self._knows_all and not self._matcher.has_place(self._request)

    @property
    def is_silent(self) -> bool:
        return not (self.message_count or self._pending or self._frames.is_amid)

    def take(self, piece: bytes) -> None:
        """Bytes of the body. Raises CallDiffers."""
        self._pending.extend(self._frames.take(piece))

    def look(self) -> Recording | None:
        """A recording with an answer to the messages so far; None if there is no such
        recording yet. Raises CallDiffers."""
        before = self._alive
        if before is None:
            if not self._pending and self._frames.is_amid:
                return None
            before, is_all = self._load()
            if self._pending:
                self._alive, self._knows_all = before, self._knows_all and is_all
        pending, self._pending = self._pending, []
        for message in pending:
            alive = [candidate for candidate in before
                     if candidate.same(self.message_count, message)] or [
                         candidate for candidate in before
                         if candidate.has_ended(self.message_count)]
            if not alive and self._knows_all:
                raise CallDiffers(*self._tell(before, message))
            before = self._alive = alive
            self.message_count += 1
        return next((candidate.recording for candidate in before
                     if 0 <= candidate.steps[0].messages <= self.message_count), None)

    def end(self) -> None:
        """The client sends no more. Raises CallDiffers."""
        before = self._alive or []
        if self._frames.is_amid:
            raise CallDiffers(f"the request ends amid message {self.message_count + 1}")
        self._alive = [candidate for candidate in before
                       if len(candidate.messages) == self.message_count]
        if not self._alive:
            raise CallDiffers(
                f"the request ends behind message {self.message_count} of "
                f"{len(before[0].messages)} of recording "
                f"{before[0].recording.number}" if before else "no message")

    def look_early(self) -> Recording | None:
        """The client sends no more. A recording whose answer was whole before that, and
        behind fewer messages; None if another one has the same messages."""
        try:
            self.look()
        except CallDiffers:
            return None
        count, alive = self.message_count, self._alive or []
        if self._frames.is_amid or any(len(candidate.messages) == count
                                       for candidate in alive):
            return None
        return next((candidate.recording for candidate in alive
                     if candidate.has_ended(count)), None)

    def follow(self, recording: Recording) -> None:
        """Follows this recording: it answers the call from now on."""
        self._knows_all = True
        if self._alive is None:              # nothing has come yet
            self._alive, _ = self._load()
        alive = self._alive
        if not self.follows(recording):
            messages = split(recording.request.body) or []
            alive.append(self._candidate(recording, messages))

    def follows(self, recording: Recording) -> bool:
        """Whether the client goes on like this recording."""
        return any(candidate.recording.number == recording.number
                   for candidate in self._alive or ())

    def _load(self) -> tuple[list[_Candidate], bool]:
        """Recordings different in messages alone, with the same first message if it has
        come; whether these are all."""
        candidates: list[_Candidate] = []
        wanted, _ = self._reader.read(self._request, recorded=False)
        begin = self._pending[0] if self._pending and (
            self._route.key.body == "raw") else None
        recordings, is_all = self._matcher.recordings_at(
            self._request, begin, self._for)
        for recording in recordings:
            if recording.patterns or self._reader.read(
                    recording.request, recorded=True)[0] != wanted:
                continue
            messages = split(recording.request.body)
            if messages is None:
                is_all = False
            else:
                candidates.append(self._candidate(recording, messages))
        return candidates, is_all

    def _candidate(self, recording: Recording, messages: list[bytes]) -> _Candidate:
        return _Candidate(recording, messages, Alike(self._route, recording.request))

    def _tell(self, before: list[_Candidate], message: bytes) -> tuple[str, ...]:
        """The reason, and the details."""
        number = self.message_count
        for candidate in before:
            if number < len(candidate.messages):
                return (f"message {number + 1} differs from recording "
                        f"{candidate.recording.number}",
                        candidate.tell(number, message))
        if before:
            return (f"message {number + 1} comes behind the last one of recording "
                    f"{before[0].recording.number}",)
        return (f"no recording of the call has its message {number + 1}",)

    def instead(self, sent: bytes) -> Recording | None:
        """Returns another recording, if it fits the client and its body begins with
        `sent`."""
        return next((candidate.recording for candidate in self._alive or ()
                     if candidate.recording.response.status
                     and candidate.recording.response.body.startswith(sent)), None)


class Answering:
    """The rest of a recording, to be sent."""

    def __init__(self, recording: Recording, steps: list[Step], has_head: bool = False,
                 sent: int = 0) -> None:
        """`has_head`: the head is out, and `sent` bytes of the body."""
        self.recording, self.left = recording, steps
        if has_head:
            del steps[0]
        while sent and len(steps) > 1:
            data = steps[0].data
            if len(data) > sent:
                steps[0] = steps[0]._replace(data=data[sent:])
            else:
                del steps[0]
            sent -= min(sent, len(data))


def refusal(text: str) -> Response:
    """The answer to a call without a recording."""
    return Response(status=200, fields=(("content-type", "application/grpc"),),
                    trailers=refusal_trailers(text))


def refusal_trailers(text: str) -> tuple[tuple[str, str], ...]:
    return (("grpc-status", STATUS),
            ("grpc-message", quote(f"recording_missed: {text}"[:MOST_TEXT], _PLAIN)))
