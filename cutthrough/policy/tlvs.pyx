# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A rule's demands of the TLVs in a PROXY header.

If a TLV is missing, it meets no demand, so such a rule never matches a client without a load
balancer. The server name is a host, compared with patterns as a request's is; the other values are
compared octet by octet.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcpy
from cutthrough.policy.value_sets cimport Set, Values, ValueSets, has_value
from cutthrough.wire.proxy_header cimport TLV_AUTHORITY, find_kept
from cutthrough.wire.authority cimport HOST_NAME, MAX_HOST, Target, parse_host
from cutthrough.wire.proxy_header import TLVS

# Those that a rule may name; the others describe the connection for logs
TLVS_OF_RULES = tuple([name for name in TLVS
                       if name not in ("unique_id", "tls_version", "tls_cipher")])

cdef enum:
    MOST_VALUE = 255            # octets of a kept value


def octets_of(text):
    """The octets of a value in text: 0x and pairs of hexadecimal digits, else the text itself.
    Raises ValueError."""
    try:
        octets = bytes.fromhex(text[2:]) if text[:2] == "0x" else text.encode()
    except ValueError:
        raise ValueError(f"{text!r}: behind 0x, two hexadecimal digits are an octet") from None
    if not 0 < len(octets) <= <int>MOST_VALUE:
        raise ValueError(f"{text!r} has {len(octets)} octets, not 1 to {<int>MOST_VALUE}")
    return octets


def parse_value(text):
    """Returns the value as it is. Raises ValueError."""
    octets_of(text)
    return (text,)


cdef class TlvSets(ValueSets):

    cdef list read(self, tuple tlvs):
        return [(TLVS.index(name), {
            text.encode() if name == "authority" else octets_of(text) for text in texts})
            for name, texts in tlvs]

    cdef bint are_met(self, uint32_t number, const char *records, size_t n) noexcept nogil:
        cdef const Set *demands = &self.sets[number]
        cdef const Values *wanted
        cdef const char *value
        cdef size_t length = 0
        cdef uint32_t i
        for i in range(demands.n):
            wanted = &demands.rows[i]
            value = find_kept(records, n, wanted.kind, &length)
            if value == NULL or not (
                    contains_host(wanted, value, length) if wanted.kind == TLV_AUTHORITY
                    else has_value(wanted, value, length)):
                return False
        return True


cdef bint contains_host(const Values *wanted, const char *text, size_t n) noexcept nogil:
    """Is it one of the hosts, or below one of `*.host`?"""
    cdef Target target
    cdef char[MAX_HOST + 1] pattern
    cdef size_t i
    if parse_host(&target, text, n) != 0:
        return False
    if has_value(wanted, target.host, target.host_len):
        return True
    if target.host_kind != HOST_NAME:
        return False
    pattern[0] = b"*"
    for i in range(1, target.host_len):
        if target.host[i] == b".":
            memcpy(pattern + 1, target.host + i, target.host_len - i)
            if has_value(wanted, pattern, target.host_len - i + 1):
                return True
    return False
