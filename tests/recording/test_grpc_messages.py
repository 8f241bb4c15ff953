"""Messages of gRPC, compared as fields by the descriptors of their services."""

import subprocess
import sys
from itertools import permutations

import pytest
from msgspec import structs

from cutthrough.config.config import ConfigError
from cutthrough.config.recordings import RecordingRoute
from cutthrough.exchange.bounds import KeyMistake
from cutthrough.generation.recordings import check_route
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.matches import RecordedRequest
from cutthrough.recording.match.nearest import differences
from cutthrough.recording.match.routes import Key
from cutthrough.recording.model.grpc_messages import digest_of, read_steps
from cutthrough.recording.model.recording import Request
from tests.support.protos import compiled as compiled

pytest.importorskip("google.protobuf")
PROTO = """
syntax = "proto3";
package shop;
import "common.proto";
message Item { string name = 1; int64 count = 2; string id = 3; }
message Order {
  string user = 1; repeated Item items = 2; map<string, string> labels = 3;
  repeated int32 sizes = 4; common.Trace trace = 5; bool urgent = 6; }
message Reply { string text = 1; }
service Shop { rpc Buy(Order) returns (Reply); rpc Say(stream Reply) returns (Reply); }
"""
COMMON = """
syntax = "proto3";
package common;
message Trace { string id = 1; string span = 2; }
"""


@pytest.fixture(scope="module")
def descriptors(compiled):
    return compiled({"shop.proto": PROTO, "common.proto": COMMON})


def field(number, wire, data):
    """Of one octet each: its key, and its length or value."""
    head = bytes([number << 3 | wire])
    return head + (bytes([len(data)]) + data if wire == 2 else bytes([data]))


def framed(*messages, flag=0):
    return b"".join(bytes([flag]) + len(one).to_bytes(4) + one for one in messages)


def reader(descriptors, *ignored):
    return KeyReader(Key(body="grpc", descriptors=str(descriptors),
                         descriptors_digest=digest_of(str(descriptors)),
                         ignored_paths=ignored))


def call(body, path="/shop.Shop/Buy"):
    return Request(method="POST", scheme="https", host="a.example", port=443, path=path,
                   body=body)


def base(one, body, **more):
    return one.read(call(body, **more), recorded=False)[0]


USER, URGENT = field(1, 2, b"ann"), field(6, 0, 1)
ITEM = field(2, 2, field(1, 2, b"pen") + field(3, 2, b"i1"))
OTHER = field(2, 2, field(1, 2, b"pen") + field(3, 2, b"i2"))
LABELS = [field(3, 2, field(1, 2, name) + field(2, 2, b"x")) for name in (b"k", b"l")]


def test_the_order_of_fields_and_of_maps_packing_and_defaults_do_not_count(descriptors):
    one = reader(descriptors)
    found = {base(one, framed(b"".join(parts)))
             for parts in permutations([USER, URGENT, ITEM, *LABELS])}
    packed, plain = field(4, 2, b"\1\2"), field(4, 0, 1) + field(4, 0, 2)
    assert len(found) == 1
    assert base(one, framed(packed)) == base(one, framed(plain))
    assert base(one, framed(USER + field(6, 0, 0))) == base(one, framed(USER))


def test_values_repeated_fields_and_the_number_of_messages_count(descriptors):
    one = reader(descriptors)
    bodies = [framed(USER), framed(field(1, 2, b"bob")), framed(USER, USER), framed(),
              framed(ITEM + OTHER), framed(OTHER + ITEM), framed(b""),
              framed(field(4, 2, b"\1\2")), framed(field(4, 2, b"\2\1"))]
    assert len({base(one, body) for body in bodies}) == len(bodies)


@pytest.mark.parametrize(("path", "here", "there"), [
    ("$.user", USER + URGENT, field(1, 2, b"bob") + URGENT),
    ("$.items[*].id", ITEM, OTHER), ("$.items", ITEM, b""), ("$.items[*]", ITEM, b""),
    ("$.labels", LABELS[0], LABELS[1]), ("$.sizes", field(4, 2, b"\1"), b""),
    ("$.trace.id", field(5, 2, field(1, 2, b"t1") + field(2, 2, b"s")),
     field(5, 2, field(2, 2, b"s"))), ("$.trace", field(5, 2, b""), b"")])
def test_an_ignored_field_does_not_count(descriptors, path, here, there):
    assert base(reader(descriptors), framed(here)) != base(
        reader(descriptors), framed(there))
    assert base(reader(descriptors, path), framed(here)) == base(
        reader(descriptors, path), framed(there))


