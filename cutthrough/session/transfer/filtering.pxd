"""One exchange in the hands of filters."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from cutthrough.net.buffers cimport bytes_of
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.sluice cimport Sluice
from cutthrough.wire.framing cimport Framing
from cutthrough.wire.http1 cimport Head

cdef enum Mark:
    CHANGED_REQUEST = 1
    CHANGED_RESPONSE = 2
    WAS_AT_BREAKPOINT = 4


cdef class Filtering:
    """Carries out the decisions of one exchange's filters. Client.filtering, until its end."""
    cdef Client client          # None: the exchange has ended
    cdef object run             # of filters.run
    cdef bytes held             # the begin of a response, if the filters have its head
    cdef int used               # bytes of its head
    cdef uint8_t passes         # the filters have let the response pass
    cdef object function        # the origin is this, see local; None: another one
    cdef Filtering replay       # of the same request; None: its rule does not replay
    cdef object behind          # the request's body behind filters, for the player; None: as it comes
    cdef uint8_t is_played      # the player has the request, or had it
    cdef uint8_t is_answered    # … and answers it as its origin: it takes the request's body alone
    cdef uint8_t tapes          # the response is taped as its origin sends it
    cdef bytes established      # the head of a tunnel's 200 with their fields; None: none
    cdef bytes added            # secrets of the filters, by lines; None: none
    cdef Sluice up              # None: the body goes up without them
    cdef Sluice down
    cdef object up_side         # of a WebSocket in their hands, see messages; None: of none
    cdef object down_side
    cdef uint8_t ending         # the Outcome of an answer of theirs
    cdef uint8_t collected      # the request's body was read whole: see recorded
    cdef uint8_t marks          # of Mark, for the log
    cdef uint8_t hides_body     # the request's: no capture has it
    cdef bytes shown            # the request's head for log and capture; None: Client.head
    cdef uint16_t shown_path_at, shown_path_len
    cdef uint32_t up_held_us    # time in the functions for the request's body
    cdef uint32_t down_held_us  # … and for the response

    cdef int drop_origin(self) except -1
    cdef Sluice open_down(self, bint chunked, int64_t left)
    cdef int show(self, bytes text) except -1

# Sends the head of an answer that no origin gave, and `m` bytes of body, framed as it says; 0: it
# comes later, or never. The state is RELAY.
cdef int send_head_now(Client client, bytes text, const char *body, size_t m) except -1


cdef inline Filtering filtering_of(Client client):
    return <Filtering>client.extras.filtering


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


# Has the tape the response already, as the origin has sent it?
cdef inline bint tapes_origin(Client client) noexcept:
    return client.extras.filtering is not None and filtering_of(client).tapes


# Is the response in the filters' hands? Then nothing more is read from the origin.
cdef inline bint is_held(Client client) noexcept:
    return client.extras.filtering is not None and filtering_of(client).held is not None


# The open sluices of a client; None: that body does not go through filters.
cdef inline Sluice up_sluice(Client client):
    return None if client.extras.filtering is None else filtering_of(client).up


cdef inline Sluice down_sluice(Client client):
    return None if client.extras.filtering is None else filtering_of(client).down
