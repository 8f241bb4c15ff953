# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How much a text of JSON will become, before it is parsed (R63).

A parsed document takes 60 to 90 times its text, so the bytes of a text are no bound. Its
values and its depth are, and one pass over the text counts them: some 1 ns a byte.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept

cdef enum:
    CHARACTERS = 64             # of a text, counted as one more value


cdef int scan(const unsigned char *at, Py_ssize_t size, Py_ssize_t most_values,
              int most_depth, Py_ssize_t *values) noexcept nogil:
    """0; 1: there are more values, 2: they lie deeper. Text that is no JSON has a count, too."""
    cdef const unsigned char *end = at + size
    cdef Py_ssize_t n = 1
    cdef int depth = 0
    cdef unsigned char c
    while at < end:
        c = at[0]
        at += 1
        if c == b'"':
            while at < end and at[0] != b'"':
                at += 2 if at[0] == b"\\" else 1
            at += 1
        elif c == b"," or c == b":":
            n += 1
        elif c == b"[" or c == b"{":
            n += 1
            depth += 1
            if depth > most_depth:
                return 2
        elif c == b"]" or c == b"}":
            depth -= 1
        else:
            continue
        if n > most_values:
            return 1
    values[0] = n
    return 0


def count_values(bytes text not None, Py_ssize_t most_values, int most_depth):
    """Values and keys in the text; -1: there are more, -2: they lie deeper."""
    cdef Py_ssize_t values = 0
    cdef int beyond = scan(<const unsigned char *>PyBytes_AS_STRING(text),
                           PyBytes_GET_SIZE(text), most_values, most_depth, &values)
    return -beyond if beyond else values


cdef Py_ssize_t count(object value, int depth) noexcept:
    cdef Py_ssize_t n = 1, at = 0
    cdef PyObject *key
    cdef PyObject *inner
    if depth > 1000:
        return n
    if type(value) is str:
        n += PyUnicode_GET_LENGTH(value) // CHARACTERS
    elif type(value) is dict:
        while PyDict_Next(value, &at, &key, &inner):
            n += count(<object>key, depth + 1) + count(<object>inner, depth + 1)
    elif type(value) is list:
        while at < PyList_GET_SIZE(value):
            n += count(<object>PyList_GET_ITEM(value, at), depth + 1)
            at += 1
    return n


def count_parsed(value):
    """Returns the units of work on a document: its values and keys, those of long texts more
    than once. Values deeper than 1000 do not count."""
    return count(value, 0)
