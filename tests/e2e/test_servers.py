"""The instruments themselves, without or beside the proxy: a check that cannot fail
checks nothing."""

import shutil
import socket
import subprocess

import pytest

from tests.support.origin import Origin, answer_and_close, echo
from tests.support.stream import Closed, Stream
from tests.support.wait import wait_until


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nginx_answers_by_itself(nginx, scheme):
    url = nginx.url("/16k") if scheme == "http" else nginx.tls_url("/16k")
    command = [
        "curl",
        "-sS",
        "--fail",
        "--noproxy",
        "*",
        "--cacert",
        str(nginx.ca),
        url,
    ]
    done = subprocess.run(command, capture_output=True, timeout=20)
    assert done.stdout == nginx.payload("16k"), done.stderr
    wait_until(lambda: nginx.hits("/16k"), "a line in its log")


def dial(origin: Origin) -> Stream:
    return Stream(socket.create_connection((origin.host, origin.port), 5))


def test_the_origin_records_every_byte():
    with Origin(echo) as origin, dial(origin) as client:
        client.send(b"\x00\xff any byte")
        client.half_close()
        assert client.read_rest() == b"\x00\xff any byte" == origin.received


def test_what_a_script_asserts_is_raised():
    def script(conn):
        assert conn.read_exact(1) == b"a", "not an a"

    origin = Origin(script)
    with dial(origin) as client:
        client.send(b"b")
        assert client.at_eof()
    with pytest.raises(AssertionError, match="not an a"):
        origin.close()


def test_a_short_body_is_not_taken_for_a_whole_one():
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno"
    with Origin(answer_and_close(raw)) as origin, dial(origin) as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(Closed):
            client.read_response()


def test_a_connection_that_stays_is_seen(proxy):
    with proxy.client() as client:
        client.send(b"GET http://half.a.head")
        with pytest.raises(AssertionError, match="1 socket"):
            wait_briefly(proxy)


def wait_briefly(proxy) -> None:
    wait_until(lambda: "socket" in proxy.leaked(), "the connection accepted")
    assert not proxy.leaked(), proxy.leaked()
