# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SOCKS 5, 4 and 4a: bytes <-> greeting, credentials, request, reply, datagram.

    greeting        5 | n | n methods                                  ─> 5 | method
    credentials     1 | n | name | m | password                        ─> 1 | 0: right
    request         5 | command | 0 | type | address | port            ─> 5 | code | 0 | type | …
    datagram        0 0 | fragment | type | address | port | data
    version 4       4 | command | port | IPv4 | user id 0 [| name 0]   ─> 0 | 90: granted | …

The address is 4 or 16 octets, or a name behind its length. In version 4a the IPv4 address
0.0.0.x, x not 0, says that a name follows. A host is read by wire.target, as that of CONNECT is,
because two spellings of one destination must be one destination (R16).

The parsers keep no state: the next call starts at the first byte again. A message has at most
520 bytes.
"""

from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memchr, memcpy, memset
from cutthrough.outcome cimport BAD_SOCKS, BAD_TARGET, socks_code_of
from cutthrough.wire.authority cimport Target, parse_host, set_address

cdef enum:
    BAD = -<int>BAD_SOCKS
    IPV4 = 1                    # types of address
    NAME = 3
    IPV6 = 4
    PASSWORD_VERSION = 1        # of RFC 1929's messages
    # Neither text has a bound in version 4; in version 5 their length is one octet
    MOST_TEXT = 255
    GRANTED_4 = 90
    REFUSED_4 = 91


cdef int parse_greeting(SocksGreeting *out, const char *data, size_t n) noexcept nogil:
    cdef size_t n_methods
    out.offers_none = out.offers_password = False
    if n == 0:
        return 0
    if data[0] != 5:
        return BAD
    if n < 2:
        return 0
    n_methods = <uint8_t>data[1]
    if n < 2 + n_methods:
        return 0
    out.offers_none = memchr(data + 2, METHOD_NONE, n_methods) != NULL
    out.offers_password = memchr(data + 2, METHOD_PASSWORD, n_methods) != NULL
    return <int>(2 + n_methods)


cdef int parse_password(SocksPassword *out, const char *data, size_t n) noexcept nogil:
    cdef size_t length = 2
    if n == 0:
        return 0
    if data[0] != PASSWORD_VERSION:
        return BAD
    if n < length:
        return 0
    # RFC 1929 allows no empty text, but clients without a password send one
    out.name = data + length
    out.name_len = <uint8_t>data[1]
    length += out.name_len
    if n < length + 1:
        return 0
    out.secret_len = <uint8_t>data[length]
    length += 1
    out.secret = data + length
    length += out.secret_len
    return <int>length if n >= length else 0


cdef int parse_socks5_request(SocksRequest *out, const char *data, size_t n) noexcept nogil:
    cdef int length
    if n == 0:
        return 0
    if data[0] != 5:
        return BAD
    if n < 3:
        return 0
    out.command = <uint8_t>data[1]
    if data[2] != 0:
        return BAD
    length = parse_address_and_port(&out.target, data + 3, n - 3)
    if length <= 0:
        return length
    if out.target.port == 0 and out.command != SOCKS_ASSOCIATE:
        return -<int>BAD_TARGET
    return 3 + length


cdef int parse_address_and_port(Target *out, const char *data, size_t n) noexcept nogil:
    """Type, address and port. Returns as a request's parser does."""
    cdef size_t length
    if n == 0:
        return 0
    if data[0] == IPV4:
        length = 1 + 4
    elif data[0] == IPV6:
        length = 1 + 16
    elif data[0] == NAME:
        if n < 2:
            return 0
        length = 2 + <size_t><uint8_t>data[1]
    else:
        return -<int>BAD_TARGET
    if n < length + 2:
        return 0
    if data[0] == NAME:
        if parse_host(out, data + 2, length - 2) < 0:
            return -<int>BAD_TARGET
    else:
        set_address(out, 4 if data[0] == IPV4 else 6, <const uint8_t *>data + 1)
    out.port = read_port(data + length)
    return <int>(length + 2)


