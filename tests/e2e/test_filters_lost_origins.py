"""An origin that does not wait so long as filters wait for a request's body.

Its connection was made before the body had come, and many origins end one that sends
nothing: nginx and Node after 60 s, Apache after 20. The request got a 502 then, though
nothing of it had been sent.
"""

import hashlib

import pytest

from tests.support.client import build_request
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import ALL, OK, config, enter, over_tls, send
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

MODULE = """
class Whole:
    async def on_request_body(self, flow, body):
        return body[::-1]

class Move:
    async def on_request_body(self, flow, body):
        flow.request.path = body.decode()

class Answer:
    async def on_request_body(self, flow, body):
        flow.respond(201, b"here")
"""
#: What a server sends when it has waited long enough, or not
TIMEOUTS = {"end": b"", "408": b"HTTP/1.1 408 Too Late\r\nConnection: close\r\n\r\n"}
BODY = bytes(range(256)) * 1200


@pytest.fixture
def begin(start_policy):
    def run(name, rules=ALL):
        return start_policy(
            f'[filters.f]\ncode = "late:{name}"\nbudget = "5s"\n'
            f'{rules}filters = ["f"]\n', config(), modules={"late": MODULE})
    return run


def impatient(parting, left, then=lambda conn: conn.send(OK)):
    """Does not wait for its first request. `left` gets an item when the proxy has left
    that connection, too."""
    def script(conn):
        if not left:
            conn.send(parting)
            conn.half_close()
            assert conn.at_eof(), "nothing of the request was sent"
            left.append(True)
            return
        conn.read_request()
        then(conn)
    return script


def begin_post(client, origin, n, *fields):
    client.send(build_request("POST", origin.url("/a"), f"Content-Length: {n}",
                              *fields))


@pytest.mark.parametrize("parting", TIMEOUTS)
@pytest.mark.parametrize("body", [b"abc", BODY], ids=["short", "long"])
def test_the_body_goes_to_a_new_connection(begin, make_origin, dial, parting, body):
    left: list[bool] = []
    proxy, origin = begin("Whole"), make_origin(impatient(TIMEOUTS[parting], left))
    client = dial(proxy)
    begin_post(client, origin, len(body))
    wait_until(lambda: left, "the proxy leaves, too")
    client.send(body)
    assert client.read_response("POST").body == b"ok"
    assert [request.body for request in origin.requests] == [body[::-1]]
    begin_post(client, origin, 2)
    client.send(b"12")
    assert client.read_response("POST").body == b"ok", "its connection is in step"
    assert {line["reason"] for line in proxy.wait_log(2)} == {"ok"}


def test_the_proxys_100_comes_first(begin, make_origin, dial):
    left: list[bool] = []
    proxy, origin = begin("Whole"), make_origin(impatient(b"", left))
    client = dial(proxy)
    begin_post(client, origin, 3, "Expect: 100-continue")
    wait_until(lambda: left, "the proxy leaves, too")
    assert client.read_head().status == 100
    client.send(b"abc")
    assert client.read_response("POST").body == b"ok"


@pytest.mark.parametrize("path, status", [("/new", 200), ("/admin/x", 403)])
def test_the_rules_judge_what_filters_have_made(
        begin, make_origin, dial, path, status):
    """With the address, as they had it of the first connection."""
    left: list[bool] = []
    proxy = begin("Move", """
        [[rules]]
        action = "deny"
        addresses = ["10.0.0.0/8"]
        [[rules]]
        action = "deny"
        paths = ["/admin/**"]
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        """)
    origin = make_origin(impatient(b"", left))
    client = dial(proxy)
    begin_post(client, origin, len(path))
    wait_until(lambda: left, "the proxy leaves, too")
    client.send(path.encode())
    assert client.read_response("POST").status == status
    assert [request.target for request in origin.requests] == [path] * (status == 200)


def test_a_filter_answers_all_the_same(begin, make_origin, dial):
    left: list[bool] = []
    proxy, origin = begin("Answer"), make_origin(impatient(b"", left))
    client = dial(proxy)
    begin_post(client, origin, 3)
    wait_until(lambda: left, "the proxy leaves, too")
    client.send(b"abc")
    assert client.read_response("POST").body == b"here"


def test_an_origin_that_is_gone_for_good_is_the_reason(begin, make_origin, dial):
    left: list[bool] = []
    proxy, origin = begin("Whole"), make_origin(impatient(b"", left))
    client = dial(proxy)
    begin_post(client, origin, 3)
    wait_until(lambda: left, "the proxy leaves, too")
    origin.close()
    client.send(b"abc")
    assert client.read_response("POST").status == 502
    assert proxy.wait_reason("connection_refused")


def test_the_pace_of_limits_goes_on(begin, make_origin, dial):
    """The lost origin had its timer."""
    left: list[bool] = []
    proxy = begin("Whole", f'[limits.slow]\nbytes_per_second = 200_000\n{ALL}'
                           'limits = "slow"\n')
    origin = make_origin(impatient(b"", left))
    client = dial(proxy)
    begin_post(client, origin, len(BODY))
    wait_until(lambda: left, "the proxy leaves, too")
    client.send(BODY)
    assert client.read_response("POST").body == b"ok"


def test_a_client_that_leaves_meanwhile_is_the_end(begin, make_origin, dial):
    left: list[bool] = []
    proxy, origin = begin("Whole"), make_origin(impatient(b"", left))
    client = dial(proxy)
    begin_post(client, origin, 3)
    wait_until(lambda: left, "the proxy leaves, too")
    client.close()
    assert proxy.wait_reason("client_closed")


def test_inside_an_interception(begin, make_origin, dial):
    left: list[bool] = []
    proxy, origin = begin("Whole"), make_origin(over_tls(impatient(b"", left)))
    client = enter(proxy, dial(proxy), origin.port)
    send(client, "POST", "/", "Content-Length: 3")
    wait_until(lambda: left, "the proxy leaves, too")
    client.send(b"abc")
    assert client.read_response("POST").body == b"ok"
    assert [request.body for request in origin.requests] == [b"cba"]


def test_by_http2(begin, make_origin, dial):
    """GOAWAY comes while no stream is open."""
    left: list[bool] = []

    def script(conn):
        speaker = Speaker(conn.sock)
        speaker.flush()
        if not left:
            speaker.h2.close_connection(last_stream_id=0)
            speaker.flush()
            while conn.sock.recv(65536):
                pass                        # no frame but those of its start
            left.append(True)
            return
        while speaker.read():
            for stream, question in list(speaker.questions.items()):
                if stream and question.ended:
                    speaker.answer(stream, [(":status", "200")], hashlib.sha256(
                        question.body).hexdigest().encode())
                    speaker.flush()

    proxy, origin = begin("Whole"), make_origin(over_tls(script, alpn=("h2",)))
    client = enter(proxy, dial(proxy), origin.port)
    send(client, "POST", "/", f"Content-Length: {len(BODY)}")
    wait_until(lambda: left, "the proxy leaves, too")
    client.send(BODY)
    assert client.read_response("POST").body == (
        hashlib.sha256(BODY[::-1]).hexdigest().encode())