@pytest.mark.parametrize("bodies", [
    (framed(USER + URGENT, flag=1), framed(URGENT + USER, flag=1)),   # compressed
    (framed(USER + URGENT)[:-1], framed(URGENT + USER)[:-1]),
    (framed(USER + field(9, 0, 1)), framed(field(9, 0, 1) + USER)),   # unknown
    (framed(field(5, 2, field(9, 0, 1)) + USER),
     framed(USER + field(5, 2, field(9, 0, 1)))),
    (framed(b"\xff" + USER), framed(USER + b"\xff")),
    (framed(USER + field(1, 2, b"\xff\xfe")), framed(field(1, 2, b"\xff\xfe") + USER))])
def test_what_cannot_be_read_as_fields_counts_as_octets(descriptors, bodies):
    one = reader(descriptors)
    assert base(one, bodies[0]) == base(one, bodies[0]) != base(one, bodies[1])


def test_a_method_without_descriptors_counts_as_octets(descriptors):
    one = reader(descriptors)
    for path in ("/shop.Shop/Sell", "/", "/shop.Shop"):
        assert base(one, framed(USER + URGENT), path=path) != base(
            one, framed(URGENT + USER), path=path)
    # The messages of each method are its own
    assert base(one, framed(field(1, 2, b"x")), path="/shop.Shop/Say") != base(
        one, framed(field(1, 2, b"y")), path="/shop.Shop/Say")


def test_a_message_beyond_the_bound_counts_as_octets(descriptors):
    one = reader(descriptors)
    long = b"\x0a\x80\x80\x40" + b"x" * (1 << 20)
    assert base(one, framed(long + URGENT)) != base(one, framed(URGENT + long))


def test_differences_are_told_by_field(descriptors):
    one = reader(descriptors)
    here, there = call(framed(USER + ITEM)), call(framed(field(1, 2, b"bob") + OTHER))
    said = list(differences(
        here, RecordedRequest(request=there), one, {}, (here, there)))
    assert said == ['body $[0].user: "ann", recorded "bob"',
                    'body $[0].items[0].id: "i1", recorded "i2"']


@pytest.mark.parametrize("path", ["user", "$", "$.", "$..user", "$.a[0]", "$.a[*][*]",
                                  "$['user']", "$.a b"])
def test_what_is_no_path_of_names_is_refused(path):
    with pytest.raises(KeyMistake, match="is no path of fields"):
        read_steps(path)


def mistakes(descriptors, **keys):
    row = RecordingRoute(name="shop", body="grpc", descriptors=str(descriptors), **keys)
    return [str(one) for one in check_route(row)]


def test_a_route_is_checked_with_the_reason(descriptors, compiled, tmp_path):
    assert mistakes(descriptors, ignored_paths=("$.items[*].id",)) == []
    (said,) = mistakes(descriptors, ignored_paths=("$.items.id",))
    assert "the messages of no method in" in said
    (said,) = mistakes(descriptors, ignored_paths=("$.usr",))
    assert "$.usr: the messages of no method" in said
    (said,) = mistakes(descriptors, ignored_paths=("usr",))
    assert "is no path of fields" in said
    (said,) = mistakes(tmp_path / "absent")
    assert "No such file" in said and "descriptors" in said
    (tmp_path / "text").write_text("no descriptors")
    (said,) = mistakes(tmp_path / "text")
    assert "is no FileDescriptorSet" in said
    alone = compiled({"shop.proto": PROTO, "common.proto": COMMON}, imports=False)
    (said,) = mistakes(alone)
    assert "--include_imports" in said
    none = compiled({"common.proto": COMMON})
    (said,) = mistakes(none)
    assert "has no service" in said


def test_descriptors_and_their_kind_of_body_need_each_other():
    with pytest.raises(ConfigError, match='"grpc" needs descriptors'):
        RecordingRoute(name="shop", body="grpc")
    with pytest.raises(ConfigError, match='has no effect without body = "grpc"'):
        RecordingRoute(name="shop", descriptors="shop.pb")


def test_without_the_library_the_remedy_is_named(descriptors):
    code = ("import sys\nsys.modules['google.protobuf'] = None\n"
            "from cutthrough.recording.model import grpc_messages as its\n"
            f"path = {str(descriptors)!r}\n"
            "its.MessageReader(path, its.digest_of(path), ())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=False)
    assert "pip install 'cutthrough[grpc]'" in done.stderr


def test_descriptors_that_have_changed_leave_octets(descriptors, tmp_path):
    """A process apart reads the file after the worker."""
    copy = tmp_path / "shop.pb"
    copy.write_bytes(descriptors.read_bytes())
    key = reader(copy).key
    copy.write_bytes(descriptors.read_bytes() + b"\n\0")
    one = KeyReader(structs.replace(key, descriptors_digest=b"another"))
    assert base(one, framed(USER + URGENT)) != base(one, framed(URGENT + USER))
