"""Intercepted connections inside TLS to the proxy."""

import ssl

import pytest

from tests.support.certificates import TlsSocket, client_context
from tests.support.http2_stream import StreamSocket


def carrier(protocol: str) -> ssl.SSLContext:
    context = client_context()
    context.set_alpn_protocols([protocol])
    return context


@pytest.fixture(params=["http/1.1", "h2"])
def reach(request, dial):
    """A client that speaks TLS, and in it HTTP/1.1 or a stream of HTTP/2."""
    def connect(proxy):
        client = dial(proxy)
        client.sock = TlsSocket(client.sock, carrier(request.param))
        if request.param == "h2":
            client.sock = StreamSocket(client.sock)
        return client
    return connect
