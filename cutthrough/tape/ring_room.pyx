# cython: language_level=3
"""Room in the worker's ring: how much it has, and what of it is for exchanges that are recorded
(session.transfer.recording_room).
"""

from libc.stdint cimport uint64_t
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.recording_room cimport Room
from cutthrough.tape.observer cimport loss_of
from cutthrough.tape.ring cimport DATA_BYTES, LEAST_BYTES, Ring, in_flight, settle

# Bytes that wait in the worker's memory, and are more than a writer that goes on leaves there
MOST_HELD = 64 << 20

cdef enum:
    # The bytes of all rings together, if each has more than the least
    SHARED_BYTES = 134217728


def size_for(workers):
    """The bytes for records that a ring should have if so many workers have one each."""
    cdef uint64_t size = DATA_BYTES
    while size > LEAST_BYTES and size * <uint64_t>workers > SHARED_BYTES:
        size //= 2
    return size


cdef class RingRoom(Room):
    cdef Ring ring

    def __init__(self, Ring ring, context):
        self.ring = ring
        self.attach(context)

    def configure(self, uint64_t most_body):
        """Bytes that are recorded of each body."""
        cdef uint64_t most = max(MOST_HELD, 4 * most_body), size = self.ring.producer.size
        self.ring.hold(most)
        self.bound(size * 3 // 8, size * 3 // 4, size + most, most_body)

    cdef uint64_t fill(self) noexcept:
        settle(&self.ring.producer)
        self.is_holding = self.ring.producer.first != NULL
        self.is_failing = self.ring.producer.header.fails != 0
        return in_flight(&self.ring.producer)

    cdef int lost(self, Client client) noexcept:
        return loss_of(client)
