"""The fingerprints of a ClientHello: JA4 and JA3."""

from cutthrough.wire.clienthello cimport ClientHello

cdef enum:
    JA4_BYTES = 36
    JA3_BYTES = 32
    # Of JA4 with its lists in place of hashes. The recorded clients have at most 350
    MOST_RAW = 600

# Write JA4_BYTES characters, JA3_BYTES characters, without a NUL.
cdef int write_ja4(char *out, const ClientHello *hello) except -1
cdef int write_ja3(char *out, const ClientHello *hello) except -1
# JA4, or a variant: `original`: the lists in the client's order, with server_name and ALPN (JA4_o);
# `raw`: the lists themselves (JA4_r, JA4_ro), cut behind MOST_RAW characters.
cdef bytes make_ja4(const ClientHello *hello, bint original, bint raw)
