"""A route of recordings with a redaction of its own, and one by an expression."""

import pytest

from cutthrough.recording.sessions.directory import Sessions
from tests.support.origin import answer
from tests.support.recordings import folder, recorded, run_verb, start
from tests.support.wait import wait_until

__all__ = ["folder", "start"]                # fixtures

pytestmark = pytest.mark.any_loop

ROUTES = """
[recording_routes.chats]
path_regexes = ['^/chats/[0-9]+$']
body = "json"
ignored_paths = ["$.at"]
redact_json = ["$.token"]
redact_query = ["key"]
"""
BODY = b'{"token": "s3cret", "at": 1}'
REPLY = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
         b"\r\n%b" % (len(BODY), BODY))


def post(client, url, body=BODY):
    return client.ask("POST", url, f"Content-Length: {len(body)}",
                      "Content-Type: application/json", body=body)


def test_what_a_route_removes_is_kept_of_others_and_still_matches(
        start, folder, make_origin, dial):
    """Before, a session had one redaction, and paths of routes were globs alone."""
    origin = make_origin(answer(REPLY))
    with dial(start("record", config=ROUTES)) as client:
        for path in ("/chats/7?key=s3cret", "/chats/x?key=s3cret"):
            assert post(client, origin.url(path)).body == BODY
    wait_until(lambda: recorded(folder) == 2, "the recordings")
    session = Sessions(folder).open("default")
    chat, other = session.recordings()
    assert [scope.json for scope in session.manifest.redaction.scopes] == [
        ("$.token",)]
    session.close()
    for body in (chat.request.body, chat.response.body, chat.request.query.encode()):
        assert b"s3cret" not in body
    assert (other.request.body, other.response.body) == (BODY, BODY)
    run_verb(folder, "mode", "replay")
    with dial(start(config=ROUTES)) as client:
        asked = len(origin.requests)
        reply = post(client, origin.url("/chats/7?key=s3cret"),
                     b'{"at": 2, "token": "s3cret"}')
        assert reply.status == 200 and b"[redacted:" in reply.body
        for path, body, status in (
                ("/chats/7?key=s3cret", b'{"token": "another", "at": 1}', 502),
                ("/chats/7?key=another", BODY, 502),
                ("/chats/x?key=s3cret", BODY, 200),
                ("/chats/x?key=s3cret", b'{"at": 2, "token": "s3cret"}', 502)):
            assert post(client, origin.url(path), body).status == status, (path, body)
        assert len(origin.requests) == asked


@pytest.mark.parametrize(("key", "text"), [
    ("path_regexes", "["), ("redact_body", "(")])
def test_an_expression_that_cannot_be_read_is_refused(start, key, text):
    with pytest.raises(AssertionError, match=rf"recording_routes.*{key}|{key}"):
        start(config=f"[recording_routes.a]\n{key} = ['{text}']\n")
