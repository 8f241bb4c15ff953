"""Memory that malloc(3) does not give, at a moment of the test's choice."""

import contextlib
import ssl
import threading

import pytest
from cutthrough.session.connection import Connection

from tests.support.certificates import localhost, on_aws_lc
from tests.support.client import build_request
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.inside import ALL, ask, config, enter, okay, over_tls, send
from tests.support.origin import OK, answer_and_close, echo
from tests.support.policies import LOCAL
from tests.support.preload import build_preload
from tests.support.proxy import Proxy
from tests.support.stream import Closed
from tests.support.tls_listener import table
from tests.support.wait import wait_until

# While the file exists, what meets the condition gets no memory
SCARCE = """
#define _GNU_SOURCE
#include <stddef.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);

void *malloc(size_t n) {
    return %s && access("%s", F_OK) == 0 ? NULL : __libc_malloc(n);
}
"""


@pytest.fixture
def start(start_proxy, directory):
    def make(condition: str):
        folder = directory("library")
        proxy = start_proxy(env=build_preload(
            folder, SCARCE % (condition, folder / "scarce")))
        return proxy, folder / "scarce"
    return make


def test_a_client_that_finds_no_memory_is_closed(start, make_origin, dial):
    """Its descriptor had no owner yet, and it waited for ever."""
    size = Connection.__basicsize__
    assert size > 512, "less comes from Python's own arenas"
    proxy, scarce = start(f"n == {size}")
    origin, worker = make_origin(), proxy.worker.pid
    scarce.touch()
    clients = [dial(proxy) for _ in range(3)]
    assert all(client.at_eof() for client in clients)
    scarce.unlink()
    assert dial(proxy).get(origin.url()).status == 200
    assert proxy.worker.pid == worker
    assert "MemoryError" in proxy.stderr()


NO_PAGES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t splice(int in, off64_t *a, int out, off64_t *b, size_t n, unsigned flags) {
    ssize_t (*real)(int, off64_t *, int, off64_t *, size_t, unsigned) =
        dlsym(RTLD_NEXT, "splice");
    struct stat source;
    if (fstat(in, &source) == 0 && S_ISSOCK(source.st_mode)) {
        close(open("%s", O_CREAT | O_WRONLY, 0600));
        errno = %s;
        return -1;
    }
    return real(in, a, out, b, n, flags);
}
"""


@pytest.mark.parametrize("name", ["ENOMEM", "EPERM", "ENOSYS"])
def test_bulk_for_which_splice_is_refused_is_copied(
        start_proxy, directory, make_origin, dial, name):
    """The tunnel was taken for broken: without memory for a pipe its clients waited for
    a minute, and in a sandbox without splice(2) all bulk ended with a reset."""
    folder = directory("library")
    proxy = start_proxy(env=build_preload(folder, NO_PAGES % (folder / "called", name)))
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    data = bytes(8 << 20)
    sender = threading.Thread(target=tunnel.send, args=(data,))
    sender.start()
    assert tunnel.read_exact(len(data)) == data
    sender.join()
    assert (folder / "called").exists()


# The line gets its octets: with the 33 of bytes an odd number, as of no struct
REASON = "allowed " * 8
DECIDE = f"""
import cutthrough

async def decide(request):
    return cutthrough.Decision(True, {REASON!r})
"""


def test_a_line_of_the_log_without_memory_is_dropped(
        start_policy, directory, make_origin, dial):
    """The line was written at NULL, and the worker died."""
    folder, gate = directory("library"), threading.Event()
    scarce = folder / "scarce"

    def wait(conn):
        conn.read_request()
        assert gate.wait(60)
        conn.send(OK)

    proxy = start_policy(
        LOCAL, hook=DECIDE,
        env={"PYTHONMALLOC": "malloc", **build_preload(
            folder, SCARCE % (f"n == {len(REASON) + 33}", scarce))})
    origin, worker = make_origin(wait), proxy.worker.pid
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    origin.wait_requests(1)
    scarce.touch()
    gate.set()
    assert client.read_response().status == 200
    wait_until(lambda: "1 lines dropped (1 in total): out of memory" in proxy.stderr(),
               proxy.stderr)
    scarce.unlink()
    assert client.get(origin.url()).status == 200
    proxy.wait_log(1, host="127.0.0.1")
    assert proxy.worker.pid == worker


# While the file exists, nothing is encrypted for an origin: by libssl, or for the first
# time on its connection by our own records
NO_SEALS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

static int is_scarce(void) { return access("%s", F_OK) == 0; }

static void *real_of(const char *name) {
    return dlsym(dlopen("libssl.so.3", RTLD_LAZY), name);
}

int SSL_write(void *ssl, const void *data, int n) {
    int (*real)(void *, const void *, int) = real_of("SSL_write");
    int (*is_server)(const void *) = real_of("SSL_is_server");
    void (*begin)(void) = real_of("ERR_new");
    void (*set)(int, int, const char *, ...) = real_of("ERR_set_error");
    if (is_server(ssl) || !is_scarce())
        return real(ssl, data, n);
    begin();
    set(20, 3 << 18 | 256, NULL);               /* SSL: ERR_R_MALLOC_FAILURE */
    return -1;
}

int EVP_CipherInit_ex(void *context, const void *cipher, void *engine,
                      const void *key, const void *nonce, int seals) {
    int (*real)(void *, const void *, void *, const void *, const void *, int) =
        real_of("EVP_CipherInit_ex");
    if (key != NULL && seals == 1 && is_scarce())
        return 0;
    return real(context, cipher, engine, key, nonce, seals);
}
"""


