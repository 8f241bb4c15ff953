# cython: language_level=3
"""Doors to cutthrough.session: the table of moves, and places without connections."""

from libc.stdint cimport int64_t, uint32_t
from cutthrough.net.address cimport Address, parse_address
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.places cimport Places
from cutthrough.session.model.state cimport may_follow
from cutthrough.session.model.states import TABLE

NUMBERS = {row.name: number for number, row in enumerate(TABLE)}


def is_allowed(state, new):
    """May `new` follow `state`? Both by name."""
    return bool(may_follow(NUMBERS[state], NUMBERS[new]))


def call_without_session(str method):
    """Calls a session's method at a client that is none."""
    cdef Client client = Client.__new__(Client)
    if method == "resume":
        client.resume(0)
    elif method == "resume_response":
        client.resume_response(NULL, 0)


cdef class Roll:
    """A Places with names for connections."""
    cdef Places places
    cdef dict indices, names

    def __cinit__(self):
        self.places = Places()
        self.indices = {}
        self.names = {}

    def add(self, name, str address, int kind=0, int64_t since_ms=0):
        cdef Address where
        cdef uint32_t place
        if not parse_address(address.encode(), &where):
            raise ValueError(address)
        place = self.places.add(NULL, &where, kind, since_ms)
        self.indices[name] = place
        self.names[place] = name

    def drop(self, name):
        cdef uint32_t place = self.indices.pop(name)
        del self.names[place]
        self.places.drop(place)

    def renew(self, name, int64_t since_ms=0):
        self.places.renew(self.indices[name], since_ms)

    def first(self, int kind=0):
        return self.names.get(self.places.first(kind))

    def first_of(self, str address, int kind=0):
        cdef Address where
        if not parse_address(address.encode(), &where):
            raise ValueError(address)
        return self.names.get(self.places.first_of(&where, kind))

    def most(self, int kind=0):
        return self.places.most(kind)

    @property
    def listed(self):
        return self.places.listed

    @property
    def parties(self):
        return self.places.n_parties

    @property
    def room(self):
        return self.places.room
