"""A gRPC service, calls of it, and what was recorded of them."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cutthrough.recording.sessions.modes import State, write_state
from tests.support.certificates import authority
from tests.support.inside import certificate
from tests.support.inside import config as inside
from tests.support.recordings import recorded
from tests.support.wait import wait_until

grpc = pytest.importorskip("grpc")
S = 20


class Service(grpc.GenericRpcHandler):
    called = 0

    def service(self, call):
        self.called += 1
        return {
            "/t.T/Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "/t.T/Greet": grpc.stream_stream_rpc_method_handler(self.greet),
            "/t.T/Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "/t.T/First": grpc.stream_unary_rpc_method_handler(self.first),
            "/t.T/Count": grpc.unary_stream_rpc_method_handler(self.count),
            "/t.T/Echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "/t.T/Tick": grpc.unary_stream_rpc_method_handler(self.tick),
            "/t.T/Slow": grpc.unary_unary_rpc_method_handler(self.slow),
            "/t.T/Wait": grpc.stream_unary_rpc_method_handler(self.slow),
        }.get(call.method)

    def talk(self, requests: Iterator[bytes], context) -> Iterator[bytes]:
        context.set_trailing_metadata((("x-seen", "a trailer"),))
        for message in requests:
            yield from (message.upper(), message[::-1])

    def greet(self, requests: Iterator[bytes], context) -> Iterator[bytes]:
        yield b"welcome"
        yield from requests

    def sum(self, requests: Iterator[bytes], context) -> bytes:
        return str(sum(len(message) for message in requests)).encode()

    def first(self, requests: Iterator[bytes], context) -> bytes:
        if next(requests) == b"bad":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first is bad")
        return b"fine"

    def count(self, request: bytes, context) -> Iterator[bytes]:
        yield from (b"%d" % n for n in range(int(request)))

    def echo(self, request: bytes, context) -> bytes:
        return request

    def tick(self, request: bytes, context) -> Iterator[bytes]:
        yield from self.count(request, context)
        self.slow(request, context)

    def slow(self, request: bytes, context) -> bytes:
        left = threading.Event()
        if context.add_callback(left.set):   # the call has not ended yet
            left.wait(S)
        return b"too late"


@pytest.fixture
def server():
    service = Service()
    server = grpc.server(ThreadPoolExecutor(8), handlers=(service,))
    chain, key = certificate().pem
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    server.start()
    yield port, service
    server.stop(0).wait(S)


@pytest.fixture
def proxy(start):
    return start("record", 'tls = "intercept"', inside())


@pytest.fixture
def channel(proxy, server):
    trust = authority().own.certificate.read_bytes()
    with grpc.secure_channel(
            f"a.example:{server[0]}", grpc.ssl_channel_credentials(trust), options=[
                ("grpc.http_proxy", proxy.url), ("grpc.enable_retries", 0),
                ("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


@pytest.fixture
def replay(proxy, folder, server):
    """From now on this mode holds; behind the last time the server is not called."""
    before = 0

    def run(n, mode="replay"):
        nonlocal before
        wait_until(lambda: recorded(folder) == n, proxy.stderr)
        write_state(folder, State(mode))
        wait_until(lambda: f"mode {mode}, session default, {n}" in proxy.stderr(),
                   proxy.stderr)
        proxy.mark()
        before = server[1].called

    yield run
    assert server[1].called == before


class Talk:
    """A client that sends a message when it has the answer to the last one."""

    def __init__(self, channel, method="/t.T/Talk", timeout=S):
        self._queue = queue.SimpleQueue()
        self.call = channel.stream_stream(method)(
            iter(self._queue.get, None), timeout=timeout)

    def say(self, message):
        self._queue.put(message)

    def ask(self, message, n=2):
        self.say(message)
        return self.hear(n)

    def hear(self, n=1):
        return [next(self.call) for _ in range(n)]

    def end(self):
        self.say(None)
        return list(self.call), self.call.code(), dict(self.call.trailing_metadata())


def talk(channel, *messages):
    talk = Talk(channel)
    return [talk.ask(message) for message in messages], talk.end()


def error_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()
