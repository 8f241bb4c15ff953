# cython: language_level=3, boundscheck=False, wraparound=False
"""Doors to cutthrough.wire: the first bytes inside a tunnel.

A source is bytes, or (address, length). No parser here has a use for `seen`.
"""

from cutthrough.wire.chars cimport text_of
from cutthrough.wire.clienthello cimport ClientHello, parse_client_hello, parse_client_message
from cutthrough.wire.fingerprints cimport (
    JA3_BYTES, JA4_BYTES, make_ja4, write_ja3, write_ja4)
from cutthrough.wire cimport openings
from cutthrough.wire.openings import PROTOCOLS


def read_client_hello(source, seen=0):
    """Returns a dict of the hello's fields, None for "more", or "broken"."""
    cdef ClientHello hello
    cdef char[JA4_BYTES] ja4
    cdef char[JA3_BYTES] ja3
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    cdef int got = parse_client_hello(&hello, data, n)
    if got <= 0:
        return "broken" if got else None
    write_ja4(ja4, &hello)
    write_ja3(ja3, &hello)
    alpn, found = <bytes>hello.alpn.at[:hello.alpn.n] if hello.alpn.n else b"", []
    while alpn:
        found.append(alpn[1:1 + alpn[0]])
        alpn = alpn[1 + alpn[0]:]
    return {
        "length": got, "legacy": hello.legacy_version, "version": hello.version,
        "name": hello.name[:hello.name_len].decode("latin-1") if hello.name_kind else None,
        "name_kind": ("", "host", "address", "invalid")[hello.name_kind], "alpn": found,
        "ech": bool(hello.offers_ech), "ja4": ja4[:JA4_BYTES].decode(),
        "ja3": ja3[:JA3_BYTES].decode()}


def read_client_opening(source, seen=0):
    """Returns the protocol's word, None for "more"."""
    cdef ClientHello hello
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    return PROTOCOLS[openings.read_client_opening(&hello, data, n)] or None


def read_origin_opening(source, seen=0):
    """Returns the same."""
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    return PROTOCOLS[openings.read_origin_opening(data, n)] or None


def read_inner_opening(source, seen=0):
    """Returns the same."""
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    return PROTOCOLS[openings.read_inner_opening(data, n)] or None


def read_message(source):
    """JA4 and its variants of a handshake message, out of its records; None: no ClientHello."""
    cdef ClientHello hello
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    if not parse_client_message(&hello, data, n):
        return None
    return {name: make_ja4(&hello, "o" in name[3:], "r" in name[3:]).decode()
            for name in ("ja4", "ja4_r", "ja4_o", "ja4_ro")}
