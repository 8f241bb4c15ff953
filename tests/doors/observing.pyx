# cython: language_level=3
"""An observer of a worker's requests: the phases, and the bytes that its taps were passed."""

from cpython.ref cimport PyObject
from cutthrough.net.pump cimport Tap
from cutthrough.outcome import TABLE
from cutthrough.session.model.client cimport Client, Observer
from cutthrough.session.model.context cimport Context
from cutthrough.wire.http1 cimport Head

cdef struct ListTap:
    Tap tap                     # first: the pump's pointer is to this field
    PyObject *pieces


cdef void take(Tap *tap, const char *data, size_t n) noexcept nogil:
    if n:
        with gil:
            keep(<list>(<ListTap *>tap).pieces, data, n)


cdef void keep(list pieces, const char *data, size_t n):
    pieces.append(data[:n])


cdef class Recorder(Observer):
    """Records (phase, request's number, detail) in `phases`, and taps both pumps in `tap_in`,
    a phase's name; "" for no tap."""
    cdef readonly list phases, up, down
    cdef public str raises_in           # a phase that raises RuntimeError
    cdef str tap_in
    cdef ListTap taps[2]

    def __init__(self, Context context, str tap_in=""):
        self.phases = []
        self.up = []
        self.down = []
        self.tap_in = tap_in
        for i, pieces in enumerate((self.up, self.down)):
            self.taps[i].tap.take = take
            self.taps[i].pieces = <PyObject *>pieces
        context.observer = self

    cdef int note(self, Client client, str phase, detail) except -1:
        self.phases.append((phase, client.request_id, detail))
        if phase == self.raises_in:
            raise RuntimeError(phase)
        if phase == self.tap_in:
            client.relay.up.tap = &self.taps[0].tap
            client.relay.down.tap = &self.taps[1].tap
        return 0

    cdef int on_request(self, Client client, const Head *head, const char *data) except -1:
        if head == NULL:
            key = client.key
            return self.note(client, "request", f"{key[:-2].decode()}:{client.request.port}")
        return self.note(client, "request",
                         data[head.target:head.target + head.target_len].decode())

    cdef int on_route(self, Client client) except -1:
        return self.note(client, "route", client.request.hop.kind)

    cdef int on_response(self, Client client, const Head *head, const char *data) except -1:
        return self.note(client, "response", None if head == NULL else head.status)

    cdef int on_end(self, Client client, int outcome) except -1:
        return self.note(client, "end", TABLE[outcome].label)
