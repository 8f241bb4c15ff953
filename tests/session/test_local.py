"""An origin in Python: a function of this process answers, and nothing is dialled."""

import asyncio
import contextlib
import errno
import socket
import threading

import pytest

import cutthrough
from cutthrough.generation.generation import Generation
from cutthrough.policy.source import Policy, Rule
from cutthrough.session.accept import close_all
from cutthrough.session.handover import tunnels
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.lines import read_line
from tests.support.origin import Origin
from tests.support.stream import Closed, chunked
from tests.support.wait import wait_until

HERE = "replayed.test:80"
URL = "http://replayed.test/"
TUNNEL = "replayed.test:443"
BULK = 4 << 20


@pytest.fixture(params=["uvloop", "asyncio"])
def serve(request, tmp_path):
    """Runs journey(proxy, log) in a thread; log() returns the lines so far."""
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    path = tmp_path / "access.log"

    def log():
        return [read_line(line) for line in path.read_text().splitlines()]

    def start(origins, journey, **options):
        async def main():
            async with cutthrough.serve(
                    user=USER, password=PASSWORD, access_log=str(path),
                    access_log_format="json", **options) as proxy:
                proxy.worker.set_local_origins(origins)
                await asyncio.to_thread(journey, proxy, log)
                wait = asyncio.get_running_loop().time() + 10
                while any(proxy.worker.leaks().values()):
                    assert asyncio.get_running_loop().time() < wait
                    await asyncio.sleep(0.01)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return start


def origin(handler, seen=None):
    """A local origin of a coroutine over streams. `seen` gets each request's head."""
    tasks = set()

    async def run(far):
        reader, writer = await asyncio.open_unix_connection(sock=far)
        try:
            if seen is not None:
                seen.append(await reader.readuntil(b"\r\n\r\n"))
            await handler(reader, writer)
        except ConnectionError as end:
            if seen is None:
                raise
            seen.append(type(end))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def start(far):
        assert far.family == socket.AF_UNIX and not far.getblocking()
        task = asyncio.get_running_loop().create_task(run(far))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return start


