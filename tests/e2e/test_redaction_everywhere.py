"""A proxy with secrets in every place of its traffic, and none in any octet that it
writes or says (R79 to R81): database, sessions, logs, events, page, HAR, copies."""

import json
from pathlib import Path

import pytest

from tests.e2e.test_capture import wait_rows
from tests.support.admin import AUTHORIZED, Operator, administered
from tests.support.client import PASSWORD
from tests.support.origin import Connection
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

SECRET = "s3cr3t"
POLICY = """
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
capture = "full"
recording = "record"
"""
OPTIONS = """
redact_fields = ["x-own"]
redact_query = ["token"]
redact_json = ["$..password"]
"""
JSON = '{"password": "%s", "to": "https://u.example/?a=1\\u0026token=%s"}'
FORM = "application/x-www-form-urlencoded"
# Media type, request's body, response's body
BODIES = [
    ("application/json", JSON, JSON),
    (FORM, "a=1&token=%s", "to=https%%3A%%2F%%2Fh%%2F%%3Ftoken%%3D%s"),
    ("text/html; charset=utf-16", "<a href='/?token=%s'>", "<a href='/?token=%s'>"),
    ("text/event-stream", "data: x\n\n", 'data: {"password":\rdata: "%s"}\r\r'),
    ("multipart/form-data; boundary=b",
     '--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n%s\r\n--b--\r\n',
     '--b\r\nContent-Type: application/json\r\n\r\n{"password": "%s"}\r\n--b--\r\n'),
    ("application/octet-stream", "\x00\x01 token=%s", '[{"password": "%s"}]'),
    ("application/json; charset=punycode", JSON, JSON),
    ("application/x-ndjson", '{"a": 1}\n{"password": "%s"}\n', '{"password": "%s'),
]


def fill(text: str, kind: str) -> bytes:
    return text.replace("%s", SECRET).replace("%%", "%").encode(
        "utf-16" if "utf-16" in kind else "utf-8")


def serve(conn: Connection) -> None:
    """Answers with the body of the type that is asked for."""
    for number in iter(lambda: conn.read_request().target.rpartition("/")[2][:1], ""):
        kind, _, text = BODIES[int(number)]
        body = fill(text, kind)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nX-Own: %s\r\n"
                  b"Set-Cookie: a=%s\r\nLocation: http://u:%s@h/?token=%s#token=%s\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (
                      kind.encode(), *[SECRET.encode()] * 5, len(body), body))


def content_of(operator: Operator, path: str) -> bytes:
    connection = operator.connection()
    connection.request("GET", path, headers=AUTHORIZED)
    content = connection.getresponse().read()
    connection.close()
    return content


def octets_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_secret_is_in_any_octet_that_is_written_or_said(
        loop_name, directory, opened, tmp_path, make_origin, dial):
    """R79, R80, R81."""
    folder, database = tmp_path / "made", tmp_path / "made" / "flows.db"
    folder.mkdir()
    (tmp_path / "policy.toml").write_text(POLICY)
    proxy, operator = administered(
        opened, directory("proxy"), loop_name,
        f'policy = "{tmp_path}/policy.toml"\ncapture_file = "{database}"\n'
        f'recording_directory = "{folder}/sessions"\naccess_log = "{folder}/access"\n'
        f'access_log_format = "json"\n{OPTIONS}')
    origin = make_origin(serve)
    events = operator.connection()
    events.request("GET", "/events")
    stream = events.getresponse()
    with dial(proxy) as client:
        for number, (kind, text, _) in enumerate(BODIES):
            body = fill(text, kind)
            client.ask(
                "POST", origin.url(f"/{number}?a=1&to%6ben={SECRET}&b=2"),
                f"Content-Type: {kind}", f"Content-Length: {len(body)}",
                f"Authorization: Bearer {SECRET}", f"Cookie: a={SECRET}",
                f"X-Own: {SECRET}", f"Referer: http://u:{SECRET}@h/#token={SECRET}",
                body=body)
    wait_rows(database, len(BODIES))
    assert operator.ask("POST", "/settle", **AUTHORIZED)[0] == 200
    said = {}
    for path in ("/flows", "/flows.har", "/flows/counts", "/replays", "/sessions",
                 "/sessions/default", *[
                     f"/flows/{n + 1}{view}" for n in range(len(BODIES)) for view in (
                         "", "/request-body", "/response-body", "/as/curl", "/as/fetch",
                         "/as/json", "/as/httpx", "/as/raw", "/messages")]):
        said[path] = content_of(operator, path)
    body = json.loads(said["/flows/1/response-body"])
    assert body["password"] == "[redacted]"
    said["/events"] = wait_until(lambda: stream.read1(1 << 16), "events")
    stream.close()
    events.close()
    lines = (folder / "access").read_text().splitlines()
    assert len([line for line in lines if '"POST"' in line]) == len(BODIES)
    written = octets_of(folder)
    assert {".db", ".sqlite"} & {path.suffix for path in written}
    said["standard error"] = proxy.stderr().encode()
    leaks = {str(place) for place, octets in (written | said).items()
             for charset in ("utf-8", "utf-16-le") if SECRET.encode(charset) in octets
             or PASSWORD.encode(charset) in octets}
    assert not leaks
