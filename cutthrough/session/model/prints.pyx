# cython: language_level=3
"""The fingerprints of a connection's client: of its SYN, its ClientHello and its HTTP/2.

A connection has them once: its entrance is its own then, and its requests find them there, streams
of HTTP/2 too. Without a wish for one the entrance stays the listener's.
"""

from cutthrough.net.tcpinfo cimport MOST_SYN, take_syn
from cutthrough.wire.clienthello cimport ClientHello, parse_client_message
from cutthrough.wire.fingerprints cimport JA3_BYTES, make_ja4, write_ja3
from cutthrough.wire.syn cimport MOST_SIGNATURE, write_signature

# By bit: the names in logs, captures and policies
NAMES = {"ja4": P_JA4, "ja3": P_JA3, "ja4_r": P_JA4_R, "ja4_o": P_JA4_O, "ja4_ro": P_JA4_RO,
         "http2_fingerprint": P_HTTP2}

cdef ClientHello hello          # used within one call


cdef class Prints:

    cdef int read_syn(self, int fd) except -1:
        cdef unsigned char[MOST_SYN] packet
        cdef char[MOST_SIGNATURE] text
        cdef ssize_t n = take_syn(fd, packet)
        if n > 0:
            n = write_signature(text, packet, n)
        if n > 0:
            self.tcp = text[:n]
        return 0

    cdef int read_hello(self, const char *data, size_t n, int wanted) except -1:
        cdef char[JA3_BYTES] ja3
        self.is_greeted = True
        if not parse_client_message(&hello, data, n):
            return 0
        if wanted & P_JA4:
            self.ja4 = make_ja4(&hello, False, False)
        if wanted & P_JA3:
            write_ja3(ja3, &hello)
            self.ja3 = ja3[:JA3_BYTES]
        if wanted & P_JA4_R:
            self.ja4_r = make_ja4(&hello, False, True)
        if wanted & P_JA4_O:
            self.ja4_o = make_ja4(&hello, True, False)
        if wanted & P_JA4_RO:
            self.ja4_ro = make_ja4(&hello, True, True)
        return 0

    def texts(self):
        """Returns the fingerprints that are known, by the log's names."""
        known = {"client_ja4": self.ja4, "client_ja3": self.ja3, "client_ja4_r": self.ja4_r,
                 "client_ja4_o": self.ja4_o, "client_ja4_ro": self.ja4_ro,
                 "http2_fingerprint": self.http2, "tcp_fingerprint": self.tcp}
        return {name: text.decode("ascii") for name, text in known.items() if text is not None}


cdef int prints_named(headers) except -1:
    """Returns the bits of the fingerprints in the values of a table of header rules."""
    cdef int wanted = 0
    for edits in (headers.request, headers.response):
        for _, value in (*edits.set, *edits.add):
            for name, bit in NAMES.items():
                if f"{{client_{name}}}" in value or (
                        bit == P_HTTP2 and "{http2_fingerprint}" in value):
                    wanted |= bit
    return wanted


def prints_wanted(bint shown, bint has_hook, codes, policy):
    """A set of Print. `shown`: in the JSON log; `has_hook`: which sees them; `codes`: of a log
    format; `policy`: whose rules compare some, or have filters, which see them; or None."""
    wanted = (P_JA4 | P_JA3 | P_HTTP2 if shown else 0) | (P_JA4 | P_HTTP2 if has_hook else 0)
    for name, bit in NAMES.items():
        if f"ct::client_{name}" in codes or f"ct::{name}" in codes and bit == P_HTTP2:
            wanted |= bit
    for rule in policy.rules if policy is not None else ():
        wanted |= P_JA4 if rule.client_ja4 or rule.filters else 0
        wanted |= P_HTTP2 if rule.http2_fingerprint or rule.filters else 0
        for name in rule.headers:
            wanted |= prints_named(policy.headers[name])
    return wanted
