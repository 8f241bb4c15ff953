"""Records of the ring become rows: parts are put together, within bounds."""

import json
import struct
import tracemalloc

import pytest

from cutthrough.exchange.columns import FINGERPRINTS
from cutthrough.tape import assembly
from cutthrough.tape.assembly import (
    COLUMNS,
    DOWN,
    END,
    FRAMES_DOWN,
    FRAMES_UP,
    HEADS,
    UP,
    Assembly,
)
from tests.capture.records import HEAD, NOT_COUNTED, REPLY, end, heads, rows
from tests.support.redaction import redactor


def test_parts_meet_their_end_by_worker_and_number():
    one, two, three = rows(
        (HEADS, 0, 7, heads(REPLY.replace(b"OK", b"one"))),
        (HEADS, 1, 7, heads(REPLY.replace(b"OK", b"two"))),
        (END, 1, 7, end()), (END, 0, 7, end()), (END, 0, 8, end()))
    assert [row["request"] for row in (one, two, three)] == ["1-7", "0-7", "0-8"]
    assert " two" in one["response_head"] and " one" in two["response_head"]
    assert three["response_head"] is None
    assert one["url"] == "http://a.test/a" and one["method"] == "POST"
    assert one["request_head_bytes"] == len(HEAD)
    assert "s3cret" not in one["request_head"]


def test_phases_that_did_not_begin_are_absent_and_the_first_byte_is_divided():
    (row,) = rows((END, 0, 1, end()))
    assert [row[f"{name}_us"] for name in (
        "head", "auth", "hook", "dns", "connect", "send", "wait", "receive",
        "total")] == [100, 10, None, None, 300, 20, 11_980, 500, 15_000]
    assert row["ended_us"] - row["begun_us"] == 15_000
    (row,) = rows((END, 0, 1, end(first_byte=0, receive=0, phases=(9,) + (0,) * 5)))
    assert row["send_us"] is row["wait_us"] is row["receive_us"] is None
    (row,) = rows((END, 0, 1, end(first_byte=10)))
    assert (row["send_us"], row["wait_us"]) == (10, 0), "it answered before"


def test_handshakes_and_holding_have_their_columns():
    (row,) = rows((END, 0, 1, end(tls_us=(7, 8), held=9, detail=b"why")))
    assert (row["origin_tls_us"], row["client_tls_us"], row["held_us"],
            row["detail"]) == (7, 8, 9, "why")
    (row,) = rows((END, 0, 1, end()))
    assert row["origin_tls_us"] is row["client_tls_us"] is row["held_us"] is None
    assert row["detail"] is None


@pytest.mark.parametrize(("reply", "http", "version", "head"), [
    (REPLY, (11, 0), "1.1", REPLY),
    (REPLY.replace(b"1.1", b"1.0"), (20, 0), "1.0", REPLY.replace(b"1.1", b"1.0")),
    (b"HTTP/1.1 200 \r\na: b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
     (10, 20), "2", b"HTTP/2 200\r\na: b\r\n\r\n"),
    (b"HTTP/1.1 200 \r\ncontent-length: 0\r\nConnection: close\r\n\r\n", (20, 20), "2",
     b"HTTP/2 200\r\ncontent-length: 0\r\n\r\n"),
    (b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
     (0, 20), "2", b"HTTP/2 200\r\n\r\n"),
])
def test_each_side_has_its_version_of_http_and_no_field_of_another(
        reply, http, version, head):
    (row,) = rows((HEADS, 0, 1, heads(reply)), (END, 0, 1, end(http=http)))
    assert row["client_http"] == {0: None, 10: "1.0", 11: "1.1", 20: "2"}[http[0]]
    assert row["origin_http"] == version
    assert row["response_head"] == head.decode()
    assert row["request_head"].startswith(
        f"POST /a HTTP/{'2' if version == '2' else '1.1'}\r\n")


def test_without_an_answer_the_version_of_the_origin_is_not_known():
    (row,) = rows((END, 0, 1, end()))
    assert row["origin_http"] is None


