"""A filter's additions to a request are in no log and no capture, and echoes of them
are masked (R82)."""

import json

import pytest

from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.client import build_request
from tests.support.parents import http, parent

pytestmark = pytest.mark.any_loop

KEY, TOKEN, WORD = "sk-secret-123", "tok/en=4711", "body-key-0123456789"
MODULE = f"""
class Key:
    async def on_request_head(self, flow):
        flow.request.headers["Authorization"] = "Bearer {KEY}"
        flow.request.path += "&api_key={TOKEN}"

class Field:
    async def on_request_head(self, flow):
        flow.request.headers["Authorization"] = "{KEY}"

class Body:
    async def on_request_body(self, flow, body):
        return body.replace(b"NONE", b"{WORD}")
"""
POLICY = """
[filters.key]
code = "injects:Key"
{keys}
[filters.body]
code = "injects:Body"
{keys}
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
filters = ["key"{more}]
capture = "full"
"""


@pytest.fixture
def start(start_policy, database):
    def run(keys="", more=""):
        return start_policy(POLICY.format(keys=keys, more=more),
                            f'capture_file = "{database}"\n',
                            modules={"injects": MODULE})
    return run


def repeat(conn):
    """Answers with all that came, in its head and its body."""
    while True:
        request = conn.read_request()
        said = {"authorization": request.get("Authorization"),
                "target": request.target, "body": request.body.decode()}
        kind = ("text/event-stream" if "stream" in request.target else
                "application/x-amz-json-1.1" if "aws" in request.target else
                "application/json")
        text = json.dumps(said).encode()
        head = (f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nETag: \"1\"\r\n"
                f"X-Said: {request.get('Authorization')}\r\n")
        if "stream" in request.target:
            conn.send(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            for at in range(0, len(text), 7):       # a secret is in several pieces
                piece = text[at:at + 7]
                conn.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            conn.send(b"0\r\n\r\n")
        else:
            conn.send(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)


def bytes_on_disk(proxy, database):
    folder = database.parent
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file()
                    ) + proxy.log_path.read_bytes() + proxy.stderr().encode()


@pytest.mark.parametrize("path", ["/plain?x=1", "/stream?x=1", "/aws?x=1"])
def test_what_a_filter_adds_is_in_no_log_and_no_capture_and_its_echo_is_masked(
        start, make_origin, dial, database, path):
    origin, proxy = make_origin(repeat), start()
    reply = dial(proxy).get(origin.url(path), "X-Own: mine-0123456789")
    (asked,) = origin.requests
    assert asked.get("Authorization") == f"Bearer {KEY}" and TOKEN in asked.target
    said = json.loads(reply.body)
    assert said["authorization"] == "*" * len(f"Bearer {KEY}")
    assert said["target"] == f"{path}&api_key={'*' * len(TOKEN)}"
    assert KEY not in reply.get("X-Said")
    (line,) = proxy.wait_log(1)
    assert line["url"].endswith(f"{path}&api_key=[redacted]")
    assert line["changed"] in ("request", "both")
    (row,) = wait_rows(database)
    assert "api_key=[redacted]" in row["url"]
    found = bytes_on_disk(proxy, database)
    assert b"mine-0123456789" in found
    for secret in (KEY, TOKEN):
        assert secret.encode() not in found, secret


@pytest.mark.parametrize("head", [
    # It may come, and no filter may set it: the whole mask failed at it, and none was
    f"200 OK\r\nX: {KEY}\r\nX-Other: a\x01b",
    f"200 OK\r\nX-Other: a\x7fb\r\nX: {KEY}",
    f"200 {KEY}",
    f"999 {KEY}\r\nX: {KEY}",
    f"103 {KEY}\r\nX: Bearer {KEY}\r\n\r\nHTTP/1.1 200 OK",
    f"101 {KEY}\r\nUpgrade: own\r\nConnection: upgrade\r\nX: Bearer {KEY}",
], ids=["control", "delete", "reason", "status", "interim", "upgrade"])
def test_an_echo_is_masked_in_each_head_of_an_answer(start, make_origin, dial, head):
    def script(conn):
        conn.read_request()
        conn.send(f"HTTP/1.1 {head}\r\nContent-Length: 2\r\n\r\nok".encode())
    origin = make_origin(script)
    client = dial(start())
    client.send(build_request("GET", origin.url("/a?b"), "Connection: upgrade",
                              "Upgrade: own"))
    client.read_until(b"ok")
    assert b"*" * len(KEY) in client.received
    assert KEY.encode() not in client.received


def test_a_field_is_added_to_a_request_without_a_path(
        start_policy, make_origin, dial):
    """It was an internal_error: the stand-in for the log was no path."""
    origin = make_origin(repeat)
    rules = POLICY.format(keys="", more="").replace("injects:Key", "injects:Field")
    proxy = start_policy(rules.replace('capture = "full"', ""),
                         modules={"injects": MODULE})
    url = f"http://127.0.0.1:{origin.port}"
    reply = dial(proxy).ask("OPTIONS", url, host=url.removeprefix("http://"))
    (asked,) = origin.requests
    assert (asked.target, asked.get("Authorization")) == ("*", KEY)
    assert json.loads(reply.body)["authorization"] == "*" * len(KEY)


def test_an_answer_without_an_echo_goes_on_as_it_came(start, make_origin, dial):
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"1\"\r\n"
                  b"Content-Length: 5\r\n\r\nhello")
    reply = dial(start()).get(make_origin(script).url("/a?b"))
    assert reply.body == b"hello" and reply.get("ETag") == '"1"'
    assert reply.get("Content-Length") == "5"


def test_a_body_that_a_filter_changes_is_not_captured(
        start, make_origin, dial, database):
    origin, proxy = make_origin(repeat), start(more=', "body"')
    reply = dial(proxy).ask("POST", origin.url("/a?b"), "Content-Length: 14",
                            body=b'{"key":"NONE"}')
    (asked,) = origin.requests
    assert WORD in asked.body.decode()
    assert json.loads(reply.body)["body"] == '{"key":"%s"}' % ("*" * len(WORD))
    wait_rows(database)
    proxy.wait_log(1)
    assert WORD.encode() not in bytes_on_disk(proxy, database)


def test_what_may_be_shown_is_shown(start, make_origin, dial, database):
    origin, proxy = make_origin(repeat), start("shown = true")
    reply = dial(proxy).get(origin.url("/a?b"))
    assert json.loads(reply.body)["authorization"] == f"Bearer {KEY}"
    (line,) = proxy.wait_log(1)
    assert line["url"].endswith(f"/a?b&api_key={TOKEN}")
    (row,) = wait_rows(database)
    assert f"api_key={TOKEN}" in row["url"]


def test_a_connection_that_names_its_client_is_no_other_request_s(
        start_policy, make_origin, dial):
    """The head behind a body that filters had is read anew, once the parent has the
    user's credentials: the connection was pooled then, for requests without (R46)."""
    way = make_origin(http)
    proxy = start_policy(
        POLICY.format(keys="", more=', "body"').replace('capture = "full"\n', ""),
        'route = "corp"\nconnect_ports = "any"\n'
        f'{parent(way, pass_credentials=True)}'
        '[[listeners]]\naddress = "127.0.0.1:0"\nauth = "none"\n',
        modules={"injects": MODULE})
    url = "http://127.0.0.1:4711/a"
    client = dial(proxy)
    assert client.ask("POST", url, "Content-Length: 4", body=b"NONE").status == 200
    assert dial(proxy).get(url, auth=None).status == 200
    assert [request.method for request in way.requests] == [
        "CONNECT", "POST", "CONNECT", "GET"]
