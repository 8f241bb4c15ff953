"""Changes of the fields of a head that goes on, by a rule's `headers`."""

from cutthrough.wire.connect cimport Value

# Of one direction of a rule. Never changes.
cdef class HeadEdits:
    cdef readonly tuple dropped     # names in lower case, bytes
    cdef readonly tuple lines       # each a tuple of bytes, and of members of Known
    cdef readonly bint names_dropped    # a line names KNOWN_DROPPED
    cdef readonly bint names_trace  # a line names KNOWN_TRACE …
    cdef readonly double ratio      # … whose sampled flag is set in this share of new ones

    # Changes a head of `n` bytes in its own buffer of `cap` bytes. Returns the new number of
    # bytes; 0: there is no room. `known`: N_KNOWN values, KNOWN_DROPPED excepted. The head is one of
    # rewrite.pyx's: strict lines, and an empty one at the end.
    cdef size_t apply(self, char *head, size_t n, size_t cap, const Value *known) except? 0
    # The index in `dropped` of this line's name; -1: the line stays.
    cdef int place(self, const char *line, const char *behind) except -2

# What a line may name.
cdef enum Known:
    KNOWN_USER = 0              # the name; empty: none
    KNOWN_CLIENT                # the address
    KNOWN_JA4                   # of the client's TLS; empty: not known
    KNOWN_HTTP2                 # its HTTP/2 fingerprint; likewise
    KNOWN_TCP                   # that of its SYN; likewise
    KNOWN_JA4_R                 # … with the lists in place of hashes
    KNOWN_JA4_O                 # … in the client's order
    KNOWN_JA4_RO                # … both
    KNOWN_JA3                   # of the client's TLS; likewise
    KNOWN_DROPPED               # names of the fields that are dropped here, as the rule has them
    KNOWN_TRACE                 # the head's traceparent, or one that begins; empty in responses
    N_KNOWN
