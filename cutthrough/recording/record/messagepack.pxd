"""Rows in MessagePack: the shortest form of each value. All write at `at`, and return the place
behind."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef inline char *copied(char *at, const char *data, Py_ssize_t n) noexcept nogil:
    memcpy(at, data, n)
    return at + n

# A number in decimal digits, as in a URL.
cdef inline char *put_decimal(char *at, uint32_t number) noexcept nogil:
    cdef char[10] digits
    cdef int n = 0
    while n == 0 or number:
        n += 1
        digits[10 - n] = <char>(c"0" + number % 10)
        number //= 10
    return copied(at, digits + 10 - n, n)

# What is packed already.
cdef inline char *put_bytes(char *at, bytes data) noexcept:
    return copied(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

# A mark, and n bytes of a number.
cdef inline char *put_big(char *at, uint8_t mark, uint64_t number, int n) noexcept nogil:
    cdef int i
    at[0] = <char>mark
    for i in range(n):
        at[n - i] = <char>(number >> 8 * i)
    return at + 1 + n

cdef inline char *put_number(char *at, uint64_t number) noexcept nogil:
    if number < 0x80:
        at[0] = <char>number
        return at + 1
    if number < 0x100:
        return put_big(at, 0xcc, number, 1)
    if number < 0x10000:
        return put_big(at, 0xcd, number, 2)
    if number >> 32 == 0:
        return put_big(at, 0xce, number, 4)
    return put_big(at, 0xcf, number, 8)

cdef inline char *put_map(char *at, int n) noexcept nogil:
    at[0] = <char>(0x80 | n)                # all have fewer than 16 entries
    return at + 1

cdef inline char *put_array(char *at, uint32_t n) noexcept nogil:
    if n < 16:
        at[0] = <char>(0x90 | n)
        return at + 1
    return put_big(at, 0xdc, n, 2) if n < 0x10000 else put_big(at, 0xdd, n, 4)

cdef inline char *put_text(char *at, const char *data, Py_ssize_t n) noexcept nogil:
    if n < 32:
        at[0] = <char>(0xa0 | n)
        at += 1
    elif n < 0x100:
        at = put_big(at, 0xd9, n, 1)
    elif n < 0x10000:
        at = put_big(at, 0xda, n, 2)
    else:
        at = put_big(at, 0xdb, n, 4)
    return copied(at, data, n)

cdef inline char *put_data(char *at, const char *data, Py_ssize_t n) noexcept nogil:
    if n < 0x100:
        at = put_big(at, 0xc4, n, 1)
    elif n < 0x10000:
        at = put_big(at, 0xc5, n, 2)
    else:
        at = put_big(at, 0xc6, n, 4)
    return copied(at, data, n)
