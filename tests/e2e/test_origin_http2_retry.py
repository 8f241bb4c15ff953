"""Requests with a body that an origin of HTTP/2 has not read (RFC 9113 section 8.7):
they are sent again, as far as they are still held (R19)."""

import contextlib
import hashlib
from collections.abc import Callable

import pytest
from h2.exceptions import ProtocolError

from tests.support.client import Client
from tests.support.http2 import REFUSED_STREAM
from tests.support.http2_origin import Origin as Speaker
from tests.support.http2_origin import Question
from tests.support.inside import ALL, ask, config, enter, over_tls, send
from tests.support.origin import Connection, Script
from tests.support.scripted_http2 import reach as reach
from tests.support.scripted_http2 import start as start

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

SMALL = bytes(range(256)) * 40
LARGE = SMALL * 20
Step = Callable[[Speaker, int], None]


def refuse(speaker: Speaker, stream: int) -> None:
    speaker.h2.reset_stream(stream, REFUSED_STREAM)


def leave(speaker: Speaker, stream: int) -> None:
    speaker.h2.close_connection(last_stream_id=0)


def reset(speaker: Speaker, stream: int) -> None:
    speaker.h2.reset_stream(stream, 2)


def unwilling(step: Step, when: Callable[[Question], bool], most: int = 1,
              credit: bool = True) -> Script:
    """An origin that does this to its first request, or to more, and answers all others
    with the sums of their bodies. Without `credit` it opens no window before."""
    refused: list[int] = []

    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock, credit=credit or len(refused) == most)
        speaker.flush()
        done: set[int] = set()
        with contextlib.suppress(ProtocolError):
            while speaker.read():
                for stream, question in list(speaker.questions.items()):
                    if not stream or stream in done:
                        continue
                    if len(refused) < most and when(question):
                        refused.append(stream)
                        done.add(stream)
                        step(speaker, stream)
                    elif len(refused) == most and question.ended:
                        done.add(stream)
                        speaker.answer(stream, [(":status", "200")], hashlib.sha256(
                            question.body).hexdigest().encode())
                    speaker.flush()
    return over_tls(script, alpn=("h2",))


def is_whole(question: Question) -> bool:
    return question.ended


def has_begun(question: Question) -> bool:
    return bool(question.fields)


def has_filled_a_window(question: Question) -> bool:
    return len(question.body) == 65535


def sum_of(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def chunks(body: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(body[at:at + 999]), body[at:at + 999])
                    for at in range(0, len(body), 999)) + b"0\r\n\r\n"


def goes_on(client: Client) -> bool:
    got = ask(client, "POST", "/", "Content-Length: 3", body=b"abc")
    return got.body == sum_of(b"abc")


@pytest.mark.parametrize("step", [refuse, leave])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_that_was_sent_is_sent_again(start, make_origin, dial, step, framing
                                            ) -> None:
    proxy, origin = start(), make_origin(unwilling(step, is_whole))
    client = enter(proxy, dial(proxy), origin.port)
    if framing == "length":
        got = ask(client, "POST", "/", f"Content-Length: {len(SMALL)}", body=SMALL)
    else:
        got = ask(client, "POST", "/", "Transfer-Encoding: chunked", body=chunks(SMALL))
    assert (got.status, got.body) == (200, sum_of(SMALL))
    assert len(origin.connections) == 2
    assert goes_on(client), "its connection is in step"
    records = proxy.wait_log(3, reason="ok")
    assert records[1]["bytes_up"] < 2 * len(SMALL), "counted once"


