"""A proxy with secrets in all places of its traffic, and no secret in any octet that it
writes or shows (R79 to R81): database, sessions, logs, events, HAR, copies, the API."""

import json
from pathlib import Path

import pytest

from tests.support.admin import AUTHORIZED, Operator
from tests.support.secrets import BODIES, Secretive, leaks, serve
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def content_of(operator: Operator, path: str) -> bytes:
    connection = operator.connection()
    connection.request("GET", path, headers=AUTHORIZED)
    content = connection.getresponse().read()
    connection.close()
    return content


def octets_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*")
            if path.is_file()}


def test_no_secret_is_in_any_octet_that_is_written_or_said(
        loop_name, directory, opened, tmp_path, make_origin, dial):
    """R79, R80, R81."""
    secretive = Secretive(opened, directory("proxy"), loop_name, tmp_path / "made")
    operator, folder = secretive.operator, secretive.folder
    events = operator.connection()
    events.request("GET", "/events")
    stream = events.getresponse()
    secretive.fill(dial, make_origin(serve))
    assert operator.ask("POST", "/settle", **AUTHORIZED)[0] == 200
    said = {}
    for path in ("/flows", "/flows.har", "/flows/counts", "/flows/hosts",
                 "/flows/slowest", "/flows/failures", "/flows/statistics", "/replays",
                 "/sessions", "/sessions/default", *[
                     f"/flows/{n + 1}{view}" for n in range(len(BODIES)) for view in (
                         "", "/request-body", "/response-body", "/as/curl", "/as/fetch",
                         "/as/json", "/as/httpx", "/as/raw", "/messages")]):
        said[path] = content_of(operator, path)
    body = json.loads(said["/flows/1/response-body"])
    assert body["password"] == "[redacted]"
    assert said["/flows/9/response-body"] == b"Your token is [redacted]."
    said["/events"] = wait_until(lambda: stream.read1(1 << 16), "events")
    stream.close()
    events.close()
    lines = (folder / "access").read_text().splitlines()
    assert len([line for line in lines if '"POST"' in line]) == len(BODIES)
    written = octets_of(folder)
    assert {".db", ".sqlite"} & {Path(name).suffix for name in written}
    said["standard error"] = secretive.proxy.stderr().encode()
    assert not leaks(written | said)
