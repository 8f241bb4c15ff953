"""Findings of fuzzing in sessions, each as the script that showed it; the referees."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from tests.fuzz.session import Peer, Stage, check_client, check_origin

GET = b"\xffcGET http://{h}/ HTTP/1.1\r\nHost: a\r\n{a}\r\n"
OK = b"\xffoHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with contextlib.closing(Stage(asyncio.new_event_loop)) as made:
        yield made


def test_a_refusal_behind_an_answer_leaves_the_connection_open(stage: Stage) -> None:
    # A head that came whole on an idle connection and was refused made IDLE follow
    # IDLE, which no table allows: the client had its 407, then a reset and no second
    # chance, and a fault of ours was counted.
    refused = b"\xffcGET http://{h}/ HTTP/1.1\r\nHost: a\r\n\r\n"
    stage.play(GET + OK + refused + GET + OK)
    heard = stage.clients[0].heard
    assert [heard.count(b"HTTP/1.1 " + status) for status in (b"200", b"407")] == [2, 1]


def test_what_was_said_and_heard_is_told(stage: Stage) -> None:
    tunnel = b"\xffcCONNECT {t} HTTP/1.1\r\nHost: a\r\n{a}\r\nup"
    stage.play(GET + OK + tunnel + b"\xffn" + GET)
    assert len(stage.clients) == 2
    heard = [origin.heard for origin in stage.origins]
    assert [text.count(b"GET / HTTP/1.1\r\n") for text in heard] == [2]
    assert stage.tunnels[0].heard == b"up"


def test_nothing_is_dialled_that_is_not_ours(stage: Stage) -> None:
    for start in (b"GET http://{h}.example/", b"GET HTTP://example/",
                  b"CONNECT a:443", b"GET http://{h}@example/"):
        stage.play(b"\xffc" + start + b" HTTP/1.1\r\nHost: a\r\n{a}\r\n")
        assert not stage.clients


class Heard(Peer):
    def __init__(self, heard: bytes, sent: bytes = b"") -> None:
        self.heard, self.sent = heard, sent


GOOD = b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 fuzzed\r\n"


@pytest.mark.parametrize("heard", [
    GOOD + b"Proxy-Authorization: Basic x\r\n\r\n", GOOD + b"TE: x\r\n\r\n",
    GOOD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", b"GET / HTTP/1.1\n\n",
    GOOD + b"\r\nX\r\n\r\n", GOOD + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    GOOD + b"Connection: close\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_the_referee_at_the_origin_sees_a_foul(heard: bytes) -> None:
    check_origin(Heard(GOOD + b"Content-Length: 5\r\n\r\nhello" + GOOD + b"\r\n"))
    with pytest.raises(AssertionError):
        check_origin(Heard(heard))


@pytest.mark.parametrize("heard", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 3, b"HTTP/1.1 200 OK\n\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"])
def test_the_referee_at_the_client_sees_a_foul(heard: bytes) -> None:
    asked = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"
    check_client(Heard(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", asked))
    with pytest.raises(AssertionError):
        check_client(Heard(heard, asked))
