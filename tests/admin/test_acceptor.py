"""Connections to the admin listener, at its end."""

import asyncio
import contextlib
import socket

from cutthrough.admin.acceptor import BATCH, AdminAcceptor


class Reader(asyncio.Protocol):
    def __init__(self, read: list[bytes]) -> None:
        self.read = read

    def data_received(self, data: bytes) -> None:
        self.read.append(data)


async def test_who_has_connected_at_the_end_is_served():
    """In an upgrade the new program had the address already, and those that waited for
    the old one got a reset."""
    read: list[bytes] = []
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server(("127.0.0.1", 0), backlog=2 * BATCH))
        acceptor = AdminAcceptor(listener, lambda: Reader(read), lambda: None)
        for _ in range(BATCH + 1):
            client = stack.enter_context(
                socket.create_connection(listener.getsockname()))
            client.sendall(b"GET")
        acceptor.close()
        listener.close()
        await acceptor.settle()
        assert read == [b"GET"] * (BATCH + 1)
