"""An exchange out of the ring: made a recording, or left out with the reason."""

import pytest

from cutthrough.exchange.messages import Piece
from cutthrough.recording.record.conversion import NotRecordable, make_recording
from tests.recording.exchanges import ended


def test_pieces_have_the_times_at_which_they_came():
    one = make_recording(ended(down=(b"a", b"b")))
    assert [(each.at_us, each.data) for each in one.response.chunks] == [
        (50, b"a"), (1050, b"b")]


@pytest.mark.parametrize("status", ["206 Partial Content", "304 Not Modified"])
def test_an_answer_to_a_condition_is_not_recorded(status):
    with pytest.raises(NotRecordable, match="answers a client that has a part"):
        make_recording(ended(f"HTTP/1.1 {status}\r\n\r\n"))


EVENTS = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
LEFT = {"reason": "client_reset", "head": EVENTS}


@pytest.mark.parametrize(("down", "body"), [
    ((b"data: 0\n", b"\ndata", b": 1\n\nda"), b"data: 0\n\ndata: 1\n\n"),
    ((b"data: 0\r\n\r\n:",), b"data: 0\r\n\r\n"),
    ((b"data: 0\n",), b""), ((), b"")])
def test_of_a_stream_that_is_left_the_whole_events_are_kept(down, body):
    """A secret that is cut would not be found in the rest of its event."""
    answer = make_recording(ended(down=down, **LEFT)).response
    assert answer.is_cut and answer.body == body
    assert not any(one.data == b"" for one in answer.chunks)


def test_a_stream_whose_last_chunk_has_come_is_whole():
    pieces = (b"9\r\ndata: 0\n\n\r\n", b"0\r\n\r\n")
    for count, is_cut in ((2, False), (1, True)):
        answer = make_recording(ended(
            down=pieces[:count], down_chunked=True, **LEFT)).response
        assert (answer.is_cut, answer.body) == (is_cut, b"data: 0\n\n")


@pytest.mark.parametrize("field, body", [
    ("Content-Length: 2", b"{}"),
    ("Transfer-Encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n")])
def test_a_stream_that_is_left_may_answer_a_body(field, body):
    """As those of chats do. The blank before the length made it differ from each body.
    """
    head = f"POST /x HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"
    one = make_recording(ended(
        down=(b"data: 0\n\n",), up_head=head, up=body, up_bytes=len(body),
        up_chunked="chunked" in field, **LEFT))
    assert one.response.is_cut and one.request.body == b"{}"


@pytest.mark.parametrize("more", [
    {"up_head": "POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "up": b"half",
     "up_bytes": 4},
    {"head": EVENTS.replace("\r\n\r\n", "\r\nContent-Length: 90\r\n\r\n")},
    {"head": EVENTS.replace("\r\n\r\n", "\r\nContent-Encoding: br\r\n\r\n")},
    {"head": "HTTP/1.1 200 OK\r\n\r\n"}, {"reason": "recording_too_large"}])
def test_what_else_has_not_ended_is_not_recorded(more):
    with pytest.raises(NotRecordable, match="it ended as "):
        make_recording(ended(down=(b"data: 0\n\n",), **LEFT | more))
    with pytest.raises(NotRecordable, match="it ended as "):
        make_recording(ended(down=(b"data: 0\n\n",), **LEFT), None, "none")


def websocket(*pieces, **more):
    size = [sum(len(one.data) for one in pieces if one.is_up == up) for up in (1, 0)]
    return ended("HTTP/1.1 101 Switching Protocols\r\n\r\n", (), reason="client_reset",
                 pieces=list(pieces), up_bytes=size[0], down_bytes=size[1], **more)


def test_a_websocket_is_its_messages_however_it_ended():
    """Their times count from the end of the handshake, the first one's too."""
    one = make_recording(websocket(
        Piece(False, 1500, b"\x81\x02hi\x89\x00"), Piece(False, 1900, b"\x82\x01!")))
    assert [(each.at_us, each.kind, each.data) for each in one.response.messages] == [
        (500, "text", b"hi"), (900, "binary", b"!")]


@pytest.mark.parametrize("data", [b"\x81\x05hi", b"\x83\x00"])
def test_a_websocket_whose_messages_cannot_be_read_is_not_recorded(data):
    with pytest.raises(NotRecordable, match="cannot be read"):
        make_recording(websocket(Piece(False, 500, data)))


CALL = "POST /s.T/M HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n\r\n"
UP = b"7\r\n\0\0\0\0\x02ab\r\n6\r\n\0\0\0\0\x01c\r\n0\r\n\r\n"


def call(up=UP, head=CALL, **more):
    """An answer of two pieces and trailers: behind the first message, behind the second
    one, and at the end."""
    down = (b"1\r\nx\r\n", b"1\r\ny\r\n", b"0\r\nGrpc-Status: 0\r\n\r\n")
    return make_recording(ended(
        down=down, down_chunked=True, up_head=head, up=up, up_chunked=True,
        up_bytes=len(up), **{"head_asked": 12, "asked": [12, 23, len(up)]} | more))


