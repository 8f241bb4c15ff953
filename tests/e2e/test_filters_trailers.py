"""Trailers of a body that goes through filters: they go on behind it, and are in a
capture and a recording, too."""

import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.certificates import authority
from tests.support.client import build_request
from tests.support.filters import FILTERS, RULE
from tests.support.filters import start as start
from tests.support.inside import ALL, config
from tests.support.origin import answer
from tests.support.recordings import folder as folder
from tests.support.recordings import recorded
from tests.support.sockets import unread
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

HEAD = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Digest\r\n"
        b"Content-Type: text/plain\r\n\r\n")
CHUNKED = HEAD + (b"4\r\nbody\r\n3\r\ny p\r\n0\r\nX-Sum: 7\r\nDigest: sha-256=abc\r\n"
                  b"Via: 1.1 x\r\n\r\n")
SUM, DIGEST = ("X-Sum", "7"), ("Digest", "sha-256=abc")


@pytest.mark.parametrize(("name", "body", "trailers"), [
    ("Look", b"bodyy p", [SUM, DIGEST]), ("Upper", b"BODYY P", [SUM]),
    ("Pieces", b"BODYY P", [SUM])])
def test_trailers_go_on_without_what_describes_other_octets(
        start, make_origin, dial, name, body, trailers):
    """Via is no field of a trailer, with filters or without."""
    proxy, origin = start(name), make_origin(answer(CHUNKED))
    client = dial(proxy)
    for _ in range(2):
        reply = client.ask("POST", origin.url(), "Transfer-Encoding: chunked",
                           "Trailer: X-Up", body=b"2\r\nab\r\n0\r\nX-Up: 9\r\n\r\n")
        assert (reply.body, reply.trailers) == (body, trailers)
        assert reply.get("Trailer") == "X-Sum, Digest"
    for request in origin.requests:
        assert request.body == (b"ab" if name == "Look" else b"AB")
        assert request.trailers == [("X-Up", "9")]


@pytest.mark.parametrize("name", ["Look", "Pieces"])
def test_trailers_in_any_pieces_are_whole(start, make_origin, dial, name):
    """The proxy reads each octet by itself: no octet of a trailer is content."""
    def drip(conn):
        conn.read_request()
        begun = CHUNKED.index(b"0\r\nX-Sum")
        conn.send(CHUNKED[:begun])
        port = conn.sock.getsockname()[1]
        for at in range(begun, len(CHUNKED)):
            conn.send(CHUNKED[at:at + 1])
            wait_until(lambda: not unread(port), "a read")
    reply = dial(start(name)).get(make_origin(drip).url())
    body = b"BODYY P" if name == "Pieces" else b"bodyy p"
    assert (reply.body, reply.trailers[0]) == (body, SUM)


@pytest.mark.parametrize("name", ["Look", "Upper", "Pieces"])
def test_a_client_of_http_1_0_gets_no_trailers(start, make_origin, dial, name):
    client = dial(start(name))
    client.send(build_request("GET", make_origin(answer(CHUNKED)).url()).replace(
        b"HTTP/1.1", b"HTTP/1.0"))
    reply = client.read_response("GET")
    assert reply.body.lower() == b"bodyy p" and reply.get("Trailer") is None


def test_trailers_that_connection_names_stay_here(start, make_origin, dial):
    own = CHUNKED.replace(b"Trailer: ", b"Connection: X-Sum\r\nTrailer: ")
    reply = dial(start("Look")).get(make_origin(answer(own)).url())
    assert (reply.body, reply.trailers) == (b"bodyy p", [])


@pytest.mark.parametrize("name", ["Look", "Pieces"])
def test_padded_chunks_are_the_last_message_of_their_connection(
        start, make_origin, dial, name):
    """R18, as without filters: another reader may take them for other chunks."""
    padded, connections = CHUNKED.replace(b"4\r\n", b"4 \r\n"), []
    client = dial(start(name))
    for text in (CHUNKED, padded):
        origin = make_origin(answer(text))
        for _ in range(2):
            assert client.get(origin.url()).body.lower() == b"bodyy p"
        connections.append(len(origin.connections))
    assert connections == [1, 2]


