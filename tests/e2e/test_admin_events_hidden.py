"""Of a request in an opened tunnel, events without a token have host and port (R81)."""

import json

import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.inside import ALL, OK, config, enter, over_tls
from tests.support.lines import read_line
from tests.support.origin import answer

pytestmark = pytest.mark.any_loop

# Requests inside, and what remains of their URLs; "{}": the port
REQUESTS = [
    ("GET /s3cret?a=s3cret HTTP/1.1", "https://a.example:{}"),
    ('GET /a"s3cret HTTP/1.1', "https://a.example:{}"),
    ("GET /a\\s3cret HTTP/1.1", "https://a.example:{}"),
    ("GET /s3cret#s3cret HTTP/1.1", "-"),
    ("GET s3cret HTTP/1.1", "-"),
    ('GET s3"cret/"s3cret HTTP/1.1', "-"),
    ("GET ftp://a.example/s3cret HTTP/1.1", "-"),
    ("GET http://a.example:{}/s3cret HTTP/1.1", "https://a.example:{}"),
    ("GET https://me:s3cret@a.example:{}/s3cret HTTP/1.1", "https://***@a.example:{}"),
    ("CONNECT a.example:{}/s3cret HTTP/1.1", "-"),
    ("GET /s3cret HTTP/9.1", "-"),
]


def test_no_event_without_a_token_has_a_target(start_policy, make_origin, dial):
    """A target that was refused is no URL, and was in the event as it came."""
    proxy = start_policy(ALL, config(DOOR))
    origin, operator = make_origin(over_tls(answer(OK))), operator_of(proxy)
    made = operator.connection()
    made.request("GET", "/events")
    stream = made.getresponse()
    for line, _ in REQUESTS:
        client = enter(proxy, dial(proxy), origin.port)
        client.send(f"{line.format(origin.port)}\r\nHost: a.example:{origin.port}\r\n"
                    "\r\n".encode())
        client.read_response("GET")
        client.close()
    said = []
    while len(said) < 2 * len(REQUESTS):         # each with the CONNECT before it
        line = stream.readline()
        if line.startswith(b"data: "):
            said.append(read_line(line[6:]))
    made.close()
    assert all(record["intercepted"] for record in said)
    assert [record["url"] for record in said[1::2]] == [
        url.format(origin.port) for _, url in REQUESTS]
    assert {record["url"] for record in said[::2]} == {f"a.example:{origin.port}"}
    assert "s3cret" not in json.dumps(said)
