"""A client of HTTP/2 inside an intercepted connection."""

import pytest

from tests.support.certificates import client_context
from tests.support.http2 import Peer
from tests.support.inside import enter


@pytest.fixture
def reach(dial):
    """A client of HTTP/2 behind CONNECT and handshake."""
    def connect(proxy, port: int, *alpn: str, host: str = "a.example") -> Peer:
        context = client_context()
        context.set_alpn_protocols(alpn or ("h2", "http/1.1"))
        client = enter(proxy, dial(proxy), port, host, context=context)
        assert client.sock.tls.selected_alpn_protocol() == "h2"
        peer = Peer(client.sock)
        peer.flush()
        return peer
    return connect
