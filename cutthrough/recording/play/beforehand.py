"""Answers made before their first request, while a session comes into force.

Each equals a Play's answer, the first time and later, to any request with this line.
`session.replay.answer_cache` finds it by the bytes of such a request, so the first of
these requests costs as little as the next. An answer is left to the Play if it depends
on more (a body, fields, a sequence, state), takes time or is changed.
"""

from collections.abc import Iterable

from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match
from cutthrough.recording.model.recorded_heads import (
    NotSent,
    build_body,
    build_head,
    takes_time,
)
from cutthrough.recording.model.sluices import PIECE
from cutthrough.recording.play.alter import changes
from cutthrough.recording.play.shared import AnswerCache, Line, Ready

# Bytes; a longer recording is not read, because at most PIECE is sent at once
MOST_PACKED = 2 * PIECE


def prepare(matcher: Matcher, numbers: Iterable[int], cache: AnswerCache) -> bool:
    """False if there is no room for more."""
    if cache.by_fields:
        return True
    return all(_put(match, packed, matcher.readable.mark(number), cache)
               for number in numbers
               if number in matcher
               and len(packed := matcher.packed(number)) < MOST_PACKED
               and (match := matcher.own_match(number)) is not None)


def _put(match: Match, packed: bytes, mark: str, cache: AnswerCache) -> bool:
    recording = match.recording
    request, response = recording.request, recording.response
    if changes(match, None) or takes_time(recording, speed=0):
        return True
    query = f"?{request.query}" if request.query else ""
    line = f"{request.method} {request.path}{query} HTTP/1.1\r"
    try:
        host, request_line = request.host.encode("ascii"), line.encode("ascii")
    except UnicodeEncodeError:               # of an imported file
        return True
    try:
        head, chunked = build_head(response, request.method, minor=1)
    except NotSent:                          # the reply to a request says so
        return True
    return cache.prepare(
        Line(request.scheme == "https", request.port, host, request_line),
        Ready(head, build_body(response, request.method, chunked), recording.number,
              packed, mark))
