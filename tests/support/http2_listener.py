"""A proxy whose listener takes HTTP/1.1 and HTTP/2, and clients of it."""

import socket

import pytest

from tests.support.certificates import client_context, localhost
from tests.support.client import CREDENTIALS
from tests.support.http2 import Peer
from tests.support.proxy import Proxy
from tests.support.tls_listener import table

LOGIN = ("proxy-authorization", CREDENTIALS)
OKAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
BOTH = {"protocols": '["http", "http2"]'}


@pytest.fixture
def serve(loop_name, directory, opened):
    def start(config: str = "", *flags: str, **keys: str) -> Proxy:
        return opened.enter_context(Proxy(
            directory("http2"), *flags, loop=loop_name,
            config=config + table(localhost(), **BOTH, **keys)))
    return start


@pytest.fixture
def reach(opened):
    def connect(proxy: Proxy, alpn=("h2", "http/1.1"), **more) -> Peer:
        context = client_context()
        context.set_alpn_protocols(list(alpn))
        sock = socket.create_connection(("127.0.0.1", proxy.port), 10)
        wrapped = opened.enter_context(
            context.wrap_socket(sock, server_hostname="localhost"))
        assert wrapped.selected_alpn_protocol() == alpn[0]
        peer = Peer(wrapped, **more)
        peer.flush()
        return peer
    return connect


@pytest.fixture(scope="module")
def shared(loop_name, directory):
    with Proxy(directory("http2"), loop=loop_name,
               config=table(localhost(), **BOTH)) as proxy:
        yield proxy
