"""Messages of a WebSocket through a proxy, and an origin that repeats them."""

from websockets.frames import Frame, Opcode

from tests.support.client import build_request
from tests.support.origin import echo

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
