"""Redaction of a route alone: what is removed from its exchanges, and no others."""

import msgspec
import pytest

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.recording.match.matches import Match, Miss
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.masking import Redaction, Scope, make_masker
from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Recording,
    Response,
)
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.session import Manifest
from tests.recording.answers import matcher_of, request

JSON = (("Content-Type", "application/json"), ("X-Key", "s3cret"))
BODY = b'{"token": "s3cret", "pin": "s3cret"}'
CHATS = Scope(hosts=("api.*",), paths=("/chat*",), json=("$.token",), fields=("x-key",))
PINS = Scope(path_regexes=(r"^/(chat|pins)/\d+$",), json=("$.pin",), query=("key",))
REDACTION = Redaction(scopes=(CHATS, PINS))
KEY = b"k" * 32


def asked(path, host="api.test"):
    return request(f"{path}?key=s3cret", BODY, host=host, fields=JSON)


def made(path, body=BODY):
    return Recording(request=asked(path), response=Response(
        status=200, fields=JSON, chunks=(Chunk(0, body),)))


@pytest.mark.parametrize(("host", "path", "removed"), [
    ("api.test", "/other", ()), ("web.test", "/chat", ()),
    ("api.test", "/chat", ("token", "x-key")), ("web.test", "/pins/7", ("pin", "key")),
    ("api.test", "/chat/7", ("token", "x-key", "pin", "key"))])
def test_each_scope_that_applies_counts(host, path, removed):
    """Before, a session had one redaction for all."""
    masked = make_masker(REDACTION, KEY).request(asked(path, host))
    found = {"token": b'"token": "s3cret"' in masked.body,
             "pin": b'"pin": "s3cret"' in masked.body,
             "key": "s3cret" in masked.query,
             "x-key": "s3cret" in masked.field("x-key")}
    assert {name for name, is_there in found.items() if not is_there} == set(removed)


def test_answers_and_messages_are_those_of_the_route():
    masker = make_masker(REDACTION, KEY)
    for path, is_kept in (("/chat", False), ("/other", True)):
        masked = masker.recording(made(path))
        assert (b'"token": "s3cret"' in masked.response.body) is is_kept
        message = masker.messages(asked(path))(Message(0, True, "text", BODY))
        assert (b'"token": "s3cret"' in message.data) is is_kept


def test_what_is_removed_from_all_is_removed_there_too():
    masker = make_masker(Redaction(json=("$.pin",), scopes=(CHATS,)), KEY)
    assert b"s3cret" not in masker.request(asked("/chat")).body
    assert b'"token": "s3cret"' in masker.request(asked("/other")).body


def test_a_session_keeps_the_scopes_and_its_requests_match(tmp_path):
    session = Sessions(tmp_path / "sessions").create("s", Manifest(redaction=REDACTION))
    session.add([made("/chat"), made("/other")])
    session.close()
    session = Sessions(tmp_path / "sessions").open("s")
    assert session.manifest.redaction == REDACTION
    matcher = matcher_of(
        session, Route(key=Key(body="json", fields=("x-key",))))
    assert isinstance(matcher.match(asked("/chat")), Match)
    other = msgspec.structs.replace(asked("/chat"), body=BODY.replace(b"s3cret", b"x"))
    assert isinstance(matcher.match(other), Miss)
    chat, other = session.recordings()
    assert b'"token": "s3cret"' not in chat.response.body
    assert other.response.body == BODY       # its route removes nothing
    session.close()


@pytest.mark.parametrize("scope", [Scope(path_regexes=("(",)), Scope(body=("(",))])
def test_a_mistake_is_found_when_the_session_is_made(tmp_path, scope):
    with pytest.raises(KeyMistake):
        Sessions(tmp_path / "sessions").create(
            "s", Manifest(redaction=Redaction(scopes=(scope,))))
    assert Sessions(tmp_path / "sessions").names() == []
