# cython: language_level=3
"""A request's passage through parents, while it has one: fields, no code.

`session.ways.parents` chooses and dials, `session.ways.dialogue` talks. A tunnel at rest has none.
"""

cimport cython


@cython.no_gc
cdef class Passage:
    pass
