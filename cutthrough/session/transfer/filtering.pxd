"""One exchange in the hands of filters."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cutthrough.net.buffers cimport bytes_of
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.responder cimport Responder
from cutthrough.wire.framing cimport Framing
from cutthrough.wire.http1 cimport Head

cdef enum Mark:
    CHANGED_REQUEST = 1
    CHANGED_RESPONSE = 2
    WAS_AT_BREAKPOINT = 4


cdef class Filtering(Responder):
    """The decisions of one exchange's filters."""
    cdef bytes held             # the start of a response, if the filters have its head
    cdef int used               # bytes of its head
    cdef uint8_t passes         # the filters have let the response pass
    cdef bytes established      # the head of a tunnel's 200 with their fields; None: none
    cdef bytes added            # secrets of the filters, by lines; None: none
    cdef object mask            # masks them in a value of a head, octet for octet
    cdef object up_side         # of a WebSocket in their hands, see messages; None: of none
    cdef object down_side
    cdef uint8_t marks          # of Mark, for the log
    cdef uint8_t hides_body     # the request's: no capture has it
    cdef bytes shown            # the request's head for log and capture; None: Client.head
    cdef uint16_t shown_path_at, shown_path_len
    cdef uint32_t up_held_us    # time in the functions for the request's body
    cdef uint32_t down_held_us  # … and for the response

    cdef int show(self, bytes text) except -1
    cdef int mask_head(self, const Head *head, char *data) except -1
    cdef int mask_text(self, char *text, uint32_t n) except -1


cdef inline Filtering filtering_of(Client client):
    return <Filtering>client.extras.filtering


# Whether a function of filters has the exchange now. It has a budget, so the deadlines of peers wait.
cdef bint are_at_work(Client client) except -1

# A request's head for log and captures: without the additions of filters (R82). All zero: there is
# none.
cdef struct Shown:
    const char *data
    size_t n
    uint16_t path_at, path_len


cdef inline Shown shown_of(Client client) noexcept:
    cdef Shown shown
    if client.extras.filtering is not None and filtering_of(client).shown is not None:
        shown.data, shown.n = filtering_of(client).shown, len(filtering_of(client).shown)
        shown.path_at = filtering_of(client).shown_path_at
        shown.path_len = filtering_of(client).shown_path_len
    else:
        shown.data = NULL if client.head == NULL else bytes_of(client.head)
        shown.n = 0 if client.head == NULL else client.head.end
        shown.path_at, shown.path_len = client.request.path_at, client.request.path_len
    return shown


# Is the response in the filters' hands? Then nothing more is read from the origin.
cdef inline bint is_held(Client client) noexcept:
    return client.extras.filtering is not None and filtering_of(client).held is not None
