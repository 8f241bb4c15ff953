"""The fingerprints of a ClientHello: JA4 and JA3."""

from cutthrough.wire.clienthello cimport ClientHello

cdef enum:
    JA4_BYTES = 36
    JA3_BYTES = 32

# Write JA4_BYTES characters, JA3_BYTES characters, without a NUL.
cdef int write_ja4(char *out, const ClientHello *hello) except -1
cdef int write_ja3(char *out, const ClientHello *hello) except -1