def test_trailers_are_kept_if_all_of_them_are_there():
    def ended(body):
        return rows((DOWN, 0, 1, body), (HEADS, 0, 1, heads()), (END, 0, 1, end(
            body_up=0, body_down=len(body), flags=assembly.DOWN_CHUNKED)))[0]

    whole = b"2\r\nhi\r\n0\r\nA: b\r\nCookie: s3cret\r\n\r\n"
    assert ended(whole)["response_trailers"] == "A: b\r\nCookie: [redacted]\r\n"
    assert ended(whole)["response_body"] == "hi"
    assert ended(whole[:-1])["response_trailers"] is None
    assert ended(b"2\r\nhi\r\n0\r\n\r\n")["response_trailers"] is None


@pytest.mark.parametrize(("outcome", "method", "body", "state"), [
    ("response_truncated", "GET", b"hi", "truncated"),
    ("client_closed", "GET", b"hi", "truncated"),
    ("response_truncated", "GET", b"", "truncated"),
    ("client_closed", "HEAD", b"", None), ("response_truncated", "GET", b"hi!", None),
    ("ok", "GET", b"hi", None)])
@pytest.mark.parametrize("json", [(), ("$..password",)])
def test_an_answer_that_ended_before_its_length_is_not_whole(
        outcome, method, body, state, json):
    """It had no state, as one that is whole. A filter may change a length, too."""
    last = end(body_down=len(body), outcome=outcome, method=method)
    (row,) = rows((HEADS, 0, 1, heads()), (DOWN, 0, 1, body), (END, 0, 1, last),
                  json=json)
    assert row["response_body_state"] == state
    assert row["response_body"] == body.decode()


def test_json_in_a_url_and_in_a_field_is_redacted():
    up = (b"GET /?x=%7B%22password%22%3A%22s3cret%22%7D HTTP/1.1\r\n"
          b'X-Event: {"password": "s3cret"}\r\n\r\n')
    (row,) = rows((HEADS, 0, 1, heads()), (END, 0, 1, end(head=up)),
                  json=("$..password",))
    assert row["url"] == "http://a.test/?x=%7B%22password%22%3A%22[redacted]%22%7D"
    assert "s3cret" not in row["request_head"]


def test_bodies_are_joined_and_their_chunks_too():
    (row,) = rows(
        (UP, 0, 1, b"3\r\non"), (HEADS, 0, 1, heads()), (UP, 0, 1, b"e\r\n0\r\n\r\n"),
        (DOWN, 0, 1, b"tw"), (DOWN, 0, 1, b"o"),
        (END, 0, 1, end(body_up=13, body_down=3, flags=assembly.UP_CHUNKED)))
    assert (row["request_body"], row["request_body_bytes"]) == ("one", 3)
    assert (row["response_body"], row["response_content_bytes"]) == ("two", 3)
    (row,) = rows((DOWN, 0, 1, b"tw"), (HEADS, 0, 1, heads()),
                  (END, 0, 1, end(body_up=0, body_down=9, flags=assembly.DOWN_CUT)))
    assert (row["response_body"], row["response_body_state"]) == ("tw", "incomplete")
    assert row["request_body_state"] is None and row["request_body"] == ""


def test_the_encryption_of_both_sides_is_kept():
    (row,) = rows((END, 0, 1, end(sides=(0x0304, 0x0303), client_cipher=b"A_B",
                                  peer_cipher=b"C_D")))
    assert (row["client_tls_version"], row["client_cipher"], row["peer_tls_version"],
            row["peer_cipher"], row["tls_version"]) == (
        "1.3", "A_B", "1.2", "C_D", None)
    (row,) = rows((END, 0, 1, end()))
    assert row["client_tls_version"] is row["peer_cipher"] is None


