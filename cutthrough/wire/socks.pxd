"""SOCKS 5, 4 and 4a: bytes <-> greeting, credentials, request, reply, datagram (RFC 1928 and
RFC 1929; for version 4 NEC's SOCKS.Protocol and SOCKS 4A; R51)."""

from libc.stdint cimport uint8_t, uint16_t
from cutthrough.wire.authority cimport Target

cdef enum:
    # Methods of authentication (RFC 1928 section 3)
    METHOD_NONE = 0
    METHOD_PASSWORD = 2
    METHOD_REFUSED = 0xff
    # Commands
    SOCKS_CONNECT = 1
    SOCKS_BIND = 2
    SOCKS_ASSOCIATE = 3         # version 5 only
    SOCKS_GRANTED = 0           # a reply's code; others are in outcome's table
    MOST_SOCKS_REPLY = 22       # octets of a reply with an IPv6 address, or of a datagram's header

# The client's message that a refusal answers; each kind has a reply of its own.
cdef enum:                  # SocksMessage
    NO_MESSAGE = 0
    OF_GREETING
    OF_PASSWORD
    OF_REQUEST
    OF_REQUEST_4

cdef struct SocksGreeting:
    uint8_t offers_none
    uint8_t offers_password

# Both within the data that was parsed; either may be empty.
cdef struct SocksPassword:
    const char *name
    const char *secret
    uint8_t name_len
    uint8_t secret_len

cdef struct SocksRequest:
    uint8_t command             # SOCKS_*, or one that no RFC has
    Target target               # port 0 only if the command is SOCKS_ASSOCIATE; form: unused

# All four: > 0: the length of the message; 0: more is needed; or minus the Outcome, BAD_SOCKS,
# or BAD_TARGET: a type of address that RFC 1928 has not, no valid name, or port 0. Each starts
# at the message's first byte again; a message that fails does so at the first byte that shows it.
cdef int parse_greeting(SocksGreeting *out, const char *data, size_t n) noexcept nogil
cdef int parse_password(SocksPassword *out, const char *data, size_t n) noexcept nogil
cdef int parse_socks5_request(SocksRequest *out, const char *data, size_t n) noexcept nogil
# Version 4 with its 4a. The user id is skipped: it is no credential.
cdef int parse_socks4_request(SocksRequest *out, const char *data, size_t n) noexcept nogil
# The header of a datagram that a client sends (RFC 1928 section 7). > 0: the header's length;
# 0: the datagram is to be dropped: too short, a fragment, or no valid destination.
cdef int parse_datagram_header(Target *out, const char *data, size_t n) noexcept nogil

# Each returns the octets written; `out` needs room for MOST_SOCKS_REPLY.
# `family` 4 or 6 with the address in network order; 0: an address of zeros.
cdef int build_socks5_reply(char *out, int code, int family, const uint8_t *address,
                            uint16_t port) noexcept nogil
cdef int build_socks4_reply(char *out, bint granted) noexcept nogil
cdef int build_method(char *out, int method) noexcept nogil
cdef int build_welcome(char *out) noexcept nogil       # the credentials are right
# The reply for an outcome. 0: this outcome has no reply, or what came is not SOCKS at all.
cdef int build_socks_refusal(char *out, int message, int outcome) noexcept nogil
# The request is granted.
cdef int build_socks_success(char *out, int message) noexcept nogil
cdef int build_datagram_header(char *out, int family, const uint8_t *address,
                               uint16_t port) noexcept nogil
