"""SOCKS towards a parent: the messages of a client, versions 5 (RFC 1928, RFC 1929) and 4a.

Every `build_*` writes one message and returns its length; every `read_*` reads one answer.
"""

from cutthrough.wire.authority cimport Target

cdef enum:
    # Octets of the longest message: a login, 3 + 255 + 255
    MOST_SOCKS_MESSAGE = 513
    MOST_SOCKS_NAME = 255       # octets of a name, a password and a host
    # Methods of RFC 1928 section 3
    SOCKS_NO_LOGIN = 0
    SOCKS_LOGIN = 2
    SOCKS_NO_METHOD = 255       # the parent accepts none of those offered

cdef struct Login:
    const char *name
    const char *password
    size_t name_len             # at most MOST_SOCKS_NAME
    size_t password_len         # at most MOST_SOCKS_NAME

cdef size_t build_socks5_greeting(char *out, bint with_login) noexcept nogil
cdef size_t build_socks5_login(char *out, const Login *login) noexcept nogil
# CONNECT.
cdef size_t build_socks5_request(char *out, const Target *target) noexcept nogil
# CONNECT, version 4 for an address and 4a for a name. 0: version 4 has no such destination (IPv6),
# or no room for it.
cdef size_t build_socks4_request(char *out, const Target *target, const char *name,
                                 size_t name_len) noexcept nogil

# All four return the answer's length, 0: more is needed, or -1: no valid answer. *code is the
# method, the login's status, or the reply's code; 0 is success except for a method.
cdef int read_socks5_method(const char *data, size_t n, int *code) noexcept nogil
cdef int read_socks5_login(const char *data, size_t n, int *code) noexcept nogil
cdef int read_socks5_reply(const char *data, size_t n, int *code) noexcept nogil
cdef int read_socks4_reply(const char *data, size_t n, int *code) noexcept nogil
