"""The ClientHello of TLS: bytes -> names, versions and lists (R53; RFC 8446 section 4.1.2)."""

from libc.stdint cimport uint8_t, uint16_t
from cutthrough.wire.authority cimport MAX_HOST

cdef enum:
    # Of all records that carry the hello, their headers included (R53). A hello with an
    # ML-KEM share has 1.5 to 2 KB.
    MOST_HELLO = 16384
    # Extensions that JA4 does not hash
    SERVER_NAME = 0
    ALPN = 16

# The value of server_name, by what it is.
cdef enum ServerName:
    NO_NAME = 0             # no such extension
    HOST_NAMED              # a host name
    ADDRESS_NAMED           # an IPv4 address in text (which RFC 6066 forbids)
    INVALID_NAME            # neither

cdef struct Span:           # bytes of the hello; 0 bytes: empty, or absent
    const uint8_t *at
    size_t n

# Its spans point into the data, or into a copy that the next call overwrites.
cdef struct ClientHello:
    uint16_t legacy_version
    uint16_t version        # the highest that is offered, without GREASE
    uint8_t name_kind       # ServerName
    uint8_t offers_ech      # encrypted_client_hello, GREASE or not
    uint8_t name_len
    char name[MAX_HOST]     # canonical, see wire.target; INVALID_NAME: as it came
    Span ciphers            # 2 bytes each
    Span extensions         # type 2, length 2, value
    Span alpn               # each protocol behind a byte of length
    Span groups             # 2 bytes each
    Span formats            # of points, 1 byte each
    Span signatures         # 2 bytes each

# > 0: bytes of the records with a whole hello; 0: more is needed; -1: no ClientHello.
cdef int parse_client_hello(ClientHello *out, const char *data, size_t n) noexcept nogil
# The same of a whole handshake message, out of its records. False: no ClientHello.
cdef bint parse_client_message(ClientHello *out, const char *data, size_t n) noexcept nogil
# "1.3", "1.2" …; "": unknown.
cdef const char *version_text(int version) noexcept nogil


# RFC 8701: reserved numbers, which a client sends to see that they are ignored.
cdef inline bint is_grease(int number) noexcept nogil:
    return number & 0x0f0f == 0x0a0a and number >> 8 == number & 0xff
