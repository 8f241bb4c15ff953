"""SOCKS in: the stages of versions 5, 4 and 4a."""

from libc.stdint cimport uint8_t
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.stage cimport Reply
from cutthrough.wire.socks cimport SocksGreeting, SocksRequest

cdef struct Opening:
    uint8_t version             # 5: greeting; 4: request; another: no SOCKS, nothing is read
    int refusal                 # of version 4: an Outcome; OK: `request` is valid
    SocksGreeting greeting
    SocksRequest request

# The stages; see stage. `state`: an Opening, a SocksPassword, a SocksRequest.
cdef int read_opening(void *state, const char *data, size_t n, size_t *used) noexcept nogil
cdef bint choose_method(Client client, const void *state, Reply *reply) except -1
cdef int read_user(void *state, const char *data, size_t n, size_t *used) noexcept nogil
cdef bint check_user(Client client, const void *state, Reply *reply) except -1
cdef int read_request(void *state, const char *data, size_t n, size_t *used) noexcept nogil
cdef bint take_request(Client client, const void *state, Reply *reply) except -1
