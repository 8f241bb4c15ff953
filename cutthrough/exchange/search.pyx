# cython: language_level=3, boundscheck=False, wraparound=False
"""Octets that are searched for in a text.

Each captured answer is searched for the secrets of its request. Python's `in` took 140 to
390 µs for 256 KiB, memmem takes 24 to 47.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef extern from "string.h":
    void *memmem(const void *data, size_t n, const void *part, size_t n_part) noexcept

cdef enum:
    MOST_WORK = 1 << 28             # octets times parts: some 50 ms

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *n) except NULL


cdef bint has_part(tuple parts, const char *data, size_t n) noexcept:
    """`parts`: bytes."""
    cdef bytes part
    for part in parts:
        if memmem(data, n, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)) != NULL:
            return True
    return False


def has_any(tuple parts not None, data not None):
    """May the text have one of these? Yes, too, if to look would be too much work. `data`:
    bytes, or a str without halves of characters, which is looked at in UTF-8."""
    cdef Py_ssize_t n = 0
    cdef const char *text
    if isinstance(data, str):
        text = PyUnicode_AsUTF8AndSize(data, &n)
    else:
        text, n = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    return n * len(parts) > MOST_WORK or has_part(parts, text, n)
