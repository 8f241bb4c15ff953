"""Heads that only a lenient reader accepts are kept as the grammar has them, and none
is replayed that a client would read otherwise."""

from typing import Any

import pytest

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.sessions.directory import Sessions
from tests.support.captures import database, wait_rows
from tests.support.origin import answer
from tests.support.recordings import fill, folder, made, recorded, run_verb, start
from tests.support.wait import wait_until

__all__ = ["database", "folder", "start"]                # fixtures

SECRET = b"a-secret-of-the-origin"
HEAD = (b"HTTP/1.1 200 OK\r\nX: 1\r\nSet-Cookie: a=%b\r\nContent-Length: 2\r\n\r\n"
        % SECRET)
ODD = {
    "bare LF": HEAD.replace(b"\r\n", b"\n"),
    "a bare LF behind the status line": HEAD.replace(b"OK\r\n", b"OK\n"),
    "a bare LF before the cookie": HEAD.replace(b"1\r\n", b"1\n"),
    "a bare LF for the blank line": HEAD[:-2] + b"\n",
    "white space before a colon": HEAD.replace(b"kie:", b"kie \t:"),
    "a fold": HEAD.replace(b"a=", b"a=1;\r\n b="),
    "an empty line before the status line": b"\r\n" + HEAD,
}


@pytest.mark.parametrize("name", ODD)
def test_a_lenient_head_is_redacted_and_replayed(
        start, folder, database, make_origin, dial, name):
    """R59, R79: the head was kept as it came. Who read it split it at CRLF and took the
    white space for a part of the name: the cookie was recorded, or nothing was."""
    origin = make_origin(answer(ODD[name] + b"ok"))
    proxy = start("record", 'capture = "full"', f'capture_file = "{database}"\n')
    with dial(proxy) as client:
        reply = client.get(origin.url("/a"))
        assert SECRET.decode() in (reply.get("Set-Cookie") or "")
    wait_until(lambda: recorded(folder) == 1, proxy.stderr)
    session = Sessions(folder).open("default")
    (recording,) = session.recordings()
    session.close()
    names = [name for name, _ in recording.response.fields]
    assert names == ["X", "Set-Cookie", "Content-Length"]
    assert SECRET not in repr(recording).encode()
    lines = wait_rows(database, 1)[0]["response_head"].split("\r\n")
    assert lines == ["HTTP/1.1 200 OK", "X: 1", "Set-Cookie: [redacted]",
                     "Content-Length: 2", "", ""]
    run_verb(folder, "mode", "replay")
    wait_until(lambda: "mode replay" in proxy.stderr(), proxy.stderr)
    with dial(proxy) as client:
        reply = client.get(origin.url("/a"))
        assert (reply.status, reply.get("X"), reply.body) == (200, "1", b"ok")
        assert len(origin.requests) == 1


SECOND = "1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
SPLIT: dict[str, dict[str, Any]] = {
    "a value": {"fields": (("X", SECOND),)},
    "a value with LF alone": {"fields": (("X", "1\nX-Other: 2"),)},
    "a name": {"fields": (("X: 1\r\nX-Other", "2"),)},
    "an empty name": {"fields": (("", "1"),)},
    "a NUL": {"fields": (("X", "a\0b"),)},
    "a trailer": {"trailers": (("X", SECOND),)},
    "the name of a trailer": {"trailers": (("X Y", "1"),)},
}


@pytest.mark.parametrize("name", SPLIT)
def test_an_answer_that_would_be_two_is_not_replayed(start, folder, dial, name):
    """R93: a file's line end came out between two answers, of which the client took the
    second for that to its next request."""
    recording = made(80, "/split", **SPLIT[name])
    with pytest.raises(NotImported, match="the answer: "):
        checked(recording)
    fill(folder, recording, made(80, "/next"))
    with dial(start("replay")) as client:
        reply = client.get("http://127.0.0.1/split")
        assert reply.status == 502
        assert 'details="replay_failed"' in (reply.get("Proxy-Status") or "")
        assert client.get("http://127.0.0.1/next").body == b"hello"


def test_a_coding_of_the_transfer_is_no_part_of_a_recording():
    with pytest.raises(NotImported, match="Transfer-Encoding"):
        checked(made(80, fields=(("Transfer-Encoding", "gzip"),)))
