"""Requests, not of gRPC, whose recorded answers began before their end: sides in turn.

    the client's octets ──> Turns: the recordings that began in the same way
                              └─ the first with an answer to these: Answering

An answer that came behind the nth octet of the request is sent behind the client's nth
octet, if the client waits there: whoever goes on with its request is answered behind
its end, as ever. Octets are compared, whatever the route says of documents, because
half of a body is none.
"""

import msgspec

from cutthrough.recording.match.begins import EARLY
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.model.recording import Recording, Request
from cutthrough.recording.model.sharing import Reader
from cutthrough.recording.play.calls import CallDiffers, Step, steps_of


def may_turn(matcher: Matcher, request: Request) -> bool:
    """Whether a recording of its host and path was answered early."""
    return matcher.begins.find(matcher.masked(request), EARLY) != []


class Turns:
    """The possible recordings of a request, as its octets come."""

    is_of_grpc = is_unknown = False
    is_silent = True                         # as far as is known, whenever it is asked

    def __init__(self, matcher: Matcher, request: Request, reader: Reader | None
                 ) -> None:
        """`request`: without its body."""
        self._request = matcher.masked(request)
        route = matcher.route(self._request)
        self._is_any = route.key.body == "ignore"
        self._reader = KeyReader(msgspec.structs.replace(
            route.key, body="ignore", paths=(), regexes=()))
        self._pending = bytearray()          # not compared yet
        self.message_count = 0               # octets that were
        wanted = self._reader.read(self._request, recorded=False)[0]
        self._alive = [
            recording for recording in matcher.recordings_at(
                self._request, EARLY, reader)[0]
            if not recording.patterns and self._reader.read(
                recording.request, recorded=True)[0] == wanted]

    @staticmethod
    def steps(recording: Recording) -> list[Step]:
        return steps_of(recording.response, lambda offset: offset)

    def take(self, piece: bytes) -> None:
        self._pending += piece

    def look(self) -> Recording | None:
        """A recording with an answer to the octets so far; None if there is none."""
        pending, at = bytes(self._pending), self.message_count
        self._pending.clear()
        self.message_count += len(pending)
        if not self._is_any:
            self._alive = [recording for recording in self._alive
                           if recording.request.body.startswith(pending, at)]
        return next((recording for recording in self._alive
                     if self.steps(recording)[0].messages <= self.message_count), None)

    def look_early(self) -> Recording | None:
        """The client sends no more: any request with this body is answered alike."""
        return None

    def end(self) -> None:
        """The client sends no more. Raises CallDiffers."""
        if self._is_any:
            return
        self._alive = [recording for recording in self._alive
                       if len(recording.request.body) == self.message_count]
        if not self._alive:
            raise CallDiffers("the request ends before that of the recording")

    def follow(self, recording: Recording) -> None:
        """Follows this recording: it answers the request from now on."""
        if not self.follows(recording):
            self._alive.append(recording)

    def follows(self, recording: Recording) -> bool:
        """Whether the client goes on like this recording."""
        return any(other.number == recording.number for other in self._alive)

    def instead(self, sent: bytes) -> Recording | None:
        """Returns another recording, if it fits the client and its body begins with
        `sent`."""
        return next((recording for recording in self._alive
                     if recording.response.body.startswith(sent)), None)
