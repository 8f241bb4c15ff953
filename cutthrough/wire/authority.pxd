"""Hosts and ports: bytes -> canonical form, and back (R16, R25; RFC 3986 section 3.2)."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t

cdef enum HostKind:
    HOST_NAME = 0
    HOST_IPV4
    HOST_IPV6

cdef enum:
    MAX_HOST = 255          # RFC 1035: 253 and a terminator; an IPv6 literal is at most 45

cdef struct Target:
    uint8_t form            # Form
    uint8_t host_kind       # HostKind
    uint16_t port
    uint16_t host_len
    uint8_t address[16]     # HOST_IPV4: first 4 bytes; HOST_IPV6: 16; network order
    # Canonical: lower case, no trailing dot, no brackets, NUL-terminated; numeric IPv4
    # forms as dotted quad, IPv6 as RFC 5952. Origin form without Host (1.0): empty.
    char host[MAX_HOST + 1]
    uint32_t path           # offset of path-and-query in the head's buffer
    uint32_t path_len       # 0: the empty path of an absolute form

# Is it uri-host [ ":" port ], as a Host field may be?
cdef bint is_uri_host(const char *p, size_t n) noexcept nogil
# Parses host[:port], the whole input, without userinfo and path, into host, host_kind, address
# and port (default_port 0: a port is required, and an IPv6 address needs no brackets). Returns
# 0 or -BAD_TARGET.
cdef int parse_authority(Target *target, const char *text, size_t n,
                         int default_port) noexcept nogil
# Parses a host alone, the whole input: a name, or an address without brackets. Sets the same
# fields but for port. Returns 0 or -BAD_TARGET.
cdef int parse_host(Target *target, const char *text, size_t n) noexcept nogil
# Sets the same fields from an address of family 4 or 6, in network order.
cdef void set_address(Target *target, int family, const uint8_t *data) noexcept nogil
# Writes host[:port] in the form of a Host field: brackets around IPv6, no port if it equals
# default_port. Returns bytes written; out needs room for MAX_HOST + 9.
cdef int build_authority(char *out, const Target *target, int default_port) noexcept nogil
# Writes the decimal digits of a number below 10^9. Returns bytes written.
cdef int put_number(char *out, uint32_t number) noexcept nogil
