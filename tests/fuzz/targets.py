"""Fuzz targets: bytes in, AssertionError out when something is wrong.

Each compares the C with tests/wire/twin.py. The input ends at a page that cannot be
read, and is cut in two at a place that the input itself determines. An accepted input
must also survive the steps that come next.
"""

import json
import zlib

from cutthrough.exchange.content import MOST_CAPTURED
from cutthrough.exchange.formats.har import make_message
from cutthrough.exchange.messages import Piece, read_websocket
from cutthrough.policy.globs import parse_glob
from cutthrough.wire.paths import readings_of
from cutthrough.wire.target import read_authority, read_request_target
from tests.capture.twin_messages import HEAD, REDACTOR, same_messages
from tests.doors import wire_hello, wire_parents
from tests.doors.policy import glob_meets
from tests.doors.wire import (
    read_datagram_header,
    read_framing,
    read_greeting,
    read_password,
    read_proxy_header,
    read_request,
    read_response,
    read_socks4_request,
    read_socks5_request,
    rewrite_request,
    rewrite_response,
)
from tests.fuzz import content_targets, http2_targets
from tests.wire import (
    twin,
    twin_hello,
    twin_parents,
    twin_paths,
    twin_proxy,
    twin_socks,
)
from tests.wire.against import (
    NUMBERS,
    same_body,
    same_chunks,
    same_head,
    same_reply_body,
    same_target,
    scan,
)
from tests.wire.replay import ROOM, Parser, guarded

METHODS = sorted(NUMBERS)
DEFLATED = HEAD[:-2] + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
# Host, Connection and Via come in addition: more than this cannot be read again.
MOST_REREAD = twin.MOST_FIELDS - 3


def parse(read: Parser, data: bytes) -> dict | str | None:
    """Its answer to data, at the end of memory, in one piece and in two."""
    place = guarded().place
    answer = read(place(data), 0)
    cut = zlib.crc32(data) % (len(data) + 1)
    first = read(place(data[:cut]), 0)
    again = first if first is not None else read(place(data), cut)
    assert again == answer, f"cut at {cut}: {again!r}"
    return answer


def fuzz_request(data: bytes) -> None:
    """A request head: fields, target, framing, and the head that goes on."""
    theirs = twin.read_request(data)
    if not same_head(parse(read_request, data), theirs):
        return
    same_body(data, theirs)
    same_target(data, theirs)
    target = read_request_target(data)
    if isinstance(target, str) or target["form"] == "authority":
        return
    if isinstance(read_framing(data), str):
        return
    if len(theirs.fields) > MOST_REREAD:
        return
    went_on = rewrite_request(data, upgrade=bool(data[-1] & 1))
    if isinstance(went_on, str):
        return
    head, path = went_on
    again = twin.read_request(head, head_bytes=ROOM)
    assert isinstance(again, twin.Head), again
    assert again.length == len(head)
    assert again.first == (theirs.first[0], path)
    check_forwarded(again)
    kind = twin.read_request_framing(again)
    assert kind[:2] == twin.read_request_framing(theirs)[:2], kind
    if target["host"]:          # else the session puts in the configured origin
        assert read_request_target(head)["text"] == target["text"]


HOP_BY_HOP = (
    b"proxy-authorization", b"proxy-connection", b"proxy-authenticate", b"keep-alive",
    b"te", b"proxy-authentication-info")


def check_forwarded(head: twin.Head) -> None:
    """R14, R15, R16: the head that goes to an origin, and fields that never may."""
    assert not head.values(*HOP_BY_HOP), head.fields
    assert len(head.values(b"host")) == 1
    assert head.values(b"via"), head.fields
    assert {b"upgrade"} >= {one.lower() for one in head.members(b"connection")}
    assert not isinstance(twin.read_request_framing(head), str)


