"""Calls of gRPC that are compared by the fields of their messages: grpcio on both
sides, and descriptors by protoc."""

import pytest

from tests.support.grpc_service import S, Talk, error_of, grpc
from tests.support.grpc_service import channel as channel
from tests.support.grpc_service import replay as replay
from tests.support.grpc_service import server as server
from tests.support.inside import config as inside
from tests.support.protos import compiled as compiled
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start

pytest.importorskip("cutthrough.http2.transport")
pytest.importorskip("google.protobuf")
pytestmark = pytest.mark.any_loop

PROTO = """
syntax = "proto3";
package t;
message M { string text = 1; string id = 2; }
service T { rpc Talk(stream M) returns (stream M); rpc Echo(M) returns (M); }
"""


@pytest.fixture
def proxy(start, compiled):
    return start("record", 'tls = "intercept"\n', inside(f"""
[recording_routes.t]
paths = ["/t.T/*"]
body = "grpc"
descriptors = "{compiled({'t.proto': PROTO})}"
ignored_paths = ["$.id"]
"""))


def message(text, ident, swapped=False):
    fields = [b"\x0a" + bytes([len(text)]) + text,
              b"\x12" + bytes([len(ident)]) + ident]
    return b"".join(reversed(fields) if swapped else fields)


def test_a_call_with_equal_fields_is_replayed_whatever_its_octets(
        channel, replay, proxy):
    echo = channel.unary_unary("/t.T/Echo")
    said = message(b"one", b"i1")
    assert echo(said, timeout=S) == said
    replay(1)
    for other in (said, message(b"one", b"i2"), message(b"one", b"i3", swapped=True)):
        assert echo(other, timeout=S) == said
    code, told = error_of(lambda: echo(message(b"two", b"i1"), timeout=S))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "no recording matches" in told
    assert [line["reason"] for line in proxy.wait_log(4)] == [
        "replayed"] * 3 + ["recording_missed"]


def test_messages_in_turn_are_compared_by_their_fields(channel, replay, proxy):
    def talk(*messages):
        call = Talk(channel)
        return [heard for one in messages for heard in call.ask(one)], call.end()
    said = talk(message(b"one", b"i1"), message(b"two", b"i2"))
    replay(1)
    assert talk(message(b"one", b"j1", True), message(b"two", b"j2", True)) == said
    late = Talk(channel)
    late.ask(message(b"one", b"k1"))
    late.say(message(b"six", b"i2"))
    code, told = error_of(late.hear)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "message 2 differs from recording 1" in told
    assert [line["reason"] for line in proxy.wait_log(2)] == [
        "replayed", "recording_missed"]


def test_a_long_message_is_read_apart_and_compared_by_its_fields(
        channel, replay, proxy):
    echo = channel.unary_unary("/t.T/Echo")

    def long(swapped, ident=b"i1"):
        text = b"x" * 90_000
        fields = [b"\x0a\x90\xbf\x05" + text, b"\x12\x02" + ident]
        return b"".join(reversed(fields) if swapped else fields)

    assert echo(long(False), timeout=S) == long(False)
    replay(1)
    assert echo(long(True, b"i2"), timeout=S) == long(False)
    assert proxy.wait_log(1)[0]["reason"] == "replayed"
