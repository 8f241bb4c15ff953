"""Memory that malloc(3) does not give, at a moment of the test's choice."""

import threading

import pytest
from cutthrough.session.connection import Connection

from tests.support.origin import echo
from tests.support.preload import build_preload

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
        errno = ENOMEM;
        return -1;
    }
    return real(in, a, out, b, n, flags);
}
"""


def test_bulk_for_which_a_pipe_has_no_memory_is_copied(
        start_proxy, directory, make_origin, dial):
    """The tunnel was taken for broken, and its clients waited for a minute."""
    folder = directory("library")
    proxy = start_proxy(env=build_preload(folder, NO_PAGES % (folder / "called")))
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    data = bytes(8 << 20)
    sender = threading.Thread(target=tunnel.send, args=(data,))
    sender.start()
    assert tunnel.read_exact(len(data)) == data
    sender.join()
    assert (folder / "called").exists()
