"""Bodies as lines: each view, and that no input makes one fail or run on."""

import base64
import gzip
import json
import struct
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.capture.indented import MOST_INDENT
from cutthrough.capture.views import VIEWS, show_body
from cutthrough.exchange.protobuf import MOST_DEPTH, Malformed, show_message


def show(body, kind="", view="auto", coding=""):
    return list(show_body(body, kind, view, coding))


def varint(value):
    made = bytearray()
    while value > 0x7f:
        made.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(number, wire, payload):
    return varint(number << 3 | wire) + (
        varint(len(payload)) + payload if wire == 2 else payload)


def frame(message, flag=0):
    return struct.pack(">BI", flag, len(message)) + message


MESSAGE = (field(1, 0, varint(150)) + field(2, 2, b"testing")
           + field(3, 2, field(1, 0, varint(5))) + field(4, 1, struct.pack("<d", 0.5))
           + field(5, 5, struct.pack("<f", 1.5)) + field(6, 2, b"\xff\xfe")
           + field(7, 3, b"") + field(1, 0, varint(1)) + field(7, 4, b""))
LINES = ["1: 150", '2: "testing"', "3 {", "  1: 5", "}",
         "4: 4602678819172646912 (or 0.5)", "5: 1069547520 (or 1.5)",
         "6: bytes ff fe", "7 {", "  1: 1", "}"]


def test_json_is_indented_as_it_came():
    assert show('{"a":1.10,"a":[],"b":{},"c":[1,{"d":"x, y: {"}]}', "a/json") == [
        "{", '  "a": 1.10,', '  "a": [],', '  "b": {},', '  "c": [', "    1,", "    {",
        '      "d": "x, y: {"', "    }", "  ]", "}"]


@pytest.mark.parametrize("kind", ["application/x-amz-json-1.1", "application/x-ndjson"])
def test_json_is_indented_by_any_of_its_names(kind):
    assert show('{"a":1}', kind) == ["{", '  "a": 1', "}"]


def test_values_one_after_another_begin_lines():
    """Before, numbers of two lines became one number."""
    assert show('{"a":1}\n2\n3 "x"\n[]', "application/x-ndjson") == [
        "{", '  "a": 1', "}", "2", "3", '"x"', "[]"]


def test_deep_json_is_not_indented_without_end():
    """Before, 1 MiB of [ became terabytes."""
    assert sum(map(len, show("[" * 10_000, "a/json"))) < 3_000_000


def test_json_that_is_cut_is_shown_to_its_end():
    assert show('{"a":[1,"b', "application/problem+json") == [
        "{", '  "a": [', "    1,", '    "b']


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_indented_json_is_the_same_value(value):
    assert json.loads("\n".join(show(json.dumps(value), "", "json"))) == value


def test_bytes_are_shown_in_hex():
    assert show(b"hello\0\xff, this is more") == [
        "00000000  68 65 6c 6c 6f 00 ff 2c  20 74 68 69 73 20 69 73  "
        "|hello.., this is|",
        "00000010  20 6d 6f 72 65                                    | more|"]
    assert show(b"a" * 20_000)[-1] == "(3616 more bytes)"


def test_a_message_of_protobuf_is_shown_by_numbers_and_wire_types():
    assert show(MESSAGE, "application/x-protobuf") == LINES


def test_frames_of_grpc_are_shown_one_by_one():
    data = frame(MESSAGE) + frame(gzip.compress(field(1, 0, b"\x02")), 1)
    assert show(data, "application/grpc+proto", coding="gzip") == [
        f"frame 1: {len(MESSAGE)} bytes", *LINES,
        f"frame 2: {len(data) - len(MESSAGE) - 10} bytes, compressed", "1: 2"]
    web = frame(field(1, 0, b"\x02")) + frame(b"grpc-status: 0\r\n", 0x80)
    assert show(base64.b64encode(web), "application/grpc-web-text") == [
        "frame 1: 2 bytes", "1: 2", "frame 2: 16 bytes", "grpc-status: 0"]


def test_a_frame_that_is_cut_says_so():
    assert show(frame(b"abcd")[:7], "application/grpc") == [
        "frame 1: 4 bytes, of which 2 are there",
        "00000000  61 62                                             |ab|"]
    assert show(b"\0\0", "application/grpc")[0] == "(bytes that are no frame)"
    assert "not undone" in show(frame(b"abcd", 1), "application/grpc", coding="x")[1]


def test_messagepack_is_shown_as_json():
    data = msgspec.msgpack.encode({"a": [1, None, b"\xff"], 5: 0.5})
    assert json.loads("\n".join(show(data, "application/msgpack"))) == {
        "a": [1, None, "bytes ff"], "5": 0.5}


@pytest.mark.parametrize("begin", [b"\x91", b"\x81\xa1a"], ids=["list", "map"])
@pytest.mark.parametrize("depth", [300, 400, 500, 700, 900, 2000])
def test_messagepack_of_any_depth_is_shown(begin, depth):
    """600 octets of lists in lists ended the answer by a RecursionError."""
    data = begin * depth + b"\xdc\x01\x00" + b"\1" * 256
    lines = show(data, "application/msgpack")
    assert lines[0] in "[{" or lines[0].startswith("(is not MessagePack")
    assert max(map(len, lines)) < 2 * MOST_INDENT + 100


@pytest.mark.parametrize("view", VIEWS)
@given(body=st.binary(max_size=300) | st.text(max_size=300))
def test_no_body_makes_a_view_fail(view, body):
    show(body, "", view)
    show(body, "application/grpc-web-text", view, "gzip")


@given(st.binary(max_size=300))
def test_a_malformed_message_is_shown_in_hex(data):
    lines = show(data, "", "protobuf")
    try:
        show_message(data)
    except Malformed:
        assert lines[0].startswith("(is not a message of protobuf: ")


@pytest.mark.parametrize("data", [
    b"\x08", b"\x00\x01", b"\x0a\x05a", b"\x0b", b"\x0c", b"\x0e\x00", b"\x0f\x00",
    b"\x08" + b"\xff" * 11, b"\x0b\x14", b"\x0b" * 100])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(Malformed):
        show_message(data)


def test_depth_and_work_are_bounded():
    deep = b"\x01"
    for _ in range(MOST_DEPTH + 5):
        deep = field(1, 2, deep)
    show_message(deep)                       # shown in hex if it is too deep
    begun = time.process_time()
    # Each level is tried as a message first: without a bound 2^n tries
    hostile = b"\xff"
    for _ in range(30):
        hostile = field(1, 2, hostile) + field(2, 2, hostile)
        if len(hostile) > 200_000:
            break
    show(hostile, "", "protobuf")
    assert time.process_time() - begun < 5
    announced = b"\xdd\xff\xff\xff\xff" * 50
    assert show(announced, "", "msgpack")[0].startswith("(is not MessagePack")
