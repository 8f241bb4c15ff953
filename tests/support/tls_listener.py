"""A proxy with a TLS listener, its table, and clients of it."""

import socket
import ssl

import pytest

from tests.support.certificates import Made, TlsSocket, localhost
from tests.support.client import Client
from tests.support.proxy import Proxy
from tests.support.stream import Stream


def table(made: Made, **more: str) -> str:
    """A listener with this certificate, as TOML."""
    keys = {"certificates": f'["{made.certificate}"]',
            "certificate_keys": f'["{made.key}"]', **more}
    return '[[listeners]]\naddress = "127.0.0.1:0"\n' + "".join(
        f"{key} = {value}\n" for key, value in keys.items())


@pytest.fixture
def serve(loop_name, directory, opened):
    def start(listener: str = "", config: str = "", flags=(), **env: str) -> Proxy:
        listener = listener or table(localhost())
        return opened.enter_context(
            Proxy(directory("tls"), *flags, loop=loop_name, env=env,
                  config=config + listener))
    return start


@pytest.fixture
def reach(opened):
    """A client over TLS; `session`: to resume."""
    def connect(proxy: Proxy, context: ssl.SSLContext | None = None,
                session: ssl.SSLSession | None = None) -> Client:
        client = Client.__new__(Client)
        sock = opened.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        Stream.__init__(client, sock)
        client.sock = TlsSocket(sock, context, session=session)
        opened.callback(client.close)
        return client
    return connect


@pytest.fixture
def call(opened):
    """A raw connection."""
    def connect(proxy: Proxy) -> socket.socket:
        sock = opened.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        sock.settimeout(30)
        return sock
    return connect
