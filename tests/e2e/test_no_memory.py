"""Memory that malloc(3) does not give, at a moment of the test's choice."""

import pytest
from cutthrough.session.connection import Connection

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
