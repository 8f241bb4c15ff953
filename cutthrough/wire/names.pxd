"""Methods and field names by number.

Inline, because each field of each head is looked up, and a call to another module costs 2 ns.
"""

from libc.string cimport memcmp
from cutthrough.wire.chars cimport is_name

cdef enum Method:           # the methods that the proxy or a rule treats in their own way
    M_OTHER = 0
    M_GET
    M_HEAD
    M_POST
    M_PUT
    M_DELETE
    M_OPTIONS
    M_TRACE
    M_CONNECT
    M_SOCKS5                # a CONNECT by another protocol; for rules and hooks it is CONNECT
    M_SOCKS4
    M_UDP                   # datagrams by SOCKS5
    M_TUNNEL                # a transparent connection that is no HTTP; for rules CONNECT too

# FieldName: fields that the proxy reads, drops or writes. The enum has no name in C, because
# Cython takes only plain numbers as indices.
cdef enum:
    F_OTHER = 0
    F_HOST
    F_CONTENT_LENGTH
    F_TRANSFER_ENCODING
    F_CONNECTION
    F_PROXY_CONNECTION
    F_KEEP_ALIVE
    F_TE
    F_TRAILER
    F_UPGRADE
    F_VIA
    F_EXPECT
    F_PROXY_AUTHORIZATION
    F_PROXY_AUTHENTICATE
    F_PROXY_AUTHENTICATION_INFO
    F_DATE
    F_AUTHORIZATION
    F_MAX_FORWARDS
    F_HTTP2_SETTINGS
    N_FIELD_NAMES
    MOST_NAME = 25          # octets of the longest name


# It names a destination for a tunnel.
cdef inline bint is_connect(int method) noexcept nogil:
    return method >= M_CONNECT


# Methods are case-sensitive (RFC 9110 section 9.1): "get" is a method of its own.
cdef inline int method_of(const char *p, size_t n) noexcept nogil:
    if n == 3:
        if memcmp(p, b"GET", 3) == 0:
            return M_GET
        if memcmp(p, b"PUT", 3) == 0:
            return M_PUT
    elif n == 4:
        if memcmp(p, b"POST", 4) == 0:
            return M_POST
        if memcmp(p, b"HEAD", 4) == 0:
            return M_HEAD
    elif n == 5:
        if memcmp(p, b"TRACE", 5) == 0:
            return M_TRACE
    elif n == 6:
        if memcmp(p, b"DELETE", 6) == 0:
            return M_DELETE
    elif n == 7:
        if memcmp(p, b"CONNECT", 7) == 0:
            return M_CONNECT
        if memcmp(p, b"OPTIONS", 7) == 0:
            return M_OPTIONS
    return M_OTHER


# Returns the FieldName of this token; F_OTHER: a field that the proxy does not handle.
cdef inline int field_name(const char *p, size_t n) noexcept nogil:
    if n == 2:
        return F_TE if is_name(p, b"te", 2) else F_OTHER
    if n == 3:
        return F_VIA if is_name(p, b"via", 3) else F_OTHER
    if n == 4:
        if is_name(p, b"host", 4):
            return F_HOST
        return F_DATE if is_name(p, b"date", 4) else F_OTHER
    if n == 6:
        return F_EXPECT if is_name(p, b"expect", 6) else F_OTHER
    if n == 7:
        if is_name(p, b"upgrade", 7):
            return F_UPGRADE
        return F_TRAILER if is_name(p, b"trailer", 7) else F_OTHER
    if n == 10:
        if is_name(p, b"connection", 10):
            return F_CONNECTION
        return F_KEEP_ALIVE if is_name(p, b"keep-alive", 10) else F_OTHER
    if n == 12:
        return F_MAX_FORWARDS if is_name(p, b"max-forwards", 12) else F_OTHER
    if n == 13:
        return F_AUTHORIZATION if is_name(p, b"authorization", 13) else F_OTHER
    if n == 14:
        if is_name(p, b"content-length", 14):
            return F_CONTENT_LENGTH
        return F_HTTP2_SETTINGS if is_name(p, b"http2-settings", 14) else F_OTHER
    if n == 16:
        return F_PROXY_CONNECTION if is_name(p, b"proxy-connection", 16) else F_OTHER
    if n == 17:
        return F_TRANSFER_ENCODING if is_name(p, b"transfer-encoding", 17) else F_OTHER
    if n == 18:
        return F_PROXY_AUTHENTICATE if is_name(p, b"proxy-authenticate", 18) else F_OTHER
    if n == 19:
        return F_PROXY_AUTHORIZATION if is_name(p, b"proxy-authorization", 19) else F_OTHER
    if n == 25 and is_name(p, b"proxy-authentication-info", 25):
        return F_PROXY_AUTHENTICATION_INFO
    return F_OTHER
