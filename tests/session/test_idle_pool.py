"""Requests may share an idle connection if they have one hop and one destination."""

import itertools
import os
import socket

import pytest

from cutthrough.net.poller import Poller
from cutthrough.session.model.idle_pool import IdlePool
from tests.support.compiled import build_module

PROBE = """
# cython: language_level=3
from cutthrough.net.connector cimport Upstream
from cutthrough.net.poller cimport Poller
from cutthrough.net.sysio cimport CAN_WRITE
from cutthrough.policy.hop cimport Hop
from cutthrough.session.model.idle_pool cimport IdlePool, make_key

cdef class Probe:
    cdef IdlePool idle_pool
    cdef Poller poller

    def __init__(self, IdlePool idle_pool, Poller poller):
        self.idle_pool, self.poller = idle_pool, poller

    def park(self, int fd, fields, bytes destination, bint instead=False):
        cdef Hop hop
        hop.kind, hop.tls, hop.parent, hop.source = fields
        cdef Upstream upstream = Upstream.__new__(Upstream)
        upstream.sock.fd, upstream.sock.ready = fd, CAN_WRITE
        self.poller.add(upstream)
        self.idle_pool.park(upstream, make_key(&hop, destination), instead)

    def take(self, fields, bytes destination):
        "The descriptor, closed; or None."
        cdef Hop hop
        hop.kind, hop.tls, hop.parent, hop.source = fields
        cdef Upstream upstream = self.idle_pool.take(make_key(&hop, destination))
        if upstream is None:
            return None
        fd = upstream.sock.fd
        upstream.close()
        return fd

    def keys(self):
        return list(self.idle_pool.shelves)

    def give_up(self, int most, fields=None, bytes destination=None):
        cdef Hop hop
        if fields is None:
            return self.idle_pool.give_up(most)
        hop.kind, hop.tls, hop.parent, hop.source = fields
        return self.idle_pool.give_up_of(make_key(&hop, destination), most)

    def set_most(self, int most):
        self.idle_pool.configure(most, 2, 60)

    @property
    def counts(self):
        return self.idle_pool.idle, self.idle_pool.discarded
"""

LAST_FD = 900
DESTINATION = b"origin.test\0\x50"
# kind, TLS identity, parent, source address
HOPS = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1),
        (1, 0, 2, 0)]


@pytest.fixture(scope="module")
def probe_class(tmp_path_factory):
    return build_module(tmp_path_factory.mktemp("probe"), "pool_probe", PROBE).Probe


@pytest.fixture
def probe(probe_class):
    poller, idle_pool = Poller(), IdlePool(3, 2, 60, last_fd=LAST_FD)
    yield probe_class(idle_pool, poller)
    idle_pool.clear()
    poller.detach()
    assert poller.timers == 0


@pytest.fixture
def make_end():
    """Returns a clean socket's descriptor, which the pool closes."""
    far_ends = []

    def make():
        near, far = socket.socketpair()
        near.setblocking(False)
        far_ends.append(far)
        return near.detach()

    yield make
    for far in far_ends:
        far.close()


@pytest.fixture
def near_end(make_end):
    return make_end()


def test_a_connection_may_take_the_place_of_another_of_its_key(probe, make_end):
    ends = [make_end() for _ in range(4)]
    counts = []
    for end, instead in zip(ends, (True, False, True, True), strict=True):
        probe.park(end, HOPS[0], DESTINATION, instead)
        counts.append(probe.counts)
    assert counts == [(1, 0), (2, 0), (2, 1), (2, 2)]
    probe.park(make_end(), HOPS[1], DESTINATION, True)
    assert probe.counts == (3, 2)
    assert probe.take(HOPS[0], DESTINATION) == ends[3]
    assert probe.take(HOPS[0], DESTINATION) == ends[0]


@pytest.mark.parametrize(("parked", "wanted"), [*itertools.permutations(HOPS, 2)])
def test_a_connection_is_never_another_hops(probe, near_end, parked, wanted):
    probe.park(near_end, parked, DESTINATION)
    assert probe.take(wanted, DESTINATION) is None
    assert probe.take(parked, b"other.test\0\x50") is None
    assert probe.take(parked, DESTINATION) == near_end


def test_the_key_of_a_direct_connection_is_its_destination_itself(probe, near_end):
    """No object is made for it, for a request or for a connection that waits."""
    probe.park(near_end, HOPS[0], DESTINATION)
    assert probe.keys()[0] is DESTINATION


def name(i):
    return b"%d.test\0\x50" % i


def test_a_full_pool_gives_the_place_of_the_connection_that_has_waited_longest(
    probe, make_end
):
    """R31: if hosts got one request each, no other connection was kept until theirs had
    timed out: a request through an interception cost 130 us in place of 17."""
    ends = [make_end() for _ in range(5)]
    for i in range(3):
        probe.park(ends[i], HOPS[0], name(i))
    probe.park(ends[3], HOPS[0], name(3))
    assert probe.counts == (3, 1)
    assert probe.take(HOPS[0], name(0)) is None
    # Neither the eldest nor the youngest
    assert probe.take(HOPS[0], name(2)) == ends[2]
    probe.park(ends[4], HOPS[0], name(1))
    assert probe.counts == (3, 1)
    assert [probe.take(HOPS[0], name(i)) for i in (1, 1, 1, 3)] == [
        ends[4], ends[1], None, ends[3]]
    assert probe.counts == (0, 1)


def test_those_that_have_waited_longest_are_given_up(probe, make_end):
    ends = [make_end() for _ in range(3)]
    for i, end in enumerate(ends):
        probe.park(end, HOPS[0], name(i))
    assert probe.give_up(2) == 2
    assert [probe.take(HOPS[0], name(i)) for i in range(3)] == [None, None, ends[2]]
    assert probe.give_up(1) == 0


def test_those_of_a_key_are_given_up(probe, make_end):
    ends = [make_end() for _ in range(3)]
    for i, end in enumerate(ends):
        probe.park(end, HOPS[i == 2], DESTINATION)
    assert probe.give_up(5, HOPS[0], b"other.test\0\x50") == 0
    assert probe.give_up(5, HOPS[0], DESTINATION) == 2
    assert probe.take(HOPS[1], DESTINATION) == ends[2]


def test_a_connection_with_a_high_descriptor_is_not_kept(probe, make_end):
    """Else others find none: clients, a resolver, a log that is opened anew."""
    for number, idle in [(LAST_FD + 1, 0), (LAST_FD, 1)]:
        end = make_end()
        os.dup2(end, number)
        os.close(end)
        probe.park(number, HOPS[0], DESTINATION)
        assert probe.counts[0] == idle


def test_a_shelf_that_is_emptied_for_its_own_connection_is_kept(probe, make_end):
    """More empty shelves than are kept: all of them are swept away with the eldest."""
    for i in range(300):
        probe.park(make_end(), HOPS[0], name(i))
        probe.take(HOPS[0], name(i))
        probe.set_most(1)
        probe.park(make_end(), HOPS[0], name(i))
    end = make_end()
    probe.park(end, HOPS[0], name(299))
    assert probe.take(HOPS[0], name(299)) == end
    assert probe.counts[0] == 0


def test_fewer_places_after_a_reload(probe, make_end):
    for i in range(3):
        probe.park(make_end(), HOPS[0], name(i))
    probe.set_most(1)
    end = make_end()
    probe.park(end, HOPS[0], name(4))
    assert probe.counts == (1, 3)
    probe.set_most(0)
    probe.park(make_end(), HOPS[0], name(5))
    assert probe.counts == (1, 4)
    assert probe.take(HOPS[0], name(4)) == end
