"""Messages of a WebSocket through a proxy, and an origin that repeats them."""

import ssl
import threading
from contextlib import contextmanager

from websockets.frames import Frame, Opcode
from websockets.sync.client import connect
from websockets.sync.server import serve

from tests.support.certificates import client_context
from tests.support.client import PASSWORD, USER, build_request
from tests.support.inside import certificate
from tests.support.origin import echo
from tests.support.proxy import Proxy

UPGRADE = (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
           b"Upgrade: WebSocket\r\n\r\n")


def frame(code, data=b"", mask=True):
    return Frame(code, data).serialize(mask=mask)


def parrot(conn):
    """Sends a greeting with its 101, then each frame's bytes as they came."""
    conn.read_request()
    conn.send(UPGRADE + frame(Opcode.TEXT, b"welcome", mask=False))
    echo(conn)


def upgrade(client, origin):
    client.send(build_request("GET", origin.url("/chat"), "Connection: Upgrade",
                              "Upgrade: websocket"))
    client.read_until(b"welcome")


def talk(client, *frames):
    for data in frames:
        client.send(data)
        client.read_until(data)


@contextmanager
def mirror(context):
    """The port of an origin that sends back all messages."""
    def talk(connection):
        for message in connection:
            connection.send(message)

    server = serve(talk, "127.0.0.1", 0, ssl=context)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        thread.join()


def origin_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate())
    return context


def through(proxy: Proxy, port: int, **more):
    return connect(
        f"wss://a.example:{port}/chat?room=1", ssl=client_context(),
        proxy=f"http://{USER}:{PASSWORD}@127.0.0.1:{proxy.port}", **more)
