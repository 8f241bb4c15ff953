"""A send that fails discards nothing that has come before it (R84)."""

import contextlib
import fcntl
import signal
import socket
import ssl
import struct
import termios
import threading
from collections.abc import Callable, Iterator

import pytest
from h2.settings import SettingCodes

from tests.support.certificates import localhost
from tests.support.client import Client
from tests.support.http2_listener import BOTH, LOGIN, OKAY
from tests.support.http2_listener import reach as reach
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import (
    ALL,
    certificate,
    config,
    enter,
    origins,
    over_tls,
    send,
)
from tests.support.origin import Connection, Script, answer
from tests.support.parents import parent
from tests.support.preload import build_preload
from tests.support.proxy import Proxy
from tests.support.sockets import unsent
from tests.support.tls_listener import table
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

HUGE = 64 << 20
REFUSAL = b"HTTP/1.1 413 Too Large\r\nContent-Length: 6\r\n\r\nno way"
RECORDS = pytest.mark.parametrize("records", ["own", "libssl"])


def count_unread(conn: Connection) -> int:
    answer = fcntl.ioctl(conn.sock.fileno(), termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def wait_unread(conn: Connection) -> None:
    """Until unread bytes have come: a close of the socket resets it."""
    wait_until(lambda: count_unread(conn) > 1 << 14, "bytes at the origin")


def wait_full(conn: Connection) -> None:
    """Until no more bytes come, so that the proxy waits, mostly within a record."""
    wait_unread(conn)
    counts = [0]

    def stands_still() -> bool:
        counts.append(count_unread(conn))
        return counts[-4:] == counts[-1:] * 4
    wait_until(stands_still, "the proxy waits")


def refuse(conn: Connection) -> None:
    """Answers before the body has come, and resets the connection."""
    conn.note(conn.read_head())
    wait_unread(conn)
    conn.send(REFUSAL)
    conn.reset()


def tunnel(script: Script) -> Script:
    def accept(conn: Connection) -> None:
        assert conn.read_request().method == "CONNECT"
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        script(conn)
    return accept


@contextlib.contextmanager
def sending(client: Client) -> Iterator[None]:
    """The client sends until no more bytes are taken."""
    def run() -> None:
        with contextlib.suppress(OSError):
            for _ in range(HUGE >> 16):
                client.sock.sendall(bytes(1 << 16))
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            client.sock.shutdown(socket.SHUT_RDWR)
        thread.join()


def upload(client: Client) -> int:
    send(client, "POST", "/", f"Content-Length: {HUGE}")
    with sending(client):
        return client.read_response().status


@RECORDS
def test_an_early_refusal_of_an_intercepted_upload_arrives(
        start_policy, make_origin, dial, records) -> None:
    """Every client got 502 here, and 413 over TCP."""
    origin = make_origin(over_tls(refuse))
    proxy = start_policy(ALL, config(f'tls_records = "{records}"\n'))
    for _ in range(3):
        assert upload(enter(proxy, dial(proxy), origin.port)) == 413


@pytest.fixture
def behind_parent(start_policy, make_origin) -> Callable[..., object]:
    def start(script: Script, records: str, policy: str) -> object:
        way = make_origin(over_tls(tunnel(script), certificate("IP:127.0.0.1")))
        return start_policy(policy, config(
            f'tls_records = "{records}"\nroute = "corp"\n' + parent(
                way, "https", resolve="parent", ca=str(origins().own.certificate))))
    return start


@RECORDS
def test_the_end_of_a_tunnel_by_an_https_parent_arrives(
        behind_parent, dial, records) -> None:
    """The last 30 000 bytes were lost in three of five tunnels."""
    def script(conn: Connection) -> None:
        wait_unread(conn)
        conn.send(b"T" * 30_000)
        conn.reset()

    proxy = behind_parent(
        script, records, '[[rules]]\naction = "allow"\nhosts = ["a.example"]\n')
    for _ in range(3):
        client = dial(proxy).tunnel("a.example:4711")
        with sending(client):
            assert client.read_exact(30_000) == b"T" * 30_000


@RECORDS
def test_an_early_refusal_behind_an_https_parent_arrives(
        behind_parent, dial, records) -> None:
    """A bridge has the parent's TLS, and the origin's lies in it."""
    proxy = behind_parent(
        over_tls(refuse), records,
        '[[rules]]\naction = "allow"\nhosts = ["a.example"]\ntls = "intercept"\n')
    for _ in range(3):
        assert upload(enter(proxy, dial(proxy), 4711)) == 413


@RECORDS
@pytest.mark.parametrize("wait", [wait_unread, wait_full])
def test_an_early_refusal_by_http2_arrives(
        start_policy, make_origin, dial, records, wait) -> None:
    """The client waited for response_timeout, and got 504, if the rest of a record met
    the reset: the carrier was never read again."""
    pytest.importorskip("cutthrough.http2.transport")

    def script(conn: Connection) -> None:
        speaker = Speaker(conn.sock)
        speaker.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: HUGE})
        speaker.h2.increment_flow_control_window(HUGE)
        speaker.flush()
        while not speaker.questions[1].fields:
            assert speaker.read()
        wait(conn)
        speaker.answer(1, [(":status", "413")], b"no way")
        conn.reset()

    origin = make_origin(over_tls(script, alpn=("h2",)))
    proxy = start_policy(ALL, config(
        f'tls_records = "{records}"\norigin_http2 = "auto"\n'))
    assert upload(enter(proxy, dial(proxy), origin.port)) == 413


# The next send of a short record fails as when the kernel is short of memory: no event
# follows
NO_BUFFERS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t send(int fd, const void *data, size_t n, int flags) {
    static ssize_t (*real)(int, const void *, size_t, int);
    const char *mark = getenv("FAIL_SEND");
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    if (mark && n > 44 && *(const unsigned char *)data == 0x17 && unlink(mark) == 0) {
        errno = ENOBUFS;
        return -1;
    }
    return real(fd, data, n, flags);
}
"""


@pytest.mark.parametrize("together", [1, 5])
def test_a_connection_of_streams_ends_if_the_send_of_a_batch_fails(
        loop_name, directory, opened, reach, make_origin, tmp_path, together) -> None:
    """Its client waited for twice keepalive_timeout for answers that were lost."""
    pytest.importorskip("cutthrough.http2.transport")
    mark = tmp_path / "mark"
    env = {**build_preload(tmp_path, NO_BUFFERS), "FAIL_SEND": str(mark)}
    proxy = opened.enter_context(Proxy(
        directory("http2"), loop=loop_name, env=env,
        config='keepalive_timeout = "1h"\n' + table(localhost(), **BOTH)))
    go, gone = threading.Event(), threading.Semaphore(0)

    def script(conn: Connection) -> None:
        conn.read_request()
        go.wait(30)
        conn.send(OKAY)
        gone.release()

    origin = make_origin(script)
    peer = reach(proxy)
    for _ in range(together):
        peer.get(origin.url(), LOGIN)
    origin.wait_requests(together)
    other = make_origin(answer(OKAY)).url()
    assert peer.wait(peer.get(other, LOGIN)).status == 200
    proxy.worker.send_signal(signal.SIGSTOP)    # the answers come in a single batch
    wait_until(lambda: proxy.worker.status() == "stopped", "stopped")
    go.set()
    assert all(gone.acquire(timeout=30) for _ in range(together))
    wait_until(lambda: unsent(origin.port) == 0, "delivered")
    mark.touch()
    proxy.worker.send_signal(signal.SIGCONT)
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        peer.wait_end()                         # perhaps without close_notify
    assert not mark.exists()
