"""Expectations: RFC 9110 section 10.1.1, on both sides of the proxy."""

import pytest

from tests.support.client import build_request
from tests.support.origin import OK
from tests.support.scripted_peers import answer, okay, stall


def test_expect_100_continue_is_answered_by_the_origin(proxy, make_origin, dial):
    def script(conn):
        head = yield conn.read_head
        assert head.get("Expect") == "100-continue"
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert (yield conn.read_exact, 4) == b"body"
        conn.send(OK)
        yield conn.stall

    client = dial()
    client.send(
        build_request(
            "POST",
            make_origin(script).url(),
            "Content-Length: 4",
            "Expect: 100-continue",
        )
    )
    assert client.read_response(interim=True).status == 100
    client.send(b"body")
    assert client.read_response().status == 200

EXPECT = "Expect: 100-continue"



def test_expect_that_is_refused_reads_no_body(proxy, make_origin, dial):
    """The final status comes without a 100: the body is never sent (R6)."""

    def script(conn):
        yield conn.read_head
        conn.send(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        yield conn.stall

    client = dial()
    client.send(
        build_request(
            "POST",
            make_origin(script).url(),
            "Content-Length: 4",
            "Expect: 100-continue",
        )
    )
    reply = client.read_response(interim=True)
    assert (reply.status, reply.get("Connection")) == (417, None)
    # R6: the next bytes may be the body or a request; the proxy cannot know which.
    client.send(build_request("GET", make_origin().url("/hidden")))
    assert client.at_eof()


def test_any_other_answer_instead_of_100_says_that_it_is_the_last(
    proxy, make_origin, dial
):
    raw = b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"

    def script(conn):
        yield conn.read_head
        conn.send(raw)
        yield conn.stall

    client = dial()
    client.send(build_request(
        "POST", make_origin(script).url(), "Content-Length: 4", EXPECT))
    reply = client.read_response(interim=True)
    assert (reply.status, reply.get("Connection")) == (413, "close")


def test_expect_without_a_100_the_body_goes_all_the_same(proxy, make_origin, dial):
    """A client need not wait, and an origin that has the body need not say 100. It is
    unknown if it took the body, or reads it as its next request: that connection was
    used again, and the answer to the body's content was another client's (R18). An
    upload has a connection of its own anyway; it is not kept for other requests then.
    """
    origin = make_origin()
    client = dial()
    values = ("100-continue", "100-CONTINUE", "x 100-continue")
    for value in values:
        reply = client.ask(
            "POST", origin.url(), f"Expect: {value}", "Content-Length: 4", body=b"body")
        assert (reply.status, reply.body) == (200, b"ok")
        assert client.get(origin.url()).status == 200
    methods = [[one.method for one in conn.requests] for conn in origin.connections]
    assert methods == [["POST"], ["GET"] * len(values), ["POST"], ["POST"]]


def test_a_100_shows_that_the_body_was_taken(proxy, make_origin, dial):
    def script(conn):
        conn.note((yield conn.read_head))
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert (yield conn.read_exact, 4) == b"body"
        conn.send(OK)
        yield from okay(conn)

    origin = make_origin(script)
    client = dial()
    fields = ("Content-Length: 4", EXPECT)
    assert client.ask("POST", origin.url(), *fields, body=b"body").status == 200
    assert client.get(origin.url()).status == 200
    assert [one.method for one in origin.connections[0].requests] == ["POST", "GET"]


def test_another_expectation_is_for_the_origin_to_judge(proxy, make_origin, dial):
    origin = make_origin(answer(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"))
    client = dial()
    assert client.get(origin.url(), "Expect: the-unexpected").status == 417
    assert origin.requests[0].get("Expect") == "the-unexpected"
    assert proxy.wait_reason("ok")["status"] == 417


def test_an_expectation_of_http_1_0_goes_nowhere(proxy, make_origin, dial):
    """That client waits for nothing: its body follows, and no 100 ever comes to it."""

    def script(conn):
        request = yield conn.read_request
        assert request.get("Expect") is None
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
        yield conn.stall

    origin = make_origin(script)
    client = dial()
    client.send(build_request("POST", origin.url(), EXPECT, "Content-Length: 4",
                              body=b"body", version="HTTP/1.0"))
    assert client.read_response(interim=True).status == 200
    assert origin.requests[0].body == b"body"


@pytest.mark.parametrize(("auth", "url", "status"), [
    (None, "http://127.0.0.1:1/", 407),
    ("", "http://u@127.0.0.1/", 400),
    ("", "http://127.0.0.1:1/", 502)])
def test_our_own_refusal_comes_instead_of_a_100(proxy, dial, auth, url, status):
    """At once: the head alone decides. A body that may follow is no request (R6)."""
    client = dial()
    more = {"auth": None} if auth is None else {}
    client.send(build_request(
        "POST", url, EXPECT, "Content-Length: 4", host="a", **more))
    reply = client.read_response(interim=True)
    assert (reply.status, reply.get("Connection")) == (status, "close")


def test_a_100_that_never_comes_is_the_origins_timeout(start_proxy, make_origin, dial):
    """It was logged as the client's, though the client had to wait."""
    proxy = start_proxy("--response-timeout", "200ms")
    client = dial(proxy)
    client.send(build_request(
        "POST", make_origin(stall).url(), EXPECT, "Content-Length: 4"))
    reply = client.read_response(interim=True)
    assert (reply.status, reply.error) == (504, "http_response_timeout")
    assert client.at_eof()
    proxy.wait_reason("response_timeout")


def test_a_body_that_stops_is_the_clients_timeout_though_no_100_came(
    start_proxy, make_origin, dial
):
    proxy = start_proxy("--body-timeout", "200ms")
    client = dial(proxy)
    client.send(build_request(
        "POST", make_origin(stall).url(), EXPECT, "Content-Length: 4", body=b"bo"))
    assert client.read_response(interim=True).status == 408
    proxy.wait_reason("body_timeout")


def test_a_client_has_its_whole_time_from_the_100_on(
    start_proxy, network, make_origin, dial
):
    """The 100 came late, and the body's deadline had begun with the head."""
    proxy = start_proxy("--body-timeout", "1s")

    client, origin = dial(proxy), make_origin(None)
    client.send(build_request("POST", origin.url(), EXPECT, "Content-Length: 4"))
    network.pass_time(0.8)
    origin.connections[0].send(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert client.read_response(interim=True).status == 100
    assert client.read_response().status == 408
    assert proxy.wait_reason("body_timeout")["total_ms"] >= 1800