def places(one):
    answer = one.response
    return (answer.head_asked, *(each.asked for each in answer.chunks),
            answer.end_asked)


def test_a_call_keeps_where_its_answer_came_between_its_messages():
    one = call()
    assert one.request.body == b"\0\0\0\0\x02ab\0\0\0\0\x01c"
    assert places(one) == (7, 7, 13, -1)
    assert one.response.trailers == (("Grpc-Status", "0"),)


def test_an_answer_to_a_whole_request_has_no_places():
    assert places(call(asked=None, head_asked=0)) == (-1, -1, -1, -1)


def test_an_early_answer_has_places_whatever_its_request_is():
    """Those of other requests than calls were forgotten."""
    assert places(call(head=CALL.replace("/grpc", "/json"))) == places(call())


def test_a_call_may_be_answered_before_its_request_has_ended():
    """Of any other request the rest would be missing."""
    cut = UP[:UP.index(b"6\r\n")]
    for more in ({"asked": [len(cut)] * 3}, {"asked": None}):
        one = call(cut, **more)
        assert one.request.body == b"\0\0\0\0\x02ab" and places(one) == (7, 7, 7, 7)
    with pytest.raises(NotRecordable, match="before the end of the request"):
        call(cut, CALL.replace("/grpc", "/json"))


@pytest.mark.parametrize("field, up", [
    ("Content-Length: 7", b""), ("Content-Length: 7", b"ab"),
    ("Transfer-Encoding: chunked", b""),
    ("Transfer-Encoding: chunked", b"2\r\nab\r\n")])
def test_an_answer_before_the_end_of_its_request_is_no_recording(field, up):
    """A 413 to an upload with Expect was the answer to an empty body from then on."""
    head = f"PUT /x HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"
    early = ended("HTTP/1.1 413 Too Large\r\n\r\n", up_head=head, up=up,
                  up_bytes=len(up), up_chunked="chunked" in field)
    with pytest.raises(NotRecordable, match="before the end of the request"):
        make_recording(early)


RPC = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n\r\n"
ONE = b"\0\0\0\0\x02ab"
# A message and a part of the next one, each way; no last chunk
LEFT_CALL = {
    "head": RPC, "up_head": CALL, "up_chunked": True, "down_chunked": True,
    "up": b"7\r\n" + ONE + b"\r\n9\r\n" + ONE + b"\0\0", "up_bytes": 24,
    "down": (b"7\r\n" + ONE + b"\r\n", b"3\r\n\0\0\0\r\n"), "asked": [12, 12],
    "head_asked": 12}


@pytest.mark.parametrize(("reason", "by_client"), [
    ("client_reset", True), ("client_closed", True), ("origin_reset", False),
    ("response_truncated", False), ("idle_timeout", False)])
def test_of_a_call_that_is_left_the_whole_messages_are_kept(reason, by_client):
    """It was not recorded. The last request is behind the answers."""
    one = make_recording(ended(reason=reason, **LEFT_CALL))
    assert one.request.body == ONE * 2 and one.response.body == ONE
    assert one.response.is_cut and one.response.cut_by_client is by_client
    assert places(one) == (7, 7, 16)
    with pytest.raises(NotRecordable, match=f"it ended as {reason}"):
        make_recording(ended(reason=reason, **LEFT_CALL), None, "none")


def test_a_call_that_its_client_leaves_behind_the_trailers_is_whole():
    down = (b"7\r\n" + ONE + b"\r\n", b"0\r\nGrpc-Status: 0\r\n\r\n")
    answer = make_recording(ended(
        reason="client_reset", **LEFT_CALL | {"down": down})).response
    assert not answer.is_cut and not answer.cut_by_client
    assert answer.trailers == (("Grpc-Status", "0"),)


SILENT = LEFT_CALL | {"head": "", "down": (), "asked": None, "head_asked": 0,
                      "down_chunked": False, "down_bytes": 2 ** 64 - 1}


@pytest.mark.parametrize(("more", "cuts"), [
    ({}, "streams"), ({}, "none"), ({"reason": "origin_reset"}, "any"),
    ({"is_unanswered": False}, "any"),
    ({"up_head": CALL.replace("/grpc", "/json")}, "any")])
def test_what_got_no_answer_is_recorded_of_calls_alone(more, cuts):
    given = {"reason": "client_reset", "is_unanswered": True} | SILENT
    with pytest.raises(NotRecordable, match="it ended as "):
        make_recording(ended(**given | more), None, cuts)
    one = make_recording(ended(**given), None, "any")
    assert one.request.body == ONE * 2
    assert one.response.status == 0 and one.response.cut_by_client