def answer(*pieces):
    async def handler(reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
    return handler


HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def test_requests_of_one_connection_are_answered_from_here(serve):
    seen = []

    def journey(proxy, log):
        with Client(proxy.port) as client:
            for _ in range(2):
                reply = client.get(URL + "a?b")
                assert (reply.status, reply.body) == (200, b"hello")
            head = client.ask("HEAD", URL)
            assert (head.status, head.body) == (200, b"")
            assert head.get("Content-Length") == "5"
        wait_until(lambda: len(log()) == 3, "three lines")
        for line in log():
            assert (line["reason"], line["status"], line["host"]) == (
                "ok", 200, "replayed.test")
            assert line["peer"] is None
            assert line["bytes_down"] > 0
        counted = proxy.worker.page.read()
        assert (counted["requests"], counted["outcome:ok"]) == (3, 3)
        assert (counted["dialled"], counted["reused"]) == (0, 0)
        assert proxy.worker.idle_pool.idle == 0

    serve({HERE: origin(answer(HELLO), seen)}, journey)
    assert [head.split()[:2] for head in seen] == [
        [b"GET", b"/a?b"], [b"GET", b"/a?b"], [b"HEAD", b"/"]]
    assert b"Host: replayed.test\r\n" in seen[0]


def test_chunks_pass_and_so_does_a_body(serve):
    bodies = []

    async def handler(reader, writer):
        bodies.append(await reader.readexactly(len(chunked([b"one ", b"two"]))))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(chunked([b"a" * 70000, b"b"]))
        await writer.drain()

    def journey(proxy, log):
        with Client(proxy.port) as client:
            for _ in range(2):
                reply = client.ask("POST", URL, "Transfer-Encoding: chunked",
                                   body=chunked([b"one ", b"two"]))
                assert reply.body == b"a" * 70000 + b"b"

    serve({HERE: origin(handler, [])}, journey)
    assert bodies == [chunked([b"one ", b"two"])] * 2


@pytest.mark.parametrize("pieces", [
    [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", b"hello"],
    [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n"]])
def test_an_answer_that_is_cut_short_does_not_look_whole(serve, pieces):
    def journey(proxy, log):
        with Client(proxy.port) as client:
            client.send(build_request("GET", URL))
            with pytest.raises((Closed, ConnectionError)):
                client.read_response("GET")
        wait_until(lambda: log(), "the line")
        assert log()[0]["reason"] == "response_truncated"

    serve({HERE: origin(answer(*pieces), [])}, journey)


def test_an_answer_until_close_ends_with_it(serve):
    def journey(proxy, log):
        with Client(proxy.port) as client:
            reply = client.get(URL)
            assert reply.body == b"x" * BULK
        wait_until(lambda: log(), "the line")
        assert log()[0]["reason"] == "ok"

    serve({HERE: origin(answer(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * BULK), [])}, journey)


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def test_a_tunnel_leads_to_an_origin_from_here(serve):
    def journey(proxy, log):
        with Client(proxy.port) as client:
            client.tunnel(TUNNEL, early=b"early")
            assert client.read_exact(5) == b"early"
            sender = threading.Thread(target=client.send, args=(b"x" * BULK,))
            sender.start()
            assert client.read_exact(BULK) == b"x" * BULK
            sender.join()
            client.half_close()
            assert client.at_eof()
        wait_until(lambda: log(), "the line")
        line = log()[0]
        assert (line["reason"], line["method"], line["peer"]) == ("ok", "CONNECT", None)
        assert line["bytes_up"] == line["bytes_down"] == BULK + 5
        assert "client_rtt_ms" in line and "origin_rtt_ms" not in line
        counted = proxy.worker.page.read()
        assert (counted["tunnels"], counted["dialled"]) == (1, 0)

    serve({TUNNEL: origin(echo)}, journey)


@pytest.mark.parametrize("late", [b"", b"too late"])
def test_a_tunnel_whose_origin_closes_first_is_whole(serve, late):
    """A unix socket hangs up when its peer closes, which TCP does for a reset alone."""
    def journey(proxy, log):
        with Client(proxy.port) as client:
            client.tunnel(TUNNEL)
            assert client.read_exact(5) == b"hello"
            assert client.at_eof()
            if late:
                client.send(late)
            client.half_close()
            wait_until(lambda: log(), "the line")
        assert log()[0]["reason"] == ("origin_reset" if late else "ok")

    serve({TUNNEL: origin(answer(b"hello"))}, journey)


def test_a_client_that_goes_away_ends_the_exchange_at_the_origin_too(serve):
    seen = []

    async def endless(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    def journey(proxy, log):
        with Client(proxy.port) as client:
            client.send(build_request("GET", URL))
            client.read_until(b"\r\n\r\n")
            client.reset()
        wait_until(lambda: log(), "the line")
        assert log()[0]["reason"] == "client_reset"
        wait_until(lambda: len(seen) == 2, "the end at the origin")

    serve({HERE: origin(endless, seen)}, journey)
    assert issubclass(seen[1], ConnectionError)


def refuse(far):
    raise OSError(errno.ECONNREFUSED, "there is nothing to replay")


def time_out(far):
    raise OSError(errno.ETIMEDOUT, "the store does not answer")


def fail(far):
    raise ValueError("a fault in the function")


def hang_up(far):
    far.close()


@pytest.mark.parametrize(("function", "status", "reason"), [
    (refuse, 502, "connection_refused"), (time_out, 504, "connect_timeout"),
    (fail, 502, "connection_failed"), (hang_up, 502, "origin_closed")])
def test_a_function_that_fails_is_a_dial_that_fails(serve, caplog, function, status,
                                                    reason):
    def journey(proxy, log):
        with Client(proxy.port) as client:
            for _ in range(2):
                assert client.get(URL).status == status
        wait_until(lambda: len(log()) == 2, "two lines")
        assert [line["reason"] for line in log()] == [reason] * 2
        assert proxy.worker.page.read()["faults"] == 0

    serve({HERE: function}, journey)
    assert ("a fault in the function" in caplog.text) == (function is fail)


def test_a_function_may_end_the_client_that_it_is_called_for(serve):
    held = []

    def journey(proxy, log):
        held.append(proxy.worker.context)
        with Client(proxy.port) as client:
            client.send(build_request("GET", URL))
            assert client.read_rest() == b""
        wait_until(lambda: log(), "the line")
        assert [line["reason"] for line in log()] == ["stopped"]

    def stop(far):
        close_all(held[0], "stopped")
        far.close()

    serve({HERE: stop}, journey)


def test_other_destinations_are_dialled_as_before(serve):
    def journey(proxy, log):
        with Origin() as real, Client(proxy.port) as client:
            assert client.get(real.url()).status == 200
            assert client.get(URL).body == b"hello"
            assert client.get("http://REPLAYED.test:80/").body == b"hello"
            assert client.get(real.url()).status == 200
            assert len(real.connections) == 1
            wait_until(lambda: len(log()) == 4, "four lines")
            assert [bool(line["peer"]) for line in log()][::3] == [True, True]

    serve({HERE: origin(answer(HELLO), [])}, journey)


@pytest.mark.parametrize("authority", ["replayed.test", "", "a b:80", "u@a.test:80"])
async def test_what_is_no_destination_is_refused(authority):
    async with cutthrough.serve(user=USER, password=PASSWORD) as proxy:
        with pytest.raises(ValueError, match="is not host:port"):
            proxy.worker.set_local_origins({authority: refuse})


BY_ADDRESS = Policy(default="deny", source="test", rules=(
    Rule(action="allow", addresses=("192.0.2.0/24",)),))


def test_a_rule_that_depends_on_the_address_lets_nothing_pass_without_one(serve):
    def journey(proxy, log):
        with Client(proxy.port) as client:
            assert client.get(URL).status == 403
        with Client(proxy.port) as client:
            assert client.connect(TUNNEL).status == 403
        wait_until(lambda: len(log()) == 2, "two lines")
        assert {line["reason"] for line in log()} == {"destination_denied"}

    functions = {HERE: origin(answer(HELLO), []), TUNNEL: origin(echo)}
    serve(functions, journey, policy=BY_ADDRESS)


@pytest.mark.parametrize("authority", ["127.0.0.1:443", "10.1.2.3:443", TUNNEL])
def test_first_bytes_are_judged_and_no_floor(serve, authority):
    """A function at a literal address ended with address_denied, after the 200: the
    floor guards dials, and there is none."""
    def journey(proxy, log):
        for first in b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n":
            with Client(proxy.port) as client:
                client.tunnel(authority)
                client.send(first)
                if first[:1] == b"S":
                    assert client.read_exact(len(first)) == first
                    client.half_close()
                with contextlib.suppress(ConnectionError):
                    client.read_rest()
        wait_until(lambda: len(log()) == 2, "two lines")
        assert [line["reason"] for line in log()] == ["ok", "protocol_denied"]

    by_protocol = Policy(default="deny", source="test", rules=(
        Rule(action="allow", protocol=("ssh",)),))
    serve({authority: origin(echo)}, journey, policy=by_protocol, address_floor="on")


async def open_tunnel(proxy):
    client = await asyncio.to_thread(Client, proxy.port)
    await asyncio.to_thread(client.tunnel, TUNNEL)
    return client


@pytest.mark.parametrize(("rule", "stays"), [
    (Rule(action="deny", hosts=("replayed.test",), cut=True), False),
    (Rule(action="deny", addresses=("0.0.0.0/0", "::/0"), cut=True), True)])
async def test_a_reload_cuts_its_tunnel_by_name_and_not_by_address(rule, stays):
    async with cutthrough.serve(user=USER, password=PASSWORD) as proxy:
        proxy.worker.set_local_origins({TUNNEL: origin(echo)})
        with await open_tunnel(proxy) as client:
            assert tunnels(proxy.worker.context) == []      # and cannot be handed over
            newer = Policy(default="allow", source="test", rules=(rule,))
            proxy.worker.swap(Generation(2, proxy.config, newer, ()))
            assert proxy.worker.context.live == stays
            if stays:
                client.send(b"on")
                assert await asyncio.to_thread(client.read_exact, 2) == b"on"
            await asyncio.to_thread(client.close)