# The preload takes its functions from OpenSSL's own library, and AWS-LC has no ERR_new
@pytest.mark.skipif(on_aws_lc(), reason="the preload fails functions of OpenSSL")
@pytest.mark.parametrize("records", ["own", "libssl"])
def test_a_request_that_cannot_be_encrypted_is_not_waited_for(
        start_policy, directory, make_origin, dial, records):
    """The origin had not got it, and its answer was awaited until response_timeout."""
    folder = directory("library")
    scarce = folder / "scarce"
    proxy = start_policy(ALL, config(f'tls_records = "{records}"\n'),
                         env=build_preload(folder, NO_SEALS % scarce))
    client = enter(proxy, dial(proxy), make_origin(over_tls(okay)).port)
    scarce.touch()
    send(client, "GET", "/")
    record = proxy.wait_reason("overloaded", method="GET")
    assert record["total_ms"] < 5000
    scarce.unlink()


# While the file exists, the kernel has no memory for a ClientHello
NO_HELLO = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t send(int fd, const void *data, size_t n, int flags) {
    ssize_t (*real)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
    const unsigned char *record = data;
    if (n > 5 && record[0] == 22 && record[5] == 1 && access("%s", F_OK) == 0) {
        errno = ENOBUFS;
        return -1;
    }
    return real(fd, data, n, flags);
}
"""


def test_a_handshake_without_memory_is_not_waited_for(
        start_policy, directory, make_origin, dial):
    """The kernel's ENOBUFS is of one send: no event followed, and connect_timeout
    ended it."""
    folder = directory("library")
    scarce = folder / "scarce"
    proxy = start_policy(ALL, config(), env=build_preload(folder, NO_HELLO % scarce))
    origin = make_origin(over_tls(okay))
    scarce.touch()
    with contextlib.suppress(ssl.SSLError, ConnectionError, Closed):
        enter(proxy, dial(proxy), origin.port)
    record = proxy.wait_log(1, method="CONNECT")[0]
    assert record["reason"] == "origin_tls" and record["total_ms"] < 5000
    scarce.unlink()
    assert ask(enter(proxy, dial(proxy), origin.port)).status == 200


# While the file exists, libnghttp2 has no memory for RST_STREAM
NO_RESETS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

int nghttp2_submit_rst_stream(void *session, uint8_t flags, int32_t id, uint32_t code) {
    int (*real)(void *, uint8_t, int32_t, uint32_t) =
        dlsym(dlopen("libnghttp2.so.14", RTLD_LAZY), "nghttp2_submit_rst_stream");
    return access("%s", F_OK) == 0 ? -901 : real(session, flags, id, code);
}
"""


def test_a_reset_without_memory_ends_the_connection(
        directory, loop_name, opened, make_origin, reach):
    """The stream had ended here, and its client waited for ever."""
    folder = directory("library")
    scarce = folder / "scarce"
    proxy = opened.enter_context(Proxy(
        directory("http2"), loop=loop_name, config=table(localhost(), **BOTH),
        env=build_preload(folder, NO_RESETS % scarce)))
    origin = make_origin(answer_and_close(
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"))
    peer = reach(proxy)
    scarce.touch()
    stream = peer.get(origin.url(), LOGIN)
    with contextlib.suppress(ssl.SSLError):     # an end without close_notify
        peer.wait_end()
    assert not peer.answers[stream].ended
    scarce.unlink()
    assert proxy.wait_reason("response_truncated")
