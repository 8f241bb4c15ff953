# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The client that a trusted proxy names in X-Forwarded-For.

    X-Forwarded-For: 198.51.100.9, 203.0.113.7, 10.0.0.2        from 10.0.0.1
                                   └ the client  └ believed      └ believed

Each proxy appends the address that it was called from, so the list is read from its end: the first
address that is no believed proxy's is the client's. What stands before it was written by the client.
A connection carries requests of many clients, so each request names its own; without a name it is
the proxy's. The connection itself is counted as the proxy's (max_connections_per_client).
"""

from libc.string cimport memset
from cutthrough.net.address cimport Address, parse_address
from cutthrough.wire.chars cimport equals_lower
from cutthrough.wire.http1 cimport Field

cdef enum:
    MOST_NAMED = 32             # proxies behind each other; more are a mistake, or an attack
    NAME_BYTES = 15


cdef int take_named_client(Client c, const Head *head, const char *data) except -1:
    cdef Address address
    if c.entrance.has_peer:
        c.address = c.entrance.peer
    elif not c.entrance.believes(&c.address):
        return 0
    if not find_client(c, head, data, &address):
        return 0
    if not c.entrance.has_peer:
        c.entrance = c.entrance.copy()
        c.entrance.has_peer = True
        c.entrance.peer = c.address
    c.address = address
    return 0


cdef bint find_client(Client c, const Head *head, const char *data, Address *out) except -1:
    """False: no address is named."""
    cdef const Field *field
    cdef Address address
    cdef bint some = False
    cdef int n = 0
    cdef int i
    for i in range(<int>head.n_fields - 1, -1, -1):
        field = &head.fields[i]
        if field.name_len != NAME_BYTES or (
                not equals_lower(data + field.start, b"x-forwarded-for", NAME_BYTES)):
            continue
        for name in reversed((<bytes>data[field.value:field.value + field.value_len]).split(b",")):
            n += 1
            if n > MOST_NAMED or not read_name(name.strip(), &address):
                return some             # nothing behind it is known to be true
            out[0] = address
            some = True
            if not c.entrance.believes(&address):
                return True
    return some


cdef bint read_name(bytes name, Address *out) except -1:
    """An address, perhaps with a port; IPv6 perhaps in brackets."""
    if name.startswith(b"["):
        name, bracket, port = name[1:].partition(b"]")
        if not bracket or b":" not in name or not (port == b"" or is_port(port)):
            return False
    elif name.count(b":") == 1:
        name, colon, port = name.partition(b":")
        if not is_port(colon + port):
            return False
    memset(out, 0, sizeof(Address))
    if not name or b"\0" in name or not parse_address(name, out):
        return False
    unmap(out)
    return True


cdef bint is_port(bytes text) except -1:
    return text.startswith(b":") and text[1:].isdigit() and len(text) <= 6


cdef void unmap(Address *address) noexcept nogil:
    """::ffff:192.0.2.7 is 192.0.2.7, as in a PROXY header."""
    cdef int i
    if address.family != 6 or address.bytes[10] != 0xff or address.bytes[11] != 0xff:
        return
    for i in range(10):
        if address.bytes[i]:
            return
    address.family = 4
    for i in range(4):
        address.bytes[i] = address.bytes[12 + i]
    for i in range(4, 16):
        address.bytes[i] = 0
