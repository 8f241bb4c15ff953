"""The last answers of a connection that ends: the client gets all that the log says."""

import signal
import threading

import pytest
from h2.settings import SettingCodes

from tests.support.http2 import GOAWAY, Peer, frame
from tests.support.http2_listener import LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.http2_listener import serve as serve
from tests.support.origin import Connection, Script, answer

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

SIZE = 1 << 20
PIECE = 16384


class Halves:
    """An origin whose answer goes on when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE + bytes(1000))
        self.go.wait(60)
        conn.send(bytes(SIZE - 1000))


def widen(peer: Peer) -> None:
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
    peer.h2.increment_flow_control_window(1 << 24)
    peer.flush()


def read_slowly(peer: Peer, stream: int) -> int:
    """As a client that credits each piece. The octets that came of a whole answer."""
    got = peer.answers[stream]
    while not got.is_over and peer.read(PIECE):
        peer.h2.increment_flow_control_window(PIECE)
        peer.flush()
    return len(got.body) if got.ended else -1


def stop(proxy, peer: Peer) -> None:
    """Until the connection takes no more streams."""
    proxy.process.send_signal(signal.SIGTERM)
    while len(peer.goaways) < 2:
        assert peer.read()


def test_an_answer_behind_the_clients_goaway(serve, reach, make_origin) -> None:
    script = Halves()
    origin = make_origin(script)
    proxy = serve('linger_timeout = "30s"\n')
    peer = reach(proxy)
    widen(peer)
    stream = peer.get(origin.url("/"), LOGIN)
    peer.wait_body(stream, 1000)
    peer.sock.sendall(frame(GOAWAY, 0, 0, bytes(8)))
    script.go.set()
    assert proxy.wait_log(1)[0]["reason"] == "ok"
    assert read_slowly(peer, stream) == SIZE


def test_an_answer_of_a_connection_that_drains(serve, reach, make_origin) -> None:
    script = Halves()
    origin = make_origin(script)
    proxy = serve('drain_timeout = "30s"\nlinger_timeout = "30s"\n')
    peer = reach(proxy)
    widen(peer)
    stream = peer.get(origin.url("/"), LOGIN)
    peer.wait_body(stream, 1000)
    stop(proxy, peer)
    script.go.set()
    assert proxy.wait_log(1)[0]["reason"] == "ok"
    assert read_slowly(peer, stream) == SIZE
    peer.sock.close()
    assert proxy.wait_exit() == 0


def short(n: int) -> Script:
    return answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + bytes(n))


def test_a_short_answer_whose_window_opens_late(serve, reach, make_origin) -> None:
    origin = make_origin(short(1500))
    proxy = serve('drain_timeout = "30s"\n')
    peer = reach(proxy)
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    peer.flush()
    stream = peer.get(origin.url("/"), LOGIN)
    assert peer.wait_head(stream).status == 200
    assert proxy.wait_log(1)[0]["reason"] == "ok"
    stop(proxy, peer)
    peer.h2.increment_flow_control_window(65535, stream)
    peer.flush()
    assert len(peer.wait(stream).body) == 1500
    assert peer.answers[stream].ended
    assert proxy.wait_exit() == 0
