"""Records of TLS 1.2 and 1.3 behind the handshake: bytes to bytes, no socket."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cutthrough.net.linux cimport iovec
from cutthrough.net.tls.keys cimport Keys

cdef enum:
    HEADER = 5              # bytes of a record before the sealed ones
    RECORD = 16384          # plain bytes of a record, at most (RFC 8446 section 5.1)
    MOST_RECEIVED = HEADER + RECORD + 256       # bytes of a record (section 5.2)
    MOST_OVERHEAD = HEADER + 8 + 1 + 16         # header, nonce of TLS 1.2, type of 1.3, tag
    # ContentType
    ALERT = 21
    HANDSHAKE = 22
    APPLICATION_DATA = 23
    # AlertLevel and AlertDescription (section 6)
    WARNING = 1
    FATAL = 2
    CLOSE_NOTIFY = 0
    UNEXPECTED_MESSAGE = 10
    BAD_RECORD_MAC = 20
    RECORD_OVERFLOW = 22
    ILLEGAL_PARAMETER = 47
    DECODE_ERROR = 50
    INTERNAL_ERROR = 80
    USER_CANCELED = 90
    NO_RENEGOTIATION = 100

cdef struct Records:
    Keys keys
    uint32_t skips          # bytes of a handshake message that are still to be skipped
    uint8_t slot            # place of its cipher contexts
    uint8_t messages        # handshakes and warnings of the peer, as far as it counts
    uint8_t update_due      # the peer has requested new keys of our side
    uint8_t refuse_due      # the peer wants to renegotiate: a warning is due
    uint8_t alert           # to be sent after OPENED_BAD; the peer's after OPENED_REFUSED
    uint8_t renewed         # by the peer: its key, since this was cleared
    uint8_t head_n
    unsigned char head[5]   # of a handshake message whose rest has not come

cdef enum Opened:
    OPENED_DATA = 0
    OPENED_MESSAGE          # nothing for the reader
    OPENED_END              # close_notify: no more bytes will come
    OPENED_REFUSED          # the peer has ended the connection with an alert: `alert`
    OPENED_BAD              # against the rules: `alert` is to be sent

# The keys are complete.
cdef void start_records(Records *r) noexcept nogil
# Overwrites the keys; the memory stays the caller's.
cdef void wipe_records(Records *r) noexcept nogil
# The alert that a record's first HEADER bytes deserve; 0: none.
cdef int fault_of_header(const Records *r, const unsigned char *header) noexcept nogil
# Opens a whole record whose header has no fault: *n plain bytes at `out`, which has room for
# `size` - HEADER bytes. `out` may be where the sealed bytes are, at `record` + sealed_at.
cdef Opened open_record(Records *r, unsigned char *record, size_t size, unsigned char *out,
                        size_t *n) noexcept nogil
# Takes what a record of another kind than APPLICATION_DATA carries, or a part of it.
cdef Opened take_message(Records *r, int kind, const unsigned char *data, size_t n) noexcept nogil
cdef size_t sealed_at(const Records *r) noexcept nogil
# The bytes of a record beside those that it carries.
cdef size_t overhead(const Records *r) noexcept nogil
# Seals at most RECORD bytes as one record. Returns its size; 0: failed. `out` has room for
# `n` + MOST_OVERHEAD bytes.
cdef size_t seal_record(Records *r, int kind, const void *data, size_t n,
                        unsigned char *out) noexcept nogil
# The same, of `n` bytes that lie in several pieces, the first of which begins at `skip`.
cdef size_t seal_pieces(Records *r, int kind, const iovec *pieces, size_t skip, size_t n,
                        unsigned char *out) noexcept nogil
# Is a sending key of TLS 1.3 to be renewed behind so many records?
cdef bint is_spent(uint64_t records) noexcept nogil
# Whether a KeyUpdate must go before the next bytes.
cdef bint needs_update(const Records *r) noexcept nogil
# Seals a KeyUpdate, as seal_record does; the next record has new keys.
cdef size_t seal_update(Records *r, unsigned char *out) noexcept nogil
