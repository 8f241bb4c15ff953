# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SOCKS towards a parent: the messages of a client, versions 5 (RFC 1928, RFC 1929) and 4a.

    5   05 n methods            ->  05 method
        01 name password        ->  01 status           only for the method 02
        05 01 00 type host port ->  05 code 00 type address port
    4a  04 01 port address name 00 [host 00]  ->  00 code port address

Answers are read strictly and to their last octet, not beyond it, because the next one is the
tunnel's. The address in an answer is skipped, because nothing here depends on it: it is the
parent's end of its connection to the destination.
"""

from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memcpy
from cutthrough.wire.authority cimport HOST_IPV4, HOST_IPV6, HOST_NAME

cdef enum:
    VERSION_5 = 5
    VERSION_4 = 4
    LOGIN_VERSION = 1           # RFC 1929 section 2
    CONNECT = 1
    # Address types, RFC 1928 section 5
    TYPE_IPV4 = 1
    TYPE_NAME = 3
    TYPE_IPV6 = 4
    REPLY_HEAD = 4              # octets before the address
    GRANTED = 90                # version 4's success


cdef size_t build_socks5_greeting(char *out, bint with_login) noexcept nogil:
    out[0] = VERSION_5
    out[1] = 2 if with_login else 1
    out[2] = SOCKS_NO_LOGIN
    out[3] = SOCKS_LOGIN
    return 4 if with_login else 3


cdef size_t build_socks5_login(char *out, const Login *login) noexcept nogil:
    cdef char *o = out + 2
    out[0] = LOGIN_VERSION
    out[1] = <char>login.name_len
    memcpy(o, login.name, login.name_len)
    o += login.name_len
    o[0] = <char>login.password_len
    memcpy(o + 1, login.password, login.password_len)
    return o + 1 + login.password_len - out


cdef size_t build_socks5_request(char *out, const Target *target) noexcept nogil:
    cdef char *o = out + 4
    memcpy(out, b"\x05\x01\0", 3)
    if target.host_kind == HOST_NAME:
        out[3] = TYPE_NAME
        o[0] = <char>target.host_len
        memcpy(o + 1, target.host, target.host_len)
        o += 1 + target.host_len
    else:
        out[3] = TYPE_IPV4 if target.host_kind == HOST_IPV4 else TYPE_IPV6
        memcpy(o, target.address, 4 if target.host_kind == HOST_IPV4 else 16)
        o += 4 if target.host_kind == HOST_IPV4 else 16
    return put_port(o, target.port) - out


cdef size_t build_socks4_request(char *out, const Target *target, const char *name,
                                 size_t name_len) noexcept nogil:
    cdef char *o = out + 2
    if target.host_kind == HOST_IPV6 or (
            name_len + target.host_len + 10 > <size_t>MOST_SOCKS_MESSAGE):
        return 0
    out[0] = VERSION_4
    out[1] = CONNECT
    o = put_port(o, target.port)
    if target.host_kind == HOST_IPV4:
        memcpy(o, target.address, 4)
    else:
        memcpy(o, b"\0\0\0\x01", 4)     # 0.0.0.x: the host follows the name
    o += 4
    memcpy(o, name, name_len)
    o += name_len
    o[0] = 0
    o += 1
    if target.host_kind == HOST_NAME:
        memcpy(o, target.host, target.host_len)
        o += target.host_len
        o[0] = 0
        o += 1
    return o - out


cdef inline char *put_port(char *o, uint16_t port) noexcept nogil:
    o[0] = <char>(port >> 8)
    o[1] = <char>(port & 255)
    return o + 2


cdef int read_socks5_method(const char *data, size_t n, int *code) noexcept nogil:
    return read_pair(VERSION_5, data, n, code)


cdef int read_socks5_login(const char *data, size_t n, int *code) noexcept nogil:
    return read_pair(LOGIN_VERSION, data, n, code)


cdef inline int read_pair(int version, const char *data, size_t n, int *code) noexcept nogil:
    if n and <uint8_t>data[0] != version:
        return -1
    if n < 2:
        return 0
    code[0] = <uint8_t>data[1]
    return 2


cdef int read_socks5_reply(const char *data, size_t n, int *code) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *>data
    cdef size_t length
    if n and p[0] != VERSION_5:
        return -1
    if n > 1 and p[1]:                  # a refusal: the rest says nothing more
        code[0] = p[1]
        return 2
    if n > 2 and p[2] != 0:
        return -1
    if n < REPLY_HEAD:
        return 0
    if p[3] == TYPE_IPV4:
        length = 4
    elif p[3] == TYPE_IPV6:
        length = 16
    elif p[3] == TYPE_NAME:
        if n == REPLY_HEAD:
            return 0
        length = 1 + <size_t>p[4]
    else:
        return -1
    length += REPLY_HEAD + 2
    if n < length:
        return 0
    code[0] = 0
    return <int>length


cdef int read_socks4_reply(const char *data, size_t n, int *code) noexcept nogil:
    if n and data[0] != 0:
        return -1
    if n > 1 and not GRANTED <= <uint8_t>data[1] <= 93:
        return -1
    if n < 8:
        return 0
    code[0] = 0 if <uint8_t>data[1] == GRANTED else <uint8_t>data[1]
    return 8
