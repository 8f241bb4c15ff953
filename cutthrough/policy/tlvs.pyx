# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A rule's demands of the TLVs in a PROXY header.

If a TLV is missing, it meets no demand, so such a rule never matches a client without a load
balancer. The server name is a host, compared with patterns as a request's is; the other values are
compared octet by octet.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
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


cdef class TlvSets:

    def __cinit__(self):
        self.numbers = {(): 0}
        self.texts = []
        self.n = 1
        self.sets = <Set *>malloc(sizeof(Set))
        if self.sets == NULL:
            raise MemoryError
        memset(self.sets, 0, sizeof(Set))

    def __dealloc__(self):
        cdef uint32_t i, j
        for i in range(self.n):
            for j in range(self.sets[i].n):
                free(self.sets[i].wanted[j].values)
            free(self.sets[i].wanted)
        free(self.sets)

    cdef uint32_t number(self, tuple tlvs) except? 0:
        number = self.numbers.get(tlvs)
        if number is None:
            number = self.numbers[tlvs] = self.n
            self.add(tlvs)
        return number

    cdef int add(self, tuple tlvs) except -1:
        cdef Wanted *wanted
        cdef Set *sets = <Set *>realloc(self.sets, (self.n + 1) * sizeof(Set))
        cdef size_t i, j
        cdef bytes value
        if sets == NULL:
            raise MemoryError
        self.sets = sets
        wanted = <Wanted *>calloc(len(tlvs), sizeof(Wanted))
        if wanted == NULL:
            raise MemoryError
        sets[self.n] = Set(<uint32_t>len(tlvs), wanted)
        self.n += 1                     # from here on __dealloc__ frees it
        for i, (name, texts) in enumerate(tlvs):
            values = sorted({
                text.encode() if name == "authority" else octets_of(text) for text in texts})
            wanted[i].tlv = TLVS.index(name)
            wanted[i].values = <Value *>malloc(len(values) * sizeof(Value) + 1)
            if wanted[i].values == NULL:
                raise MemoryError
            wanted[i].n = <uint32_t>len(values)
            for j, value in enumerate(values):
                self.texts.append(value)
                wanted[i].values[j] = Value(value, len(value))
        return 0

    cdef bint are_met(self, uint32_t number, const char *records, size_t n) noexcept nogil:
        cdef const Set *demands = &self.sets[number]
        cdef const Wanted *wanted
        cdef const char *value
        cdef size_t length = 0
        cdef uint32_t i
        for i in range(demands.n):
            wanted = &demands.wanted[i]
            value = find_kept(records, n, wanted.tlv, &length)
            if value == NULL or not (
                    contains_host(wanted, value, length) if wanted.tlv == TLV_AUTHORITY
                    else contains(wanted, value, length)):
                return False
        return True


cdef bint contains_host(const Wanted *wanted, const char *text, size_t n) noexcept nogil:
    """Is it one of the hosts, or below one of `*.host`?"""
    cdef Target target
    cdef char[MAX_HOST + 1] pattern
    cdef size_t i
    if parse_host(&target, text, n) != 0:
        return False
    if contains(wanted, target.host, target.host_len):
        return True
    if target.host_kind != HOST_NAME:
        return False
    pattern[0] = b"*"
    for i in range(1, target.host_len):
        if target.host[i] == b".":
            memcpy(pattern + 1, target.host + i, target.host_len - i)
            if contains(wanted, pattern, target.host_len - i + 1):
                return True
    return False


cdef bint contains(const Wanted *wanted, const char *text, size_t n) noexcept nogil:
    cdef uint32_t low = 0, high = wanted.n, middle
    cdef int order
    while low < high:
        middle = (low + high) // 2
        order = compare(text, n, &wanted.values[middle])
        if order == 0:
            return True
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return False


cdef int compare(const char *text, size_t n, const Value *value) noexcept nogil:
    """As Python orders bytes."""
    cdef int order = memcmp(text, value.text, min(n, value.n))
    if order or n == value.n:
        return order
    return -1 if n < value.n else 1
