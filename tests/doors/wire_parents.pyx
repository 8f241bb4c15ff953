# cython: language_level=3, boundscheck=False, wraparound=False
"""Doors to the messages that go to parents, and to the readers of their answers."""

import ipaddress

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memcpy
from cutthrough.wire.chars cimport text_of
from cutthrough.wire.connect cimport Value, build_connect, read_connect_answer
from cutthrough.wire.origin_head cimport OriginHead, build_origin_head
from cutthrough.wire.proxy_header cimport LONGEST_BUILT, ProxyHeader, build_proxy_header
from cutthrough.wire.socks_client cimport (
    MOST_SOCKS_MESSAGE, Login, build_socks4_request, build_socks5_greeting,
    build_socks5_login, build_socks5_request, read_socks4_reply, read_socks5_login,
    read_socks5_method, read_socks5_reply)
from cutthrough.wire.authority cimport Target, parse_authority

cdef enum:
    ROOM = 32768


cdef int read_authority(Target *target, bytes authority) except -1:
    if parse_authority(target, authority, len(authority), 0) != 0:
        raise ValueError(authority)
    return 0


cdef Value value_of(value):
    return Value(NULL, 0) if value is None else Value(<bytes>value, len(value))


def connect(authority, credentials=None, via=None, cap=ROOM):
    """Returns the request, or b"" if it has no room."""
    cdef char out[ROOM]
    cdef Target target
    read_authority(&target, authority)
    return out[:build_connect(out, cap, &target, value_of(credentials), value_of(via))]


def origin_head(bytes head, host=None, forwarded=0, is_trusted=False, client=b"",
                is_tls=False, cap=ROOM, prefix=None, replaced=0):
    """Returns the head, or b"" if it has no room. `prefix`: in place of so many octets of the
    path."""
    cdef char out[ROOM]
    cdef OriginHead how = OriginHead(
        value_of(host), forwarded, is_trusted, value_of(client), b":" in client, is_tls,
        value_of(prefix), head.index(b" ") + 1, replaced)
    return out[:build_origin_head(out, cap, head, len(head), &how)]


def connect_answer(source, seen=0):
    """Returns (length, status), None for "more", or "invalid"."""
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    cdef bytearray copy = bytearray(data[:n])       # it may be written to
    cdef int status = 0
    cdef int got = read_connect_answer(copy, n, &status)
    return (got, status) if got > 0 else None if got == 0 else "invalid"


def greeting(with_login):
    cdef char out[MOST_SOCKS_MESSAGE]
    return out[:build_socks5_greeting(out, with_login)]


def login(name, password):
    cdef char out[MOST_SOCKS_MESSAGE]
    cdef Login it = Login(<bytes>name, <bytes>password, len(name), len(password))
    return out[:build_socks5_login(out, &it)]


def socks5_request(authority):
    cdef char out[MOST_SOCKS_MESSAGE]
    cdef Target target
    read_authority(&target, authority)
    return out[:build_socks5_request(out, &target)]


def socks4_request(authority, name=b""):
    """Returns the request, or b"" if version 4 has none."""
    cdef char out[MOST_SOCKS_MESSAGE]
    cdef Target target
    read_authority(&target, authority)
    return out[:build_socks4_request(out, &target, <bytes>name, len(name))]


ctypedef int (*Reader)(const char *data, size_t n, int *code) noexcept nogil


cdef object read_answer(Reader read, source):
    """Returns (length, code), None for "more", or "invalid"."""
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    cdef int code = -1
    cdef int got = read(data, n, &code)
    return answer(got, code)


def method(source, seen=0):
    return read_answer(read_socks5_method, source)


def login_answer(source, seen=0):
    return read_answer(read_socks5_login, source)


def socks5_reply(source, seen=0):
    return read_answer(read_socks5_reply, source)


def socks4_reply(source, seen=0):
    return read_answer(read_socks4_reply, source)


cdef object answer(int got, int code):
    return (got, code) if got > 0 else None if got == 0 else "invalid"


def proxy_header(version, client, listener):
    """Returns the header. Both ends are (address in text, port)."""
    cdef char out[LONGEST_BUILT]
    cdef ProxyHeader a, b
    fill(&a, client)
    fill(&b, listener)
    return out[:build_proxy_header(out, version, &a, &b)]


cdef int fill(ProxyHeader *out, end) except -1:
    address = ipaddress.ip_address(end[0])
    cdef bytes packed = address.packed
    out.family = address.version
    out.port = end[1]
    memcpy(out.address, <const uint8_t *><const char *>packed, len(packed))
    return 0