@pytest.mark.parametrize(("flags", "cut", "state"), [
    (assembly.IS_WEBSOCKET, 0, None), (assembly.IS_WEBSOCKET, 1, "truncated"),
    (0, NOT_COUNTED - 3, "truncated"),       # its END came from another worker
])
def test_the_frames_of_a_websocket_are_messages_and_no_bodies(flags, cut, state):
    def timed(at, data):
        return struct.pack("=q", at) + data

    (row,) = rows(
        (HEADS, 0, 1, heads(b"HTTP/1.1 101 X\r\n\r\n", up=HEAD)),
        (FRAMES_DOWN, 0, 1, timed(7, b"\x81\x02hi")),
        (FRAMES_UP, 0, 1, timed(8, b"\x81\x01")), (FRAMES_UP, 0, 1, timed(9, b"!")),
        (END, 0, 1, end(head=b"", flags=flags | assembly.IS_TUNNEL, body_up=3 + cut,
                        body_down=4)))
    assert [(one["at_us"], one["side"], one["text"]) for one in json.loads(
        row["messages"])] == [(7, "response", "hi"), (9, "request", "!")]
    assert row["messages_state"] == state and row["response_body"] is None


def test_frames_without_their_beginning_are_not_read():
    """R58: the writer had no memory for it, or the ring no room."""
    piece = struct.pack("=q", 1) + b"\x81\x02hi"
    flags = assembly.IS_WEBSOCKET | assembly.IS_TUNNEL
    (row,) = rows((FRAMES_UP, 0, 1, piece), (END, 0, 1, end(
        flags=flags, body_up=900, body_down=4)))
    assert (row["messages"], row["messages_state"]) == (None, "incomplete")
    (row,) = rows((HEADS, 0, 1, heads()), (FRAMES_UP, 0, 1, piece), (END, 0, 1, end(
        flags=flags | assembly.UP_CUT, body_up=900, body_down=0)))
    assert json.loads(row["messages"])[0]["text"] == "hi"
    assert row["messages_state"] == "incomplete"


def test_an_intercepted_request_has_a_url_of_https():
    (row, other) = rows(
        (END, 0, 1, end(flags=assembly.IS_INTERCEPTED, port=443)),
        (END, 0, 2, end(flags=assembly.IS_INTERCEPTED, port=80)))
    assert (row["url"], row["intercepted"]) == ("https://a.test/a", True)
    assert other["url"] == "https://a.test:80/a"


def test_a_pinned_tunnel_says_so():
    (row,) = rows((END, 0, 1, end(flags=assembly.IS_PINNED | assembly.IS_TUNNEL)))
    assert (row["pinned"], row["intercepted"]) == (True, False)


def test_a_tunnel_has_an_authority_for_a_url():
    (row,) = rows((END, 0, 1, end(
        method="CONNECT", host=b"2001:db8::1", port=443, head=b"", protocol="tls",
        sni=b"b.test", alpn=b"h2,http/1.1", ja4=b"t13d", tls=0x0304,
        flags=assembly.IS_TUNNEL | assembly.OFFERS_ECH)))
    assert (row["kind"], row["method"], row["url"]) == (
        "tunnel", "CONNECT", "[2001:db8::1]:443")
    assert (row["protocol"], row["sni"], row["alpn"], row["ja4"], row["tls_version"],
            row["ech"]) == ("tls", "b.test", "h2,http/1.1", "t13d", "1.3", True)
    assert row["request_head"] is None


def test_an_upgrade_brings_its_request_with_the_response():
    (row,) = rows((HEADS, 0, 1, heads(up=HEAD)), (END, 0, 1, end(
        head=b"", flags=assembly.IS_TUNNEL | assembly.HAS_UPGRADE, port=8080)))
    assert row["url"] == "http://a.test:8080/a" and row["kind"] == "tunnel"


def test_names_are_utf_8_and_heads_latin_1():
    (row,) = rows((END, 0, 1, end(user="Zoë".encode(),
                                  head=b"GET /\xe4 HTTP/1.1\r\nA: \xe4\r\n\r\n")))
    assert row["user"] == "Zoë" and row["request_head"].endswith("A: ä\r\n\r\n")


