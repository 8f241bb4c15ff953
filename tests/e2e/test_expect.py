"""Expectations: RFC 9110 section 10.1.1, on both sides of the proxy."""

import shutil
import subprocess

import pytest

from tests.support.client import build_request
from tests.support.origin import OK
from tests.support.proxy import clean_environment
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start

pytestmark = pytest.mark.any_loop

TIMES = 8


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_curl_tries_again_without_the_expectation_that_was_refused(
    proxy, make_origin, tmp_path
):
    """The 417 had `close`, and then curl does not try again. Without it, curl was
    often quicker than the connection's end, and sent again into that connection."""

    def script(conn):
        head = conn.read_head()
        conn.note(head)
        if head.get("Expect"):
            conn.send(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
        else:
            assert conn.read_exact(2_000_000) == b"x" * 2_000_000
            conn.send(OK)
        conn.stall()

    origin = make_origin(script)
    (tmp_path / "file").write_bytes(b"x" * 2_000_000)
    for _ in range(TIMES):
        done = subprocess.run(
            ["curl", "-sS", "-x", proxy.url, "-T", tmp_path / "file",
             "--expect100-timeout", "60", origin.url("/put")],
            capture_output=True, timeout=60, check=True, env=clean_environment())
        assert done.stdout == b"ok"
    assert [bool(request.get("Expect")) for request in origin.requests] == [
        True, False] * TIMES
    assert [line["status"] for line in proxy.wait_log(2 * TIMES)] == [417, 200] * TIMES


@pytest.mark.parametrize("framing", ["Content-Length: 4", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("mode", ["cache", "spy"])
def test_a_client_gets_one_100_of_a_body_that_is_read_for_its_recording(
        start, make_origin, dial, mode, framing):
    """The origin's came behind ours. Node's client sent its body again then, and Java's
    waited for ever."""
    def script(conn):
        while head := conn.read_request():
            if head.get("Expect"):
                conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            conn.send(OK)

    proxy, origin = start(mode), make_origin(script)
    client = dial(proxy)
    for _ in range(2):
        client.send(build_request("PUT", origin.url("/put"), "X-First: 1",
                                  "expect: 100-Continue", framing, "X-Last: 1"))
        assert client.read_head().status == 100
        client.send(b"body" if "Length" in framing else b"4\r\nbody\r\n0\r\n\r\n")
        answer = client.read_response("PUT")
        assert (answer.status, answer.body) == (200, b"ok")
    for request in origin.requests:
        assert request.get("Expect") is None
        assert (request.get("X-First"), request.get("X-Last")) == ("1", "1")