@pytest.mark.parametrize("name", ["Look", "Pieces"])
def test_a_recording_has_them_and_a_replay_too(
        start_policy, folder, make_origin, dial, name):
    """Those of the origin, and its client those that the filter leaves."""
    proxy = start_policy(
        f'[filters.f]\ncode = "sieve:{name}"\nshown = true\n{RULE}'
        'recording = "record"\nfilters = ["f"]\n',
        f'recording_directory = "{folder}"\n', modules={"sieve": FILTERS})
    origin = make_origin(answer(CHUNKED))
    client = dial(proxy)
    live = client.get(origin.url("/a"))
    assert live.trailers == ([SUM, DIGEST] if name == "Look" else [SUM])
    wait_until(lambda: recorded(folder) == 1, proxy.stderr)
    session = Sessions(folder).open("default")
    (kept,) = session.recordings()
    session.close()
    assert b"".join(chunk.data for chunk in kept.response.chunks) == b"bodyy p"
    assert kept.response.trailers == (SUM, DIGEST)
    write_state(folder, State("replay"))
    wait_until(lambda: "mode replay, session default" in proxy.stderr(), "the mode")
    again = client.get(origin.url("/a"))
    assert (again.body, again.trailers) == (live.body, live.trailers)
    assert len(origin.requests) == 1


def test_a_capture_has_those_that_went_on(start_policy, make_origin, dial, database):
    proxy = start_policy(
        f'[filters.f]\ncode = "sieve:Pieces"\n{RULE}'
        'capture = "full"\nfilters = ["f"]\n',
        f'capture_file = "{database}"\n', modules={"sieve": FILTERS})
    dial(proxy).get(make_origin(answer(CHUNKED)).url())
    (row,) = wait_rows(database, 1)
    assert (row["response_trailers"], row["response_body"]) == (
        "X-Sum: 7\r\n", "BODYY P")


def test_an_added_key_is_masked_in_trailers(start_policy, make_origin, dial):
    """R82, as in the body before them."""
    def repeat(conn):
        request = conn.read_request()
        conn.send(HEAD + b"3\r\nabc\r\n0\r\nX-Sum: %b\r\n\r\n"
                  % request.get("X-Key").encode())
    proxy = start_policy(f'[filters.f]\ncode = "keys:Key"\n{RULE}filters = ["f"]\n',
                         modules={"keys": KEY})
    reply = dial(proxy).get(make_origin(repeat).url())
    assert reply.body == b"abc" and reply.trailers == [("X-Sum", "*" * 20)]


def test_a_call_of_grpc_has_its_status_behind_a_filter_of_bodies(start_policy):
    grpc_echo = pytest.importorskip("tests.support.grpc_echo")
    pytest.importorskip("cutthrough.http2.transport")
    from concurrent import futures

    from tests.support.inside import certificate
    grpc = grpc_echo.grpc
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(grpc_echo.Service(),))
    chain, key = certificate().pem
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    server.start()
    proxy = start_policy(
        f'[filters.f]\ncode = "calls:Through"\n{ALL}filters = ["f"]\n', config(),
        modules={"calls": THROUGH}, executed=True)
    trust = grpc.ssl_channel_credentials(authority().own.certificate.read_bytes())
    with grpc.secure_channel(f"a.example:{port}", trust,
                             options=[("grpc.http_proxy", proxy.url)]) as channel:
        got, call = channel.unary_unary("/t.T/Echo").with_call(b"x", timeout=60)
        assert got == b"x" and call.code() is grpc.StatusCode.OK
        assert dict(call.trailing_metadata())["x-t-bin"] == b"\0\xff"
        talk = channel.stream_stream("/t.T/Talk")(iter([b"one", b"two"]), timeout=60)
        assert list(talk) == [b"eno", b"owt"]
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Fail")(b"", timeout=60)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    server.stop(0).wait(60)


THROUGH = """
class Through:
    async def on_request_body(self, flow, pieces):
        async for piece in pieces:
            yield piece

    on_response_body = on_request_body
"""

KEY = """
class Key:
    async def on_request_head(self, flow):
        flow.request.headers["X-Key"] = "sk-secret-0123456789"
"""