cdef int parse_socks4_request(SocksRequest *out, const char *data, size_t n) noexcept nogil:
    cdef size_t length = 8
    cdef size_t host
    cdef const uint8_t *address = <const uint8_t *>data + 4
    if n == 0:
        return 0
    if data[0] != 4:
        return BAD
    if n < length:
        return 0
    out.command = <uint8_t>data[1]
    out.target.port = read_port(data + 2)
    if out.target.port == 0:
        return -<int>BAD_TARGET
    if not skip_text(data, n, &length):
        return BAD if n - length > MOST_TEXT else 0
    if address[0] or address[1] or address[2] or address[3] == 0:
        set_address(&out.target, 4, address)
        return <int>length
    host = length
    if not skip_text(data, n, &length):
        return -<int>BAD_TARGET if n - length > MOST_TEXT else 0
    if parse_host(&out.target, data + host, length - 1 - host) < 0:
        return -<int>BAD_TARGET
    return <int>length


cdef bint skip_text(const char *data, size_t n, size_t *at) noexcept nogil:
    """Moves *at behind a text and its zero. False: there is no zero, or it is too far."""
    cdef size_t most = min(n - at[0], <size_t>MOST_TEXT + 1)
    cdef const char *end = <const char *>memchr(data + at[0], 0, most)
    if end == NULL:
        return False
    at[0] = end + 1 - data
    return True


cdef int parse_datagram_header(Target *out, const char *data, size_t n) noexcept nogil:
    cdef int length
    if n < 4 or data[0] != 0 or data[1] != 0 or data[2] != 0:
        return 0
    length = parse_address_and_port(out, data + 3, n - 3)
    return 3 + length if length > 0 and out.port != 0 else 0


cdef int build_socks5_reply(char *out, int code, int family, const uint8_t *address,
                            uint16_t port) noexcept nogil:
    out[0] = 5
    out[1] = <char>code
    out[2] = 0
    return 3 + put_address_and_port(out + 3, family, address, port)


cdef int build_socks4_reply(char *out, bint granted) noexcept nogil:
    memset(out, 0, 8)
    out[1] = GRANTED_4 if granted else REFUSED_4
    return 8


cdef int build_method(char *out, int method) noexcept nogil:
    out[0] = 5
    out[1] = <char>method
    return 2


cdef int build_welcome(char *out) noexcept nogil:
    return build_status(out, 0)


cdef int build_status(char *out, int status) noexcept nogil:
    """RFC 1929: 0 is success, and every other value a failure."""
    out[0] = PASSWORD_VERSION
    out[1] = <char>status
    return 2


cdef int build_socks_refusal(char *out, int message, int outcome) noexcept nogil:
    cdef int code = socks_code_of(outcome)
    if code == 0:
        return 0
    if message == OF_GREETING:
        return 0 if outcome == BAD_SOCKS else build_method(out, METHOD_REFUSED)
    if message == OF_PASSWORD:
        return build_status(out, code)
    if message == OF_REQUEST_4:
        return build_socks4_reply(out, False)
    return build_socks5_reply(out, code, 0, NULL, 0)


cdef int build_socks_success(char *out, int message) noexcept nogil:
    """The address that the origin's connection has here is not disclosed."""
    if message == OF_REQUEST_4:
        return build_socks4_reply(out, True)
    return build_socks5_reply(out, SOCKS_GRANTED, 0, NULL, 0)


cdef int build_datagram_header(char *out, int family, const uint8_t *address,
                               uint16_t port) noexcept nogil:
    memset(out, 0, 3)
    return 3 + put_address_and_port(out + 3, family, address, port)


cdef int put_address_and_port(char *out, int family, const uint8_t *address,
                              uint16_t port) noexcept nogil:
    cdef int length = 16 if family == 6 else 4
    out[0] = IPV6 if family == 6 else IPV4
    if family:
        memcpy(out + 1, address, length)
    else:
        memset(out + 1, 0, length)
    out[1 + length] = <char>(port >> 8)
    out[2 + length] = <char>(port & 255)
    return 3 + length


cdef inline uint16_t read_port(const char *data) noexcept nogil:
    return <uint16_t>(<uint8_t>data[0] << 8 | <uint8_t>data[1])
