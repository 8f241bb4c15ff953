"""Servers and a relay for the bench's instruments, and marks for their programs."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from bench.origin import build_tool

# The instruments in C are built when they are first used
needs_compiler = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("make")), reason="no C compiler"
)
# The origin of each scenario; in /usr/sbin, if root's PATH is not the user's
needs_nginx = pytest.mark.skipif(
    not shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
    reason="nginx is not installed",
)

Conversation = Callable[[socket.socket], None]
BODY = b"0123456789"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"


@contextlib.contextmanager
def serving(conversation: Conversation) -> Iterator[int]:
    """A port; `conversation` leads each connection to it, in a thread each."""
    threads: list[threading.Thread] = []

    def lead(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            peer.settimeout(20)
            conversation(peer)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threads.append(threading.Thread(target=lead, args=(peer,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        acceptor = threading.Thread(target=accept, args=(listener,))
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            acceptor.join()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def relay(mode: str, target: int) -> Iterator[int]:
    command = [build_tool("relay"), "0", str(target), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline().split()[1])
        finally:
            process.kill()


def load(port: int, mode: str, *options: str) -> tuple[int, dict[str, str]]:
    """Run the load generator; return its exit status and its output."""
    command = [build_tool("load"), mode, "--port", str(port), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )
    line = done.stdout.splitlines()[-1]
    return done.returncode, dict(pair.split("=", 1) for pair in line.split())
