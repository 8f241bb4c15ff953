"""Request targets: bytes -> canonical host, port, path (R16, R25; RFC 9112 section 3.2)."""

from cutthrough.wire.authority cimport Target
from cutthrough.wire.http1 cimport Head

cdef enum Form:
    FORM_ORIGIN = 0         # /path?query
    FORM_ABSOLUTE           # http://host:port/path?query
    FORM_AUTHORITY          # host:port, CONNECT only
    FORM_ASTERISK           # *, OPTIONS only
    FORM_SECURE             # https://host:port/path?query, inside an intercepted connection

# Reads head.target according to the method. Returns 0, or minus the Outcome. Checks Host too:
# more than one, a missing one in HTTP/1.1, or one that is not uri-host [":" port] is
# BAD_REQUEST. In absolute and authority form its value is otherwise ignored (R16: the target
# wins); in the other forms it must be a destination. `ws://` is read as `http://` if the request
# offers an upgrade. `inside`: the request came in an intercepted connection.
cdef int read_target(Target *target, const Head *head, const char *buf,
                     bint inside) noexcept nogil