@pytest.mark.parametrize("name", ["MOST_OPEN", "MOST_OPEN_BYTES"])
def test_parts_without_an_end_are_bounded(monkeypatch, name):
    """R58."""
    monkeypatch.setattr(assembly, name, 10 if name == "MOST_OPEN" else 11_600)
    made = Assembly(redactor())
    for number in range(100):
        made.rows([(UP, 0, number, b"x" * 1000)])
    assert made.evicted == 90
    (row,) = made.rows([(END, 0, 99, end(body_up=1000, body_down=0))])
    assert row[COLUMNS.index("request_body")] == "x" * 1000
    (row,) = made.rows([(END, 0, 1, end(body_up=1000, body_down=0))])
    assert row[COLUMNS.index("request_body_state")] == "truncated"
    assert made._size == 9 * 1160


def test_a_large_part_takes_the_place_of_many_small_exchanges(monkeypatch):
    """R58: one went for each part."""
    monkeypatch.setattr(assembly, "MOST_OPEN_BYTES", 20_000)
    made = Assembly(redactor())
    made.rows([(UP, 0, number, b"x") for number in range(100)])
    made.rows([(UP, 0, 100, b"x" * 15_000)])
    assert made.evicted and made._size <= 20_000


@pytest.mark.parametrize("kind", [UP, DOWN, assembly.TIMED_DOWN, FRAMES_UP])
def test_tiny_pieces_are_bounded_by_their_memory(monkeypatch, kind):
    """R58: 9 000 000 frames of two octets were counted as 85 MiB, and took 1448."""
    most = 4 << 20
    monkeypatch.setattr(assembly, "MOST_OPEN_BYTES", most)
    made = Assembly(redactor())
    tracemalloc.start()
    try:
        for number in range(200):
            # Each piece has objects of its own, as those of a ring have
            made.rows([(kind, 0, number // 10, at.to_bytes(8) + b"ab")
                       for at in range(1000)])
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert made.evicted and taken < most * 5 // 4


@pytest.mark.parametrize("found", [
    (END, 0, 1, end()[:-1]), (END, 0, 1, end()[:150]), (END, 0, 1, b""),
    (HEADS, 0, 1, b"\x05\0\0\0abcd"), (HEADS, 0, 1, b"\0\0"),
    (assembly.TIMED_DOWN, 0, 1, b"\0" * 7)])
def test_a_record_that_is_too_short_is_not_read_beyond_its_end(found):
    made = Assembly(redactor())
    made.rows([found, (END, 0, 1, end()), (END, 0, 2, end())])
    assert made.failures.take() == 1


def test_an_exchange_that_cannot_be_handled_costs_itself_alone():
    """R71: the writer ended, and its successors read it first."""
    made = Assembly(redactor(json=("$..password",)))
    body = b'{"password": "a", "name": "\\ud800"}'
    head = HEAD.replace(b"Host", b"Content-Type: application/json\r\nHost")
    poison = [(UP, 0, 2, body), (END, 0, 2, end(body_up=len(body), head=head))]
    rows = made.rows([(END, 0, 1, end()), *poison, (END, 0, 3, end())])
    # It may be a row without its body, if that could be distinguished
    assert {row[0] for row in rows} >= {"0-1", "0-3"}
    assert len(rows) + made.failures.take() == 3 and made._size == 0


def test_an_exchange_that_ended_two_writers_is_left_out_with_all_its_parts():
    made = Assembly(redactor())
    made.rows([(UP, 0, 1, b"of the deadly one"), (UP, 0, 2, b"of another")])
    rows = made.leave_out([
        (HEADS, 0, 2, heads()), (DOWN, 0, 1, b"x"), (END, 0, 1, end())])
    assert len(rows) == 0 and made.failures.take() == 1
    (row,) = made.rows([(END, 0, 2, end(body_up=10))])
    assert row[0] == "0-2" and "of another" in row
    assert made._size == 0


def test_the_clients_fingerprints_are_columns_of_their_own():
    prints = {name: f"{name}.text" for name in FINGERPRINTS}
    (row,) = rows((END, 0, 1, end(**{
        name: text.encode() for name, text in prints.items()}, ja4=b"of the tunnel")))
    assert {name: row[name] for name in FINGERPRINTS} == prints
    assert row["ja4"] == "of the tunnel"
    (other,) = rows((END, 0, 1, end()))
    assert {other[name] for name in FINGERPRINTS} == {None}
    assert row["bytes"] - other["bytes"] == sum(map(len, prints.values()))
