"""Requests and recordings to play with."""

from typing import Any

from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.routes import Route
from cutthrough.recording.model.recording import Chunk, Recording, Request, Response
from cutthrough.recording.sessions.session import AnySession


def request(path: str = "/", body: bytes | str = b"", **more: Any) -> Request:
    path, _, query = path.partition("?")
    data = body.encode() if isinstance(body, str) else body
    usual: dict[str, Any] = {"method": "POST" if data else "GET", "scheme": "http",
                             "host": "a.example", "port": 80}
    return Request(path=path, query=query, body=data, **{**usual, **more})


def recording(number: int, one: Request, **more: Any) -> Recording:
    return Recording(number=number, request=one, response=Response(
        status=200, chunks=(Chunk(0, b"%d" % number),)), **more)


def matcher_of(session: AnySession, *routes: Route) -> Matcher:
    """With all recordings, and the session's redaction."""
    matcher = Matcher(routes, session.masker.request)
    for entry in session.recordings():
        matcher.add(entry)
    return matcher
