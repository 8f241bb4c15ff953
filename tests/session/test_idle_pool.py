"""Which requests may share an idle connection: those of one hop and one destination."""

import itertools
import socket

import pytest

from cutthrough.net.poller import Poller
from cutthrough.session.idle_pool import IdlePool
from tests.support.compiled import build_module

PROBE = """
# cython: language_level=3
from cutthrough.net.connector cimport Stream
from cutthrough.net.poller cimport Poller
from cutthrough.net.sysio cimport CAN_WRITE
from cutthrough.policy.hop cimport Hop
from cutthrough.session.idle_pool cimport IdlePool

cdef class Probe:
    cdef IdlePool idle_pool
    cdef Poller poller

    def __init__(self, IdlePool idle_pool, Poller poller):
        self.idle_pool, self.poller = idle_pool, poller

    def park(self, int fd, fields, bytes destination):
        cdef Hop hop
        hop.kind, hop.tls, hop.parent, hop.source = fields
        cdef Stream stream = Stream.__new__(Stream)
        stream.sock.fd, stream.sock.ready = fd, CAN_WRITE
        self.poller.add(stream)
        self.idle_pool.park(stream, &hop, destination)

    def take(self, fields, bytes destination):
        "The descriptor, closed; or None."
        cdef Hop hop
        hop.kind, hop.tls, hop.parent, hop.source = fields
        cdef Stream stream = self.idle_pool.take(&hop, destination)
        if stream is None:
            return None
        fd = stream.sock.fd
        stream.close()
        return fd

    def keys(self):
        return list(self.idle_pool.shelves)
"""

DESTINATION = b"origin.test\0\x50"
# kind, TLS identity, parent, source address
HOPS = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1),
        (1, 0, 2, 0)]


@pytest.fixture(scope="module")
def probe_class(tmp_path_factory):
    return build_module(tmp_path_factory.mktemp("probe"), "pool_probe", PROBE).Probe


@pytest.fixture
def probe(probe_class):
    poller, idle_pool = Poller(), IdlePool(100, 10, 60)
    yield probe_class(idle_pool, poller)
    idle_pool.clear()
    poller.detach()
    assert poller.timers == 0


@pytest.fixture
def near_end():
    """A clean socket's descriptor, which the pool closes."""
    near, far = socket.socketpair()
    near.setblocking(False)
    with far:
        yield near.detach()


@pytest.mark.parametrize(("parked", "asked"), [*itertools.permutations(HOPS, 2)])
def test_a_connection_is_never_another_hops(probe, near_end, parked, asked):
    probe.park(near_end, parked, DESTINATION)
    assert probe.take(asked, DESTINATION) is None
    assert probe.take(parked, b"other.test\0\x50") is None
    assert probe.take(parked, DESTINATION) == near_end


def test_the_key_of_a_direct_connection_is_its_destination_itself(probe, near_end):
    """No object is made for it, for a request or for a connection that waits."""
    probe.park(near_end, HOPS[0], DESTINATION)
    assert probe.keys()[0] is DESTINATION