def fuzz_response(data: bytes) -> None:
    """A response head: fields, framing for each method, and the head that goes on."""
    theirs = twin.read_response(data)
    if not same_head(parse(read_response, data), theirs):
        return
    for method in METHODS:
        same_reply_body(data, theirs, method)
    if isinstance(read_framing(data, NUMBERS[b"GET"]), str):
        return
    if len(theirs.fields) > MOST_REREAD:
        return
    head = rewrite_response(data, close=bool(data[-1] & 1), chunked=True)
    if isinstance(head, str):
        return
    again = twin.read_response(head, head_bytes=ROOM)
    assert isinstance(again, twin.Head), again
    assert (again.length, again.lenient) == (len(head), False)
    assert again.first == theirs.first
    assert not again.values(*HOP_BY_HOP), again.fields
    if again.minor == theirs.minor:
        one, two = (twin.read_response_framing(it, b"GET") for it in (theirs, again))
        assert one[:2] == two[:2]


def fuzz_chunks(data: bytes) -> None:
    """A chunked body: whole, byte by byte, decoded, and its frame scanned again."""
    same_chunks(data)
    body = twin.read_chunks(data)
    if isinstance(body, twin.Chunked):
        assert scan([body.frame], False) == (body.frame, len(body.frame))


def fuzz_target(data: bytes) -> None:
    """An authority, or behind a space a request target: one destination or none."""
    if data[:1] == b" ":
        method = METHODS[len(data) % len(METHODS)]
        host = b"\r\nHost: a\r\n\r\n"
        head = method + data + b" HTTP/1.1" + host
        theirs = twin.read_request(head, line_bytes=ROOM, head_bytes=ROOM)
        if isinstance(theirs, twin.Head) and theirs.length == len(head):
            same_target(head, theirs)
        return
    for port in (0, 80):
        ours = read_authority(guarded().place(data), port)
        theirs = twin.read_authority(data, port)
        if theirs is None:
            assert ours == "bad_target", ours
            continue
        assert (ours["host"], ours["kind"], ours["port"]) == theirs
        assert read_authority(ours["text"].encode(), port) == ours


def fuzz_proxy_header(data: bytes) -> None:
    """A header of the PROXY protocol: one client, none, or a refusal."""
    theirs = twin_proxy.read_proxy_header(data)
    ours = parse(read_proxy_header, data)
    if not isinstance(theirs, twin_proxy.Named):
        assert ours == theirs, (ours, theirs)
        return
    assert ours == theirs._asdict(), (ours, theirs)
    # It is whole at its last byte, not before, and later bytes change nothing
    assert read_proxy_header(guarded().place(data[:theirs.length - 1])) is None
    assert read_proxy_header(guarded().place(data[:theirs.length])) == ours


def fuzz_parents(data: bytes) -> None:
    """An answer of a parent; the first octet selects the kind of answer."""
    names = sorted(twin_parents.TWINS)
    name, data = names[(data[0] if data else 0) % len(names)], data[1:]
    theirs = twin_parents.TWINS[name](data)
    read = getattr(wire_parents, name)
    assert parse(read, data) == theirs, (name, theirs)
    if isinstance(theirs, tuple):
        assert read(guarded().place(data[:theirs[0] - 1])) is None
        assert read(guarded().place(data[:theirs[0]])) == theirs


# By the input's first byte, which is not theirs
SOCKS = {
    ord("g"): (read_greeting, twin_socks.read_greeting),
    ord("p"): (read_password, twin_socks.read_password),
    ord("5"): (read_socks5_request, twin_socks.read_socks5_request),
    ord("4"): (read_socks4_request, twin_socks.read_socks4_request)}


def fuzz_socks(data: bytes) -> None:
    """A message of SOCKS: read like its twin, at its last byte and not before."""
    if data[:1] == b"d":
        assert read_datagram_header(guarded().place(data[1:])) == (
            twin_socks.read_datagram_header(data[1:]))
        return
    if not data or data[0] not in SOCKS:
        return
    read, twin_read = SOCKS[data[0]]
    data = data[1:]
    ours, theirs = parse(read, data), twin_read(data)
    assert ours == theirs, (ours, theirs)
    if isinstance(theirs, dict):
        assert read(guarded().place(data[:theirs["length"] - 1])) is None
        assert read(guarded().place(data[:theirs["length"]])) == ours


