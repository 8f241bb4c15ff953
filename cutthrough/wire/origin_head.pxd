"""A rewritten request head for a server of a named origin: Host, and the forwarded fields."""

from cutthrough.wire.connect cimport Value

# Rules for X-Forwarded-*, X-Real-IP and Forwarded.
cdef enum ForwardedFields:
    FORWARDED_DROPPED = 1       # the received ones go
    FORWARDED_X = 2             # X-Forwarded-For, -Host, -Proto and -Port are written
    FORWARDED_ELEMENT = 4       # Forwarded is written (RFC 7239)

cdef struct OriginHead:
    Value host                  # value of Host; NULL: it stays
    int forwarded               # a set of ForwardedFields; 0: all fields stay as they are
    bint is_trusted             # a field's value stays, and ours follows it
    Value client                # the client's address; n is 0: it has none
    bint is_ipv6
    bint is_tls                 # the client's own connection
    Value prefix                # takes the place of …
    size_t replaced_at          # … the start of the path, here in the head …
    size_t replaced             # … of so many octets; `prefix` and this 0: the path stays

# From a head of rewrite.build_request_head, of `n` bytes. Returns bytes written; 0: `cap` is too
# small.
cdef size_t build_origin_head(char *out, size_t cap, const char *head, size_t n,
                              const OriginHead *how) noexcept nogil
