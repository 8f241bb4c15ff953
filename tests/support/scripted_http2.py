"""Intercepted connections to scripted origins of HTTP/2."""

import contextlib
from collections.abc import Callable

import pytest
from h2.exceptions import ProtocolError

from tests.support.certificates import client_context
from tests.support.http2 import Peer
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import ALL, config, enter, over_tls
from tests.support.origin import Connection, Script

ON = 'origin_http2 = "auto"\n'
Answer = Callable[[Speaker, int], None]


@pytest.fixture
def start(keep_policy):
    return lambda more=ON, policy=ALL: keep_policy(policy, config(more))


@pytest.fixture
def reach(dial):
    """A client of HTTP/2 behind CONNECT and handshake."""
    def connect(proxy, port: int) -> Peer:
        context = client_context()
        context.set_alpn_protocols(("h2", "http/1.1"))
        peer = Peer(enter(proxy, dial(proxy), port, context=context).sock)
        peer.flush()
        return peer
    return connect


def speak(answer: Answer, alpn: tuple[str, ...] = ("h2",), **more) -> Script:
    """An origin's script: `answer` is called once for each request that has ended."""
    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock, **more)
        speaker.flush()
        answered: set[int] = set()
        with contextlib.suppress(ProtocolError):        # a request behind our GOAWAY
            while speaker.read():
                for stream, question in list(speaker.questions.items()):
                    if stream and question.ended and stream not in answered:
                        answered.add(stream)
                        answer(speaker, stream)
                        speaker.flush()
    return over_tls(script, alpn=alpn)


def say(speaker: Speaker, stream: int) -> None:
    """The request's path."""
    fields = dict(speaker.questions[stream].fields)
    speaker.answer(stream, [(":status", "200")], fields[":path"].encode())
