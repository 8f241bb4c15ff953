# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Turns: one request dials an origin of HTTP/2, and others of its key wait for the connection.

    first request ── Turn ── dial, handshake ─> carrier ── Turn ── SETTINGS ─> close
    later request ── Wait ─────────────────────────────────────────────────────> its way again

Without turns a page of a hundred requests makes a hundred connections, if its origin has closed
the one it had. Only requests of a key that has chosen HTTP/2 before take turns: to an origin of
HTTP/1.1 all dial at once. As many wait for a turn as its connection will take, by the bound that
its origin has told last; the next request takes another turn. If the turn ends without a
connection, the first that has waited takes the next one. A wait is as long as a dial at most: the
client's deadline ends it.
"""

cimport cython
from cutthrough.session.model.client cimport extras_of
from cutthrough.session.model.state cimport DIAL


@cython.no_gc
cdef class Turn(Endpoint):

    cdef int wait(self, Client client) except -1:
        cdef Wait wait = Wait.__new__(Wait)
        client._set_state(DIAL)
        wait.client = client
        wait.turn = self
        self.waits.append(wait)
        extras_of(client).turn = wait
        return 0

    cdef int close(self) except -1:
        cdef Client client = self.client
        cdef dict table = self.table
        cdef object key = self.key
        cdef Wait wait
        if table is None:
            return 0
        self.table = self.client = None
        for wait in self.waits:
            wait.turn = None
            wait.client.poller.call_again(wait.client)  # in the order in which they came
        self.waits = []
        if client is not None:
            client.extras.turn = None
        if table.get(key) is self:      # no later turn
            del table[key]              # perhaps the last reference to this turn
        return 0


@cython.no_gc
cdef class Wait(Endpoint):

    cdef int close(self) except -1:
        cdef Client client = self.client
        if self.turn is not None:
            self.turn.waits.remove(self)
            self.turn = None
        self.client = None
        if client is not None:
            client.extras.turn = None          # the last reference to this wait
        return 0


cdef Turn take_turn(Client c, dict table, object key):
    cdef Turn turn = make_turn(table, key)
    turn.client = c
    extras_of(c).turn = turn
    return turn


cdef Turn make_turn(dict table, object key):
    cdef Turn turn = Turn.__new__(Turn)
    turn.table = table
    turn.key = key
    turn.waits = []
    table[key] = turn
    return turn


cdef bint ends_wait(Client c) except -1:
    if not isinstance(c.extras.turn, Wait) or (<Wait>c.extras.turn).turn is not None:
        return False
    c.extras.turn.close()
    return True