def fuzz_hello(data: bytes) -> None:
    """A ClientHello with its fingerprints, or another protocol's first bytes."""
    theirs = twin_hello.read_hello(data)
    ours = parse(wire_hello.read_client_hello, data)
    if not isinstance(theirs, twin_hello.Hello):
        assert ours == theirs, (ours, theirs)
    else:
        assert ours == theirs._asdict(), (ours, theirs)
        cut = guarded().place(data[:theirs.length - 1])
        assert wire_hello.read_client_hello(cut) is None
    word = parse(wire_hello.read_client_opening, data)
    assert (word == "tls") == isinstance(ours, dict)
    parse(wire_hello.read_origin_opening, data)


def fuzz_path(data: bytes) -> None:
    """A glob, a line's end, and a path: its readings, and whether these match."""
    text, _, path = data.partition(b"\n")
    place = guarded().place(path)
    readings = readings_of(place)
    assert set(readings) == twin_paths.read_path(path), readings
    try:
        globs = parse_glob(text.decode("latin-1"))
    except ValueError:
        return
    assert parse_glob(globs[0]) == globs
    for any_reading in (False, True):
        assert glob_meets(globs, place, any_reading) == (
            twin_paths.meets(globs, path, any_reading)), (globs, readings)


def fuzz_records(data: bytes) -> None:
    """Records of TLS, sealed, spoiled or made up, in the order of the input."""
    from tests.doors.tls import Side  # without libssl there is none
    from tests.net.twin_records import Half, Twin

    first = data[0] if data else 0
    cipher, is_13, connects = first % 3, bool(first & 64), bool(first & 128)
    secrets = bytes(range(48)), bytes(range(100, 148))
    ours = Side(cipher, is_13, connects, *secrets)
    peer = Side(cipher, is_13, not connects, *secrets[::-1])
    twin = Twin(Half(cipher, is_13, secrets[1]), connects)
    at = 1
    while at + 2 < len(data):
        how, body = data[at], data[at + 2:at + 2 + data[at + 1]]
        at += 2 + len(body)
        if how & 7 == 0 and body:
            record = body[:1] + b"\3\3" + len(body[1:]).to_bytes(2, "big") + body[1:]
        elif how & 7 == 1 and is_13:
            record = peer.update(bool(how & 8))
        elif how & 7 == 2 and is_13:
            record = peer.seal(0, body)
        else:
            record = bytearray(peer.seal((21, 22, 23)[how % 3], body))
            if how & 7 == 3:
                place = len(body) * 7 % len(record)
                record[place if place not in (3, 4) else 0] ^= 1 + how // 8
            record = bytes(record)
        theirs = twin.open(record)
        found = ours.open(record, bool(how & 16))
        assert found == theirs, (found, theirs)
        if found[0] not in ("data", "message"):
            return


def fuzz_messages(data: bytes) -> None:
    """A WebSocket's bytes in pieces; or deflated ones: their bounds must hold."""
    first, data = (data[0], data[1:]) if data else (0, b"")
    size = 1 + first // 2
    if first % 2 == 0:
        same_messages(data, size)
        return
    pieces = [Piece(True, at, data[at:at + size]) for at in range(0, len(data), size)]
    found, state = read_websocket(pieces, DEFLATED, whole=True, redactor=REDACTOR)
    assert state in (None, "malformed", "truncated")
    shown = json.loads(found)
    assert sum(one["bytes"] for one in shown) <= MOST_CAPTURED + len(data)
    assert all(isinstance(make_message(one)["data"], str) for one in shown)


TARGETS = {
    "request": fuzz_request, "response": fuzz_response, "chunks": fuzz_chunks,
    "target": fuzz_target, "proxy_header": fuzz_proxy_header,
    "parents": fuzz_parents, "socks": fuzz_socks, "hello": fuzz_hello,
    "path": fuzz_path, "records": fuzz_records, "messages": fuzz_messages,
    **http2_targets.TARGETS, **content_targets.TARGETS}
