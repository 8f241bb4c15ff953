"""Readings of large or costly bodies, in a process apart from the worker: see
exchange.work. A worker sends it routes, secrets and a request, never recordings' files.
"""

import functools
import pickle

import msgspec

from cutthrough.recording.match.alike import Alike, Own
from cutthrough.recording.match.keys import Route
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Likely, Reading
from cutthrough.recording.match.nearest import Nearest
from cutthrough.recording.match.patterns import Subject, make_predicate
from cutthrough.recording.model.masking import Redaction, make_masker
from cutthrough.recording.model.recording import (
    Message,
    Pattern,
    Recording,
    Request,
)
from cutthrough.recording.model.templates import render

NO_BODY = b""


def pack_rules(routes: tuple[Route, ...], redaction: Redaction | None, key: bytes
               ) -> bytes:
    """The parts of a matcher there. `redaction`: None: there are no secrets."""
    return pickle.dumps((routes, redaction, key), 5)


@functools.lru_cache(4)
def _matcher_of(rules: bytes) -> Matcher:
    routes, redaction, key = pickle.loads(rules)
    return Matcher(routes, make_masker(redaction, key).request if redaction else None)


def _masked(rules: bytes, request: Request, message: Message) -> bytes:
    _routes, redaction, key = pickle.loads(rules)
    if redaction:
        message = make_masker(redaction, key).messages(request)(message)
    return message.data


def read(rules: bytes, request: Request, recorded: bool
         ) -> tuple[Request | None, Reading]:
    """The request without its secrets, and its reading. None: it has none; the reading
    is without a request, so that the body is not sent twice."""
    reading = _matcher_of(rules).read(request, recorded=recorded)
    changed = None if reading.request == request else reading.request
    return changed, reading._replace(
        request=msgspec.structs.replace(request, body=NO_BODY, fields=()))


def ask(patterns: tuple[Pattern, ...], request: Request, whole: Request
        ) -> dict[Pattern, bool]:
    """Which hold. `whole`: with its secrets."""
    with_secrets, without = Subject(whole), Subject(request)
    return {
        pattern: make_predicate(pattern)(
            with_secrets if pattern.is_of_token else without)
        for pattern in patterns}


def find_nearest(rules: bytes, request: Request, likely: Likely) -> Nearest | None:
    return _matcher_of(rules).nearest(request, likely)


def compare_messages(rules: bytes, route: Route, recorded: Request, request: Request,
                     message: Message, there: bytes, own: Own
                     ) -> tuple[str | None, Own]:
    """As Alike.compare, with the client's values behind it."""
    alike = Alike(route, recorded)
    alike.own = own
    masked = _masked(rules, request, message)
    return alike.compare(masked, message.data, there), alike.own


def answer_message(route: Route, recorded: Request, data: bytes, own: Own) -> bytes:
    alike = Alike(route, recorded)
    alike.own = own
    return alike.answer(data)


def fill(recording: Recording, request: Request, state: dict[str, str]) -> Recording:
    """Renders its template. Raises TemplateMistake."""
    return render(recording, request, state)
