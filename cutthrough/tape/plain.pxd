"""A body that is kept as it came."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from cutthrough.tape.batch cimport Batch
from cutthrough.tape.texts cimport Text

# ASCII text, if it is all of `size` bytes, without chunks, coding and any of `secrets`; None:
# exchange.bodies has to look at it. `head`: its own; `of_request`: that says its length, too.
cdef bytes plain_of(list pieces, uint64_t size, Text head, bint of_request, tuple secrets)


# Its cells, or those of the other body if `plain` is None.

cdef inline int put_size(Batch to, bytes plain, object size) except -1:
    return to.any(size) if plain is None else to.number(PyBytes_GET_SIZE(plain))


cdef inline int put_content(Batch to, bytes plain, object content) except -1:
    if plain is None:
        return to.any(content)
    return to.text(PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))