@pytest.mark.parametrize("step", [refuse, leave])
@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["short", "long"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_the_rest_of_a_body_follows(start, make_origin, dial, step, body, framing
                                    ) -> None:
    """The origin says so before the client has sent it."""
    proxy, origin = start(), make_origin(unwilling(step, has_begun))
    client = enter(proxy, dial(proxy), origin.port)
    field, written = f"Content-Length: {len(body)}", body
    if framing == "chunks":
        field, written = "Transfer-Encoding: chunked", chunks(body)
    send(client, "POST", "/", field, body=written[:3000])
    origin.wait_connections(2)
    client.send(written[3000:])
    got = client.read_response()
    assert (got.status, got.body) == (200, sum_of(body))
    assert goes_on(client)


@pytest.mark.parametrize("step", [refuse, leave])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_that_has_filled_a_window_is_sent_again(
        start, make_origin, dial, step, framing) -> None:
    """Uploads got a 502 at the end of nginx's connections, each 1000 requests."""
    proxy = start()
    origin = make_origin(unwilling(step, has_filled_a_window, credit=False))
    client = enter(proxy, dial(proxy), origin.port)
    if framing == "length":
        got = ask(client, "POST", "/", f"Content-Length: {len(LARGE)}", body=LARGE)
    else:
        got = ask(client, "POST", "/", "Transfer-Encoding: chunked", body=chunks(LARGE))
    assert (got.status, got.body) == (200, sum_of(LARGE))
    assert len(origin.connections) == 2
    assert goes_on(client)
    assert proxy.wait_log(3, reason="ok")[1]["bytes_up"] < 1.1 * len(LARGE)


def test_streams_of_a_client_are_sent_again(start, make_origin, reach) -> None:
    """All that a GOAWAY has left unread."""
    proxy, origin = start(), make_origin(unwilling(leave, is_whole))
    peer = reach(proxy, origin.port)
    streams = []
    for n in range(20):
        stream = peer.get(f"https://a.example/{n}", method="POST", ends=False)
        peer.send(stream, b"%d" % n * 100, ends=True)
        streams.append(stream)
    peer.wait(*streams)
    assert [bytes(peer.answers[one].body) for one in streams] == [
        sum_of(b"%d" % n * 100) for n in range(20)]


@pytest.mark.parametrize("step, body", [(reset, SMALL), (refuse, LARGE)],
                         ids=["it may have been read", "it is held no more"])
def test_others_end_with_a_reason(start, make_origin, dial, step, body) -> None:
    proxy, origin = start(), make_origin(unwilling(step, is_whole))
    client = enter(proxy, dial(proxy), origin.port)
    got = ask(client, "POST", "/", f"Content-Length: {len(body)}", body=body)
    assert got.status == 502
    assert proxy.wait_reason("origin_reset")
    assert len(origin.connections) == 1


def test_an_origin_that_refuses_always_is_asked_four_times(
        start, make_origin, dial) -> None:
    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock)
        speaker.flush()
        while not speaker.questions[1].ended:
            assert speaker.read()
        refuse(speaker, 1)
        speaker.flush()
        while speaker.read():
            pass

    proxy, origin = start(), make_origin(over_tls(script, alpn=("h2",)))
    client = enter(proxy, dial(proxy), origin.port)
    got = ask(client, "POST", "/", f"Content-Length: {len(SMALL)}", body=SMALL)
    assert got.status == 502
    assert len(origin.connections) == 4


@pytest.mark.parametrize("body", [b"", SMALL])
def test_a_request_is_sent_again_three_times(start, make_origin, dial, body) -> None:
    """nginx refuses what is beyond its bound of a connection, the next one too."""
    proxy, origin = start(), make_origin(unwilling(leave, is_whole, 3))
    client = enter(proxy, dial(proxy), origin.port)
    got = ask(client, "POST", "/", f"Content-Length: {len(body)}", body=body)
    assert got.body == sum_of(body)
    assert len(origin.connections) == 4
    assert goes_on(client)


FILTERS = """
class Heads:
    async def on_request_head(self, flow):
        flow.request.headers["X-Added"] = "1"

class Whole:
    async def on_request_body(self, flow, body):
        return body[::-1]

class Pieces:
    async def on_request_body(self, flow, pieces):
        async for piece in pieces:
            yield piece
"""


@pytest.mark.parametrize("step", [refuse, leave])
@pytest.mark.parametrize("name", ["Heads", "Whole", "Pieces"])
def test_what_filters_have_let_go_is_sent_again(
        start_policy, make_origin, dial, step, name) -> None:
    """Of the POSTs behind filters some got a 502 at the end of nginx's connections."""
    table = f'[filters.f]\ncode = "again:{name}"\n'
    proxy = start_policy(f'{table}{ALL}filters = ["f"]\n', config(),
                         modules={"again": FILTERS})
    origin = make_origin(unwilling(step, is_whole, 2))
    client = enter(proxy, dial(proxy), origin.port)
    got = ask(client, "POST", "/", f"Content-Length: {len(SMALL)}", body=SMALL)
    assert got.body == sum_of(SMALL[::-1] if name == "Whole" else SMALL)
    assert len(origin.connections) == 3
    got = ask(client, "POST", "/", "Content-Length: 3", body=b"aba")
    assert got.body == sum_of(b"aba")
