"""A gRPC service that echoes, counts and fails."""

import threading
from collections.abc import Iterator

import pytest

grpc = pytest.importorskip("grpc")
SLOW = 60


class Service(grpc.GenericRpcHandler):
    """Octets in, octets out; no compiler of messages is needed for these."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.begun = threading.Event()

    def service(self, call):
        return {
            "/t.T/Echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "/t.T/Count": grpc.unary_stream_rpc_method_handler(self.count),
            "/t.T/Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "/t.T/Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "/t.T/Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "/t.T/Wait": grpc.unary_stream_rpc_method_handler(self.wait),
        }.get(call.method)

    def echo(self, request: bytes, context) -> bytes:
        context.set_trailing_metadata((("x-seen", "a trailer"), ("x-t-bin", b"\0\xff")))
        return request

    def count(self, request: bytes, context) -> Iterator[bytes]:
        for n in range(int(request)):
            yield str(n).encode()

    def sum(self, requests: Iterator[bytes], context) -> bytes:
        return str(sum(len(message) for message in requests)).encode()

    def talk(self, requests: Iterator[bytes], context) -> Iterator[bytes]:
        for message in requests:
            yield message[::-1]

    def fail(self, request: bytes, context) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: 100 %\u2026")

    def wait(self, request: bytes, context) -> Iterator[bytes]:
        context.add_callback(self.cancelled.set)
        yield b"begun"
        self.begun.set()
        self.cancelled.wait(SLOW)
