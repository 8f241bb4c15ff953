"""The changes of a recorded answer on its way to a client, in this order:

    template ──> refresh of the route ──> the operator's on_replay
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from cutthrough.recording.match.matches import Match
from cutthrough.recording.model.fresh import refresh
from cutthrough.recording.model.recording import Recording, Request, Response
from cutthrough.recording.model.templates import TemplateMistake, render

log = logging.getLogger("cutthrough")

# Of the recording and the request; None: as it is
OnReplay = Callable[[Request, Recording], Response | None]


class ReplayFailed(Exception):
    """A matching recording cannot be replayed, for the given reason."""


def changes(found: Match, hook: OnReplay | None) -> bool:
    return bool(hook is not None or found.recording.template or found.route.refresh
                or found.route.refresh_ids)


def alter(found: Match, request: Request, hook: OnReplay | None) -> Recording:
    """`request`: with its fields. Raises ReplayFailed."""
    one, route = found.recording, found.route
    try:
        if one.template:
            one = render(one, request, found.state)
        if route.refresh or route.refresh_ids:
            one = refresh(one, route.refresh, route.refresh_ids, datetime.now(UTC))
    except TemplateMistake as error:
        raise ReplayFailed(f"recording {one.number}, its template: {error}") from None
    if hook is None:
        return one
    try:
        made = hook(request, one)
    except (Exception, SystemExit) as error:     # the operator's code may
        log.exception("on_replay failed for recording %d", one.number)
        raise ReplayFailed(f"recording {one.number}, on_replay: "
                           f"{type(error).__name__}") from None
    if made is None:
        return one
    if not isinstance(made, Response):
        raise ReplayFailed(f"recording {one.number}, on_replay: it returned "
                           f"{type(made).__name__}, no Response")
    return msgspec.structs.replace(one, response=made)
