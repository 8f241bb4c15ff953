"""The changes of a recorded answer on its way to a client, in this order:

    template ──> refresh of the route ──> the operator's on_replay
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from cutthrough.contained import contain
from cutthrough.recording.match.matches import Match
from cutthrough.recording.model.fresh import refresh
from cutthrough.recording.model.ranges import can_be_sent
from cutthrough.recording.model.recording import Recording, Request, Response
from cutthrough.recording.model.templates import TemplateMistake, render

log = logging.getLogger("cutthrough")

# Of the recording and the request; None: as it is
OnReplay = Callable[[Request, Recording], Response | None]


class ReplayFailed(Exception):
    """A matching recording cannot be replayed, for the given reason."""


def changes(match: Match, hook: OnReplay | None) -> bool:
    return bool(hook is not None or match.recording.template or match.route.refresh
                or match.route.refresh_ids)


def alter(match: Match, request: Request, hook: OnReplay | None) -> Recording:
    """`request`: with its fields. Raises ReplayFailed."""
    recording, route = match.recording, match.route
    try:
        if recording.template:
            recording = render(recording, request, match.state)
        if route.refresh or route.refresh_ids:
            recording = refresh(
                recording, route.refresh, route.refresh_ids, datetime.now(UTC))
    except TemplateMistake as error:
        raise ReplayFailed(
            f"recording {recording.number}, its template: {error}") from None
    if hook is None:
        return recording
    try:
        response = hook(request, recording)
    except BaseException as error:   # the operator's code may raise anything
        contain(error)
        log.exception("on_replay failed for recording %d", recording.number)
        raise ReplayFailed(f"recording {recording.number}, on_replay: "
                           f"{type(error).__name__}") from None
    if response is None:
        return recording
    if not isinstance(response, Response):
        raise ReplayFailed(f"recording {recording.number}, on_replay: it returned "
                           f"{type(response).__name__}, no Response")
    if not can_be_sent(response):
        raise ReplayFailed(f"recording {recording.number}, on_replay: the status "
                           f"{response.status!r:.20} is none")
    return msgspec.structs.replace(recording, response=response)
