"""Readings of large or costly bodies, in a process apart from the worker: see
exchange.work. A worker sends it routes, secrets and a request, never recordings' files.
"""

import functools
import pickle
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from cutthrough.exchange.work import Busy, Gate, Unread, is_costly
from cutthrough.recording.match.alike import Alike, Own
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Likely, Nearest, Reading
from cutthrough.recording.match.patterns import Subject, make_predicate
from cutthrough.recording.match.routes import Route
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
    """Returns which patterns hold. `whole`: the request with its secrets."""
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


class Setting(NamedTuple):
    """`request`: the client's request. `mask` removes its messages' secrets, absent
    from recordings; `rules` make the same mask in another process."""

    request: Request
    mask: Callable[[Message], Message]
    rules: bytes
    gate: Gate
    asker: str


class Conversing:
    """The client's part of a conversation."""

    def __init__(self, route: Route, recording: Recording, setting: Setting) -> None:
        """Raises KeyMistake."""
        self._route, self._recorded, self._setting = route, recording.request, setting
        self._alike = Alike(route, recording.request)

    async def difference(self, message: Message, recorded: bytes) -> str | None:
        """In words; None if they are the same, and the client's values are known."""
        setting, alike = self._setting, self._alike
        if self._is_costly(message.data, recorded):
            text: str | None
            try:
                text, alike.own = await setting.gate.run(
                    setting.asker, compare_messages, setting.rules, self._route,
                    self._recorded, setting.request, message, recorded, alike.own)
            except (Busy, Unread) as error:
                return f"it was not compared: {error or 'too many others are'}"
            return text
        return alike.compare(setting.mask(message).data, message.data, recorded)

    async def answer(self, data: bytes) -> bytes:
        """A recorded message of the origin's, with the client's values."""
        setting, alike = self._setting, self._alike
        if alike.own and self._is_costly(data):
            try:
                data = await setting.gate.run(
                    setting.asker, answer_message, self._route, self._recorded,
                    data, alike.own)
            except (Busy, Unread):
                pass
            return data
        return alike.answer(data)

    def _is_costly(self, *data: bytes) -> bool:
        return self._setting.gate.is_apart and any(map(is_costly, data))
