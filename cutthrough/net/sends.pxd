"""The sends of a batch of events, in one submission to the kernel."""

from cutthrough.net.linux cimport ENOBUFS, ENOMEM
from cutthrough.net.transport cimport Socket

cdef enum:
    LEAST_EVENTS = 2        # a batch of one has nothing to collect
    # Octets of one send: 16 KiB with a head, or a whole record of TLS. A longer one is worth a system
    # call of its own
    MOST_COLLECTED = 20480

cdef bint in_batch          # of several events, until end_batch
cdef bint collecting        # in a batch, if there is a ring
cdef bint ending            # collecting in the batch hook: each collected send is its socket's last
cdef int pending            # sends before submit_sends

# Called with each send's result: its `n` octets taken, fewer, or -errno. May call wake_later.
ctypedef void (*result_t)(void *owner, const char *data, size_t n, ssize_t result) noexcept nogil

# The pump or TLS connection of a send, its result hook and its descriptor.
cdef struct Sender:
    void *owner
    result_t on_result
    int fd

# Would `collect` take a send of so many octets now?
cdef bint can_collect(size_t n) noexcept nogil
# Copies a send of two pieces. False: not collected, and must be sent directly. `on_result` is called
# with `owner` before the batch ends: until then `owner` stays allocated, and `fd` open.
cdef bint collect(const Sender *sender, const char *a, size_t n, const char *b,
                  size_t m) noexcept nogil
# Whether a send to this descriptor is pending.
cdef bint has_send(int fd) noexcept nogil
# Sends all that is pending, and calls the hook for each.
cdef void submit_sends() noexcept nogil
# After a failed send: what has come is still read, and behind it an end, which is an event. Without it
# none may come, because errors such as ENOBUFS are of this send alone.
cdef void end_reading(int fd) noexcept nogil
# The same, if the errno of the send is such a one: of others the kernel reports an end itself.
cdef inline void end_unnoticed(int fd, int error) noexcept nogil:
    if error == ENOBUFS or error == ENOMEM:
        end_reading(fd)

# The socket's endpoint gets a call at the end of the batch, as if an event had come.
cdef void wake_later(Socket *s) noexcept nogil
# The next socket of wake_later; NULL: none.
cdef Socket *next_woken() noexcept nogil
# Is called first at the end of each batch: its writes may be sent together.
ctypedef void (*batch_end_t)() noexcept nogil
cdef void set_batch_hook(batch_end_t hook) noexcept nogil
cdef void begin_batch(int events) noexcept nogil
# Sends all that is pending. True: sockets are to be woken.
cdef bint end_batch() noexcept nogil
