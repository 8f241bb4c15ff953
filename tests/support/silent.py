"""An address that does not answer: a listening socket with a full queue.

Linux drops further SYNs silently, as a lossy network does.
"""

import contextlib
import socket
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def silent(host: str, port: int = 0) -> Iterator[socket.socket]:
    """A listener that answers no SYN until a connection in its queue is accepted."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server((host, port), family=family, backlog=0)
        )
        address = listener.getsockname()
        for _ in range(64):
            sock = stack.enter_context(socket.socket(family))
            sock.settimeout(0.2)
            try:
                sock.connect(address)
            except TimeoutError:
                sock.close()        # else its next SYN would take a free place
                yield listener
                return
        pytest.skip("this kernel answers although the queue is full")


@contextlib.contextmanager
def unanswering():
    """A listening socket with a full queue: Linux drops further SYNs in silence."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server(("127.0.0.1", 0), backlog=0)
        )
        address = listener.getsockname()
        for _ in range(64):
            sock = stack.enter_context(socket.socket())
            sock.settimeout(0.5)
            try:
                sock.connect(address)
            except TimeoutError:
                yield f"127.0.0.1:{address[1]}"
                return
        pytest.skip("this kernel answers although the queue is full")
