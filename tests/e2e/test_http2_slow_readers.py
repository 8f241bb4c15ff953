"""Clients of HTTP/2 that take what comes slowly, but take it (R30)."""

import socket
import time

import pytest

from tests.support.certificates import client_context
from tests.support.http2 import Peer
from tests.support.http2_listener import LOGIN
from tests.support.http2_listener import serve as serve
from tests.support.origin import Connection, answer
from tests.support.wait import wait_until

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

BODY = bytes(range(256)) * 16384  # 4 MiB, of which the kernel takes 2.5 at once
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
WIDE = 8 << 20


@pytest.fixture
def reach(opened):
    """A client whose windows are open, and whose socket has little room."""
    def connect(proxy) -> Peer:
        context = client_context()
        context.set_alpn_protocols(["h2"])
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", proxy.port))
        peer = Peer(opened.enter_context(
            context.wrap_socket(sock, server_hostname="localhost")))
        peer.h2.update_settings({4: WIDE})      # INITIAL_WINDOW_SIZE
        peer.h2.increment_flow_control_window(WIDE)
        peer.flush()
        return peer
    return connect


def pour(conn: Connection) -> None:
    conn.send(BODY)
    conn.origin.closing.wait()


@pytest.mark.parametrize("rate", ["240", "0"])
@pytest.mark.parametrize("kind", ["response", "tunnel"])
def test_who_takes_slowly_what_the_kernel_holds_is_not_silent(
        serve, reach, make_origin, rate, kind) -> None:
    """The stream's own octets wait behind megabytes of its connection's: it was reset
    in the middle, while its client took some of those all the time."""
    proxy = serve(f'idle_timeout = "500ms"\nmin_rate = "{rate}"\n')
    origin = make_origin(answer(HEAD + BODY) if kind == "response" else pour)
    peer = reach(proxy)
    stream = (peer.get(origin.url(), LOGIN) if kind == "response"
              else peer.connect(origin.authority, LOGIN))
    got = peer.answers[stream]
    while len(got.body) < len(BODY) and got.reset is None and peer.read(4096):
        time.sleep(0.003)  # the pace is under test: some 1 MiB a second
    assert bytes(got.body) == BODY


def test_who_takes_nothing_of_its_connection_is_cut(serve, reach, make_origin) -> None:
    proxy = serve('idle_timeout = "300ms"\n')
    peer = reach(proxy)
    peer.get(make_origin(answer(HEAD + BODY)).url(), LOGIN)
    wait_until(lambda: proxy.log(reason="write_timeout"), "the stream's end")
