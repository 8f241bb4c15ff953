"""Texts where they are: in the records of a ring, and in Python's."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcpy
from cutthrough.tape.batch cimport TEXT, Batch
from cutthrough.tape.end_record cimport N_TEXTS, EndRecord

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *n) except NULL

cdef struct Text:
    const char *data
    size_t n


cdef inline int texts_of(const EndRecord *end, Text *texts) noexcept:
    cdef const char *at = <const char *>(end + 1)
    cdef inline int i
    for i in range(<int>N_TEXTS):
        texts[i].data, texts[i].n = at, end.lengths[i]
        at += end.lengths[i]
    return 0


cdef inline Text text_of(bytes text) noexcept:
    """Returns a view of `text`, which lives as long as `text`."""
    cdef Text view
    view.data, view.n = PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    return view


cdef inline int split_heads(Text heads, Text *up, Text *down) except -1:
    """The head of an upgrade's request, if it is there, and the response's."""
    cdef uint32_t n = 0
    if heads.n < sizeof(n):
        raise ValueError("heads without their length")
    memcpy(&n, heads.data, sizeof(n))
    if n > heads.n - sizeof(n):
        raise ValueError("heads that are shorter than their length")
    up.data, up.n = heads.data + sizeof(n), n
    down.data, down.n = up.data + n, heads.n - sizeof(n) - n
    return 0


cdef inline int put_some(Batch to, Text text) except -1:
    """Null if it is empty."""
    return to.latin1(text.data, text.n) if text.n else to.nothing()


cdef inline int put_joined(Batch to, Text first, const char *second, size_t n) except -1:
    cdef char *at = to.begin_of(TEXT, first.n + n)
    memcpy(at, first.data, first.n)
    memcpy(at + first.n, second, n)
    return to.end_at(at + first.n + n)


cdef inline const char *behind_blank(const char *at, const char *end) noexcept:
    cdef const char *blank = <const char *>memchr(at, 32, end - at)
    if blank == NULL:
        return NULL
    return blank + 1


cdef inline str latin1_of(Text text):
    return PyUnicode_DecodeLatin1(text.data, text.n, NULL)


cdef inline Text utf8_of(str text) except *:
    """Returns a view of `text` in UTF-8, which lives as long as `text`."""
    cdef Text view
    cdef Py_ssize_t n = 0
    view.data = PyUnicode_AsUTF8AndSize(text, &n)
    view.n = n
    return view


cdef inline bint is_ascii(const char *data, size_t n) noexcept:
    cdef uint8_t bits = 0
    cdef size_t i
    for i in range(n):
        bits |= <uint8_t>data[i]
    return bits < 128
