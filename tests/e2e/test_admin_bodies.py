"""The memory that bodies over the admin listener take, and for how long (R31)."""

import contextlib
import socket

import psutil
import pytest

from cutthrough.admin.bodies import MOST_HELD
from tests.support.admin import AUTHORIZED, Operator, administered
from tests.support.proxy import Proxy
from tests.support.recordings import fill, made
from tests.support.wait import PATIENCE, wait_until

pytestmark = pytest.mark.any_loop

MIB = 1 << 20
EACH = 60 * MIB


@pytest.fixture
def folder(directory):
    return directory("sessions")


@pytest.fixture
def start(opened, directory, loop_name, folder):
    """A proxy with recordings, and an operator of it."""
    def run() -> tuple[Proxy, Operator]:
        return administered(opened, directory("proxy"), loop_name,
                            f'recording_directory = "{folder}"\n')
    return run


def head_of(method: str, path: str, *more: str) -> bytes:
    token = f"Authorization: {AUTHORIZED['Authorization']}"
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", token, *more,
                        "", "")).encode()


def connect(opened, operator: Operator) -> socket.socket:
    sock = socket.socket()
    opened.enter_context(contextlib.closing(sock))
    sock.settimeout(PATIENCE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.connect(("127.0.0.1", operator.where))
    return sock


def test_bodies_of_all_requests_have_one_bound(start, opened):
    """Each connection had its own 64 MiB of the supervisor."""
    proxy, operator = start()
    uploads = []
    for _ in range(MOST_HELD // EACH):
        sock = connect(opened, operator)
        sock.sendall(head_of("POST", "/sessions/a/import",
                             f"Content-Length: {EACH + 1}") + b"x" * EACH)
        uploads.append(sock)

    sock = connect(opened, operator)
    with contextlib.suppress(OSError):           # it is answered before the end
        sock.sendall(head_of("POST", "/sessions/b/import",
                             f"Content-Length: {EACH}") + b"x" * EACH)
    assert sock.recv(12) == b"HTTP/1.1 503"
    assert operator.ask("GET", "/sessions", **AUTHORIZED)[0] == 200
    for sock in uploads:
        sock.sendall(b"x")                       # whole: it is answered
        assert sock.recv(12) == b"HTTP/1.1 400"
    sock = connect(opened, operator)
    sock.sendall(head_of("POST", "/sessions/b/import",
                         f"Content-Length: {EACH}") + b"x" * EACH)
    assert sock.recv(12) == b"HTTP/1.1 400"
    assert "Traceback" not in proxy.stderr()


def test_who_reads_nothing_of_a_long_answer_is_cut_off(start, opened, folder):
    """The supervisor kept it as long as the connection was open."""
    fill(folder, *(made(9, f"/{n}", body=b"x" * MIB) for n in range(6)))
    proxy, operator = start()
    sock = connect(opened, operator)
    sock.sendall(head_of("GET", "/sessions/default/export"))
    assert sock.recv(12) == b"HTTP/1.1 200"
    supervisor, own = psutil.Process(proxy.process.pid), sock.getsockname()

    def is_held() -> bool:
        return any(there.raddr == own for there in supervisor.net_connections("tcp"))

    assert is_held()
    wait_until(lambda: not is_held(), "the end of the connection")
    assert "Traceback" not in proxy.stderr()


def test_a_long_answer_is_whole(start, folder):
    fill(folder, *(made(9, f"/{n}", body=b"x" * MIB) for n in range(6)))
    _, operator = start()
    connection = operator.connection()
    with contextlib.closing(connection):
        for _ in range(2):                       # on one connection
            connection.request("GET", "/sessions/default/export", headers=AUTHORIZED)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.getheader("X-Frame-Options") == "DENY"
            assert len(answer.read()) == int(answer.getheader("Content-Length")) > MIB
