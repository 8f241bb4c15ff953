# cython: language_level=3
"""A request's passage through parents, while it has one: fields, no code.

`session.parents` chooses and dials, `session.dialogue` talks. A tunnel at rest has none.
"""

cimport cython


@cython.no_gc
cdef class Passage:
    pass
