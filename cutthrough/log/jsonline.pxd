"""One line about one ending, in a preset or by a format's steps."""

from cutthrough.log.text cimport Quote
from cutthrough.session.client cimport Client
from cutthrough.wire.http1 cimport Head

cdef class Line:
    """How a line is written. Filled in by the presets."""
    cdef readonly int worker
    cdef bint wants_fields          # it may name fields of a head that is not kept
    # Writes the line at `p`, without its end, and returns where that is: `last` at the
    # latest. What is too long is cut, and ends in "…".
    cdef char *put(self, char *p, Client c, int outcome, const char *last) noexcept
    # The line is not to be written.
    cdef int skip(self, Client c) except -1
    # A head that will not be there at the end, of a tunnel.
    cdef int note_head(self, Client c, const Head *head, const char *data) except -1

# tunnel or request.
cdef const char *kind_of(Client c) noexcept
cdef char *put_method(char *p, Client c) noexcept
# Up to `last`, what was cut marked.
cdef char *put_url(char *p, Client c, Quote quote, const char *last) noexcept
