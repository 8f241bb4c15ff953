"""Answers that are made before they are asked for, while a session comes into force.

Each is what a Play would send, and would send again, to any request with this line. It
is put where the session finds it by the bytes of such a request (session.recorded), so
that the first of them costs as little as the next. What depends on more is left to the
Play: a body, fields, a sequence, state, an answer that takes time or is changed.
"""

from collections.abc import Iterable

from cutthrough.recording.alter import changes
from cutthrough.recording.heads import build_body, build_head
from cutthrough.recording.matcher import Matcher
from cutthrough.recording.matches import Match
from cutthrough.recording.play import takes_time
from cutthrough.recording.shared import Answers
from cutthrough.recording.sluices import PIECE

# Bytes; those of more are not read: PIECE is the most that is sent at once
MOST_PACKED = 2 * PIECE


def prepare(matcher: Matcher, numbers: Iterable[int], answers: Answers) -> bool:
    """False: there is no room for more."""
    if answers.by_fields:
        return True
    return all(_put(found, packed, answers) for number in numbers
               if number in matcher
               and len(packed := matcher.packed(number)) < MOST_PACKED
               and (found := matcher.own_match(number)) is not None)


def _put(found: Match, packed: bytes, answers: Answers) -> bool:
    recording = found.recording
    request, response = recording.request, recording.response
    if changes(found, None) or takes_time(recording, speed=0):
        return True
    query = f"?{request.query}" if request.query else ""
    line = f"{request.method} {request.path}{query} HTTP/1.1\r"
    try:
        host, asked = request.host.encode("ascii"), line.encode("ascii")
    except UnicodeEncodeError:               # of a file that was imported
        return True
    head, chunked = build_head(response, request.method, minor=1)
    return answers.prepare(
        request.scheme == "https", request.port, host, asked, head,
        build_body(response, request.method, chunked), recording.number, packed)
