"""What is read of large or costly bodies, in a process apart from the worker: see
exchange.work. A worker sends it routes, secrets and a request, never recordings' files.
"""

import functools
import pickle

import msgspec

from cutthrough.recording.keys import Route
from cutthrough.recording.masking import Masker, Redaction
from cutthrough.recording.matcher import Matcher
from cutthrough.recording.matches import Likely, Reading
from cutthrough.recording.model import OF_TOKENS, Pattern, Recording, Request
from cutthrough.recording.nearest import Nearest
from cutthrough.recording.patterns import make_predicate
from cutthrough.recording.templates import render

NO_BODY = b""


def pack_rules(routes: tuple[Route, ...], redaction: Redaction | None, key: bytes
               ) -> bytes:
    """What makes a matcher there. `redaction`: None: there are no secrets."""
    return pickle.dumps((routes, redaction, key), 5)


@functools.lru_cache(4)
def _matcher_of(rules: bytes) -> Matcher:
    routes, redaction, key = pickle.loads(rules)
    return Matcher(routes, Masker(redaction, key).request if redaction else None)


def read(rules: bytes, request: Request, recorded: bool
         ) -> tuple[Request | None, Reading]:
    """The request without its secrets, and its reading. None: it has none; the reading
    is without a request, so that the body is not sent twice."""
    found = _matcher_of(rules).read(request, recorded=recorded)
    changed = None if found.request == request else found.request
    return changed, found._replace(
        request=msgspec.structs.replace(request, body=NO_BODY, fields=()))


def ask(patterns: tuple[Pattern, ...], request: Request, whole: Request
        ) -> dict[Pattern, bool]:
    """Which hold. `whole`: with its secrets."""
    return {one: make_predicate(one)(whole if one.how in OF_TOKENS else request)
            for one in patterns}


def find_nearest(rules: bytes, request: Request, likely: Likely) -> Nearest | None:
    return _matcher_of(rules).nearest(request, likely)


def fill(recording: Recording, request: Request, state: dict[str, str]) -> Recording:
    """Renders its template. Raises TemplateMistake."""
    return render(recording, request, state)
