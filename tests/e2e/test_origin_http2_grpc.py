"""Servers of gRPC, which have HTTP/2 alone, inside intercepted connections: grpcio on
both sides."""

import queue
from collections.abc import Iterator
from concurrent import futures

import pytest

from tests.support.bulk import Watch
from tests.support.certificates import authority
from tests.support.grpc_echo import SLOW, Service, grpc
from tests.support.inside import ALL, certificate, config
from tests.support.proxy import Proxy

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

ANY_LENGTH = [("grpc.max_receive_message_length", -1)]
MEGABYTE = bytes(range(256)) * 4096
#: The most that a worker may grow by while 100 MB pass through it, in each direction.
FLAT = 30 << 20


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def port(service) -> Iterator[int]:
    """Of a server that has HTTP/2 alone."""
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=(service,),
                         options=ANY_LENGTH)
    chain, key = certificate().pem
    number = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    server.start()
    yield number
    server.stop(0).wait(SLOW)


@pytest.fixture
def proxy(start_policy) -> Proxy:
    return start_policy(ALL, config('origin_http2 = "auto"\n'), executed=True)


@pytest.fixture
def channel(proxy, port):
    trust = authority().own.certificate.read_bytes()
    with grpc.secure_channel(
            f"a.example:{port}", grpc.ssl_channel_credentials(trust),
            options=[("grpc.http_proxy", proxy.url), *ANY_LENGTH]) as made:
        yield made


def test_unary_calls_and_trailers(proxy, channel) -> None:
    call = channel.unary_unary("/t.T/Echo")
    for body in (b"", b"x", MEGABYTE):
        got, about = call.with_call(body, timeout=SLOW)
        assert got == body
        assert about.code() is grpc.StatusCode.OK
        assert dict(about.trailing_metadata()) == {
            "x-seen": "a trailer", "x-t-bin": b"\0\xff"}
    records = proxy.wait_log(3, method="POST")
    assert {(one["status"], one["reason"]) for one in records} == {(200, "ok")}
    assert len({one["peer"] for one in records}) == 1


def test_streams_of_both_sides(channel) -> None:
    got = channel.unary_stream("/t.T/Count")(b"5000", timeout=SLOW)
    assert list(got) == [b"%d" % n for n in range(5000)]
    got = channel.stream_unary("/t.T/Sum")(
        iter([b"x" * n for n in range(1000)]), timeout=SLOW)
    assert got == b"499500"


def test_a_conversation(channel) -> None:
    """Each message is answered before the next one is sent."""
    said: queue.Queue[bytes] = queue.Queue()
    answers = channel.stream_stream("/t.T/Talk")(iter(said.get, b""), timeout=SLOW)
    for n in range(200):
        said.put(b"<%d" % n)
        assert next(answers) == (b"<%d" % n)[::-1]
    said.put(b"")
    assert list(answers) == []
    assert answers.code() is grpc.StatusCode.OK


def test_a_status_without_a_message(channel) -> None:
    """The response is one block of fields."""
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Fail")(b"", timeout=SLOW)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "no such thing: 100 %\u2026"
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Unknown")(b"", timeout=SLOW)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("how", ["deadline", "cancellation"])
def test_the_end_of_a_call_is_told_to_the_server(channel, service, how) -> None:
    answers = channel.unary_stream("/t.T/Wait")(
        b"", timeout=SLOW if how == "cancellation" else 1)
    assert next(answers) == b"begun"
    if how == "cancellation":
        answers.cancel()
    assert service.cancelled.wait(SLOW)
    with pytest.raises(grpc.RpcError):
        next(answers)
    code = answers.code()
    assert code is (grpc.StatusCode.CANCELLED if how == "cancellation"
                    else grpc.StatusCode.DEADLINE_EXCEEDED)
    assert channel.unary_unary("/t.T/Echo")(b"x", timeout=SLOW) == b"x"


def test_100_mb_both_ways(proxy, channel) -> None:
    assert channel.unary_unary("/t.T/Echo")(MEGABYTE, timeout=SLOW) == MEGABYTE
    with Watch(proxy) as watch:
        answers = channel.stream_stream("/t.T/Talk")(
            (MEGABYTE for _ in range(100)), timeout=SLOW)
        turned = MEGABYTE[::-1]
        assert [one == turned for one in answers] == [True] * 100
    assert watch.growth < FLAT, f"grew by {watch.growth >> 10} KiB"


def test_calls_at_a_time(channel) -> None:
    call = channel.unary_unary("/t.T/Echo")
    calls = [call.future(b"%d" % n * 10_000, timeout=SLOW) for n in range(100)]
    assert [one.result() for one in calls] == [b"%d" % n * 10_000 for n in range(100)]
