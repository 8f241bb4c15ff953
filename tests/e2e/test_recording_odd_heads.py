"""Heads that only a lenient reader accepts are kept as the grammar has them."""

import pytest

from cutthrough.recording.sessions.directory import Sessions
from tests.support.captures import database, wait_rows
from tests.support.origin import answer
from tests.support.recordings import folder, recorded, run_verb, start
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
