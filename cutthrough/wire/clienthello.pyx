# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The ClientHello of TLS: bytes -> names, versions and lists.

    record    22 | version 2 | length 2 | a part of the handshake message
    message   1 | length 3 | version 2 | random 32 | session id, ciphers 2, compressions |
              extensions: type 2, length 2, value           (RFC 8446 sections 4.1.2, 5.1)

The parser keeps no state: if the hello is incomplete, the next call starts at the first byte
again, and walks over the records' headers only. Nothing of a hello is decided before all of it
has come (R53), because it may come in several segments and several records. If it is in several
records, its parts are copied to one place.

If a hello breaks the standard, it is no hello, because a lenient origin might read another
server name in it.
"""

from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memchr, memcpy, memset
from cutthrough.wire.authority cimport HOST_NAME, MAX_HOST, Target, parse_authority

cdef enum:
    HANDSHAKE = 22              # of a record
    CLIENT_HELLO = 1            # of a handshake message
    RECORD_HEAD = 5
    MESSAGE_HEAD = 4
    MOST_RECORD = 16384
    MANY = 1 << 24              # more than a message can have
    FIXED_BYTES = 34            # version and random
    MOST_SESSION = 32
    # Extensions (IANA, TLS ExtensionType Values); two more are in the .pxd
    SUPPORTED_GROUPS = 10
    EC_POINT_FORMATS = 11
    SIGNATURE_ALGORITHMS = 13
    SUPPORTED_VERSIONS = 43
    ENCRYPTED_CLIENT_HELLO = 0xfe0d

cdef char[MOST_HELLO] joined    # the message, if it came in several records


cdef int parse_client_hello(ClientHello *out, const char *data, size_t n) noexcept nogil:
    cdef Span message
    cdef int total = find_message(&message, <const uint8_t *>data, n)
    if total <= 0:
        return total
    memset(out, 0, sizeof(ClientHello))
    return total if read_message(out, message.at, message.n) else -1


cdef bint parse_client_message(ClientHello *out, const char *data, size_t n) noexcept nogil:
    memset(out, 0, sizeof(ClientHello))
    return n >= MESSAGE_HEAD + FIXED_BYTES and n <= MOST_HELLO and data[0] == CLIENT_HELLO and (
        read_message(out, <const uint8_t *>data + MESSAGE_HEAD, n - MESSAGE_HEAD))


cdef int find_message(Span *out, const uint8_t *p, size_t n) noexcept nogil:
    """Walks over the records. Returns the bytes of all records of the message, and its body in
    `out`; 0: more is needed; -1: this is no ClientHello."""
    cdef size_t at = 0, filled = 0, want = 0, size, here
    while True:
        if not may_be_record(p + at, n - at) or at + RECORD_HEAD > MOST_HELLO:
            return -1
        if n - at < RECORD_HEAD:
            return 0
        size = <size_t>p[at + 3] << 8 | p[at + 4]
        at += RECORD_HEAD
        if size == 0 or at + size > MOST_HELLO:
            return -1                   # no empty fragments: RFC 8446 section 5.1
        here = min(size, n - at)
        want = read_message_head(p + at, here, filled, want)
        if want == 0 or (filled + here >= MESSAGE_HEAD and filled + size > want):
            return -1                   # or something else in its last record
        if filled == 0 and size == want:  # the usual case: nothing is copied
            out.at = p + at + MESSAGE_HEAD
            out.n = want - MESSAGE_HEAD
            return <int>(at + size) if here == size else 0
        if here < size:
            return 0
        memcpy(joined + filled, p + at, size)
        filled += size
        at += size
        if filled == want:
            out.at = <const uint8_t *>joined + MESSAGE_HEAD
            out.n = want - MESSAGE_HEAD
            return <int>at


cdef inline bint may_be_record(const uint8_t *p, size_t n) noexcept nogil:
    """Can these bytes begin a record? Its minor version means nothing."""
    return (n < 1 or p[0] == HANDSHAKE) and (n < 2 or p[1] == 3) and (
        n < 4 or p[3] <= MOST_RECORD >> 8)


cdef size_t read_message_head(const uint8_t *p, size_t n, size_t filled,
                              size_t want) noexcept nogil:
    """If the head itself is in several records, `filled` bytes of the message came before, and
    `want` was returned then. Returns the message's length, or more than MANY if it is not
    known yet; 0: no ClientHello."""
    cdef size_t i
    if filled == 0:
        want = MANY
        if n and p[0] != CLIENT_HELLO:
            return 0
    for i in range(max(filled, <size_t>1), min(filled + n, <size_t>MESSAGE_HEAD)):
        want = want << 8 | p[i - filled]
        if i == MESSAGE_HEAD - 1:
            want = (want & 0xffffff) + MESSAGE_HEAD
            if not MESSAGE_HEAD + FIXED_BYTES <= want <= MOST_HELLO - RECORD_HEAD:
                return 0
    return want


cdef bint read_message(ClientHello *out, const uint8_t *p, size_t n) noexcept nogil:
    """Reads the body of a whole message. False: it breaks RFC 8446 or RFC 5246."""
    cdef const uint8_t *end = p + n
    cdef Span compressions
    out.legacy_version = <uint16_t>(p[0] << 8 | p[1])
    out.version = out.legacy_version
    if p[0] != 3:
        return False
    p += FIXED_BYTES
    if p == end or p[0] > MOST_SESSION or end - p < 1 + p[0]:
        return False
    p += 1 + p[0]
    p = take_list(&out.ciphers, p, end, 2)
    if p == NULL or out.ciphers.n < 2 or out.ciphers.n & 1:
        return False
    p = take_list(&compressions, p, end, 1)
    if p == NULL or compressions.n == 0:
        return False
    if p == end:
        return True                     # RFC 5246: extensions may be absent
    p = take_list(&out.extensions, p, end, 2)
    return p == end and read_extensions(out)


cdef const uint8_t *take_list(Span *out, const uint8_t *p, const uint8_t *end,
                              int bytes_of_length) noexcept nogil:
    """A list behind its length of 1 or 2 bytes. Returns the rest; NULL: it is cut."""
    cdef size_t n
    out.at = p
    out.n = 0
    if end - p < bytes_of_length:
        return NULL
    n = p[0] if bytes_of_length == 1 else <size_t>p[0] << 8 | p[1]
    p += bytes_of_length
    if <size_t>(end - p) < n:
        return NULL
    out.at = p
    out.n = n
    return p + n


cdef bint read_extensions(ClientHello *out) noexcept nogil:
    cdef const uint8_t *p = out.extensions.at
    cdef const uint8_t *end = p + out.extensions.n
    cdef Span value
    cdef unsigned long long kinds = 0
    cdef int kind
    while p < end:
        if end - p < 4:
            return False
        kind = p[0] << 8 | p[1]
        p = take_list(&value, p + 2, end, 2)
        if p == NULL:
            return False
        # At most one of each type (RFC 8446 section 4.2). All types that are read here are
        # below 64, but one, whose value is not read.
        if kind < 64:
            if kinds >> kind & 1:
                return False
            kinds |= 1ULL << kind
        if not read_extension(out, kind, value.at, value.n):
            return False
    return True


cdef bint read_extension(ClientHello *out, int kind, const uint8_t *p,
                         size_t n) noexcept nogil:
    cdef const uint8_t *end = p + n
    cdef Span versions
    if kind == SERVER_NAME:
        return read_name(out, p, end)
    if kind == ALPN:
        return take_list(&out.alpn, p, end, 2) == end and are_protocols(&out.alpn)
    if kind == SUPPORTED_GROUPS:
        return take_list(&out.groups, p, end, 2) == end and not out.groups.n & 1
    if kind == EC_POINT_FORMATS:
        return take_list(&out.formats, p, end, 1) == end
    if kind == SIGNATURE_ALGORITHMS:
        return take_list(&out.signatures, p, end, 2) == end and not out.signatures.n & 1
    if kind == SUPPORTED_VERSIONS:
        return take_list(&versions, p, end, 1) == end and read_versions(out, &versions)
    if kind == ENCRYPTED_CLIENT_HELLO:
        out.offers_ech = True
    return True


cdef bint read_name(ClientHello *out, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """One host_name: RFC 6066 section 3 allows one name of each type, and defines one type."""
    cdef Span names, name
    cdef Target target
    p = take_list(&names, p, end, 2)
    if p != end or names.n < 3 or names.at[0] != 0:
        return False
    if take_list(&name, names.at + 1, end, 2) != end or not 0 < name.n <= MAX_HOST:
        return False
    if memchr(name.at, c':', name.n) == NULL and (
            parse_authority(&target, <const char *>name.at, name.n, 1) == 0):
        out.name_kind = HOST_NAMED if target.host_kind == HOST_NAME else ADDRESS_NAMED
        out.name_len = <uint8_t>target.host_len
        memcpy(out.name, target.host, target.host_len)
        return True
    out.name_kind = INVALID_NAME
    out.name_len = <uint8_t>name.n
    memcpy(out.name, name.at, name.n)
    return True


cdef bint are_protocols(const Span *alpn) noexcept nogil:
    """Protocols of 1 to 255 bytes, at least one (RFC 7301 section 3.1)."""
    cdef const uint8_t *p = alpn.at
    cdef const uint8_t *end = p + alpn.n
    while p < end:
        if p[0] == 0 or end - p < 1 + p[0]:
            return False
        p += 1 + p[0]
    return alpn.n != 0


cdef bint read_versions(ClientHello *out, const Span *versions) noexcept nogil:
    """The highest one counts, and the legacy version does not (RFC 8446 section 4.2.1)."""
    cdef size_t i
    cdef int version, highest = 0
    if versions.n < 2 or versions.n & 1:
        return False
    for i in range(0, versions.n, 2):
        version = versions.at[i] << 8 | versions.at[i + 1]
        if not is_grease(version):
            highest = max(highest, version)
    out.version = <uint16_t>highest
    return True


cdef const char *version_text(int version) noexcept nogil:
    if version == 0x0304:
        return b"1.3"
    if version == 0x0303:
        return b"1.2"
    if version == 0x0302:
        return b"1.1"
    if version == 0x0301:
        return b"1.0"
    if version == 0x0300:
        return b"ssl3"
    return b""
