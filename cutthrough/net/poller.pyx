# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A worker's inner epoll set.

The set holds every socket of the data plane. uvloop sleeps in it (see `uv_loop`); asyncio's loop
watches its fd. Python is entered once per wake-up, and the whole batch is handled in C.

    uvloop's prepare handle -> epoll_wait(epfd)                               -> _run_turn(n)
    loop.add_reader(epfd, drain)                -> drain -> epoll_wait(epfd)  -> _run_turn(n)
                                                         -> endpoint.on_ready() ...

Sockets are registered once, for everything, edge-triggered, because this saves an epoll_ctl call
for each change of interest. Readiness stays in `Socket.ready` until a call returns EAGAIN.
If an endpoint stops with work left (its turn is over), it calls `call_again`.

The set holds one reference to each endpoint, from `add` to `remove`. An endpoint removed
within a batch stays allocated until the batch ends, because the kernel may already have
returned its pointer: the stale event finds the endpoint closed and does nothing.
"""

import os
import sys

cimport cython
from cpython.exc cimport PyErr_Clear
from cpython.list cimport PyList_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport abort
from cutthrough.net cimport linux
from cutthrough.net.buffers cimport has_room
from cutthrough.net.linux cimport epoll_ctl, epoll_event, errno
from cutthrough.net.sends cimport (
    begin_batch, end_batch, has_send, next_woken, pending, submit_sends)
from cutthrough.net.sysio cimport clock_us, note_events, sys_close
from cutthrough.net.transport cimport Socket
from cutthrough.net.uv_loop cimport enter_set, leave_set

cdef extern from *:
    """
    #ifdef CUTTHROUGH_DEBUG
    #define CUTTHROUGH_ASSERTS 1
    #else
    #define CUTTHROUGH_ASSERTS 0
    #endif
    """
    const bint ASSERTS "CUTTHROUGH_ASSERTS"
    int try_append "PyList_Append"(list items, object item)
    int clear_list "PyList_SetSlice"(list items, Py_ssize_t start, Py_ssize_t end, void *nothing
                                     ) except -1

cdef enum:
    # Interval of the checks for a free block. No event reports one: another worker of this
    # process may have freed it
    STARVED_MS = 100
    BUSY = 4                # events in one epoll_wait that make a second one worthwhile


@cython.no_gc
cdef class Endpoint:

    def __cinit__(self):
        self.sock.fd = -1                   # objects are zeroed, and 0 is stdin

    cdef int on_ready(self) except -1:
        return 0

    cdef int on_deadline(self) except -1:
        return 0

    cdef int on_fault(self) except -1:
        return self.close()

    cdef int close(self) except -1:
        if self.poller is not None:
            self.poller.remove(self)
        return 0

    cdef int set_deadline(self, int64_t after_ms) except -1:
        """Arms or moves the timer; 0: disarms it."""
        if after_ms:
            return self.poller.arm(self, self.poller.time_ms() + after_ms)
        self.poller.wheel.disarm(&self.timer)
        return 0

    cdef bint is_timed(self) noexcept:
        return self.timer.filed_tick != 0


cdef Py_ssize_t offset_of_timer():
    """In an Endpoint, whatever is derived from it: thousands need no pointer back."""
    cdef Endpoint any_one = Endpoint.__new__(Endpoint)
    return <char *>&any_one.timer - <char *><void *>any_one


cdef Py_ssize_t offset_of_socket():
    cdef Endpoint any_one = Endpoint.__new__(Endpoint)
    return <char *>&any_one.sock - <char *><void *>any_one


cdef Py_ssize_t TIMER_AT = offset_of_timer()
cdef Py_ssize_t SOCKET_AT = offset_of_socket()


cdef void expire(Timer *timer) noexcept:
    cdef Endpoint endpoint = <Endpoint><void *>(<char *>timer - TIMER_AT)
    try:
        endpoint.on_deadline()
        if ASSERTS:
            endpoint.poller._check_timed(endpoint)
    except BaseException:
        endpoint.poller.contain(endpoint)


cdef inline int wake(Poller poller, Endpoint endpoint) except -1:
    if not endpoint.is_open:
        return 0                            # closed earlier in this batch
    try:
        endpoint.on_ready()
    except BaseException:
        poller.contain(endpoint)
    if ASSERTS:
        poller._check_timed(endpoint)
    return 0


cdef inline int empty(list items) except -1:
    """As items.clear(), which Cython calls as any method of Python: 300 instructions."""
    return clear_list(items, 0, PyList_GET_SIZE(items), NULL) if PyList_GET_SIZE(items) else 0


cdef void on_events(void *owner, int n) noexcept:
    """Runs a turn for a loop that sleeps in the set. An exception of the turn is raised in the loop."""
    cdef Poller poller = <Poller>owner
    loop = poller.loop
    try:
        poller._begin_turn()
        poller._run_turn(n)
    except BaseException as fault:
        loop.call_soon(reraise, fault)


def reraise(fault):
    raise fault


cdef class Poller:

    def __cinit__(self):
        self.epfd = linux.epoll_create1(linux.EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(errno, "epoll_create1")
        self.wheel = Wheel()
        self.wheel.on_expiry = expire
        self.closed = []
        self.again = []
        self.spare = []
        self.starved = []
        self.fresh = []
        self.later_ms = 0
        self.now_us = clock_us()
        self.wheel.advance(self.now_us // 1000)

    def attach(self, loop, on_fault=None):
        """Starts watching in `loop`. Calls `on_fault(exception)` for each fault (R34)."""
        self.loop = loop
        self.on_fault_hook = on_fault
        self.holds_loop = enter_set(loop, self.epfd, self.events, BATCH, on_events, <void *>self)
        if not self.holds_loop:
            loop.add_reader(self.epfd, self.drain)
        self._plan()

    def detach(self):
        """Leaves the loop and closes the set. Its endpoints must be closed by then."""
        if self.epfd < 0:
            return
        if self.holds_loop:
            leave_set(self.epfd)
        elif self.loop is not None:
            self.loop.remove_reader(self.epfd)
        for handle in (self.soon, self.later):
            if handle is not None:
                handle.cancel()
        linux.close(self.epfd)
        self.epfd = -1
        self.again.clear()
        self.starved.clear()
        self.fresh.clear()
        self.soon = self.later = self.loop = self.on_fault_hook = None

    @property
    def timers(self):
        """How many deadlines are armed."""
        return self.wheel.armed

    def drain(self):
        """Handles a batch of events, the work left over, and the deadlines that have come."""
        self._run_turn(self._take_events(BATCH))

    cdef int _run_turn(self, int n) except -1:
        """Runs a turn with `n` events that were taken."""
        cdef int left = BATCH - n
        cdef Endpoint endpoint
        cdef list again = None
        self.content_left = MOST_CONTENT
        if self.again:                      # calls added from here on wait for the next turn
            again, self.again = self.again, [] if self.spare is None else self.spare
            self.spare = None
        self._handle(n)
        # If there were several events, more are ready by now, and another epoll_wait costs less
        # than a turn of the loop, 2 us
        while n >= BUSY and left > 0:
            n = self._take_events(left)
            left -= n
            self._handle(n)
        if again is not None:
            self.content_left = MOST_CONTENT    # else events could take all of it for ever
            for endpoint in again:
                endpoint.listed = False
                wake(self, endpoint)
            empty(again)
            self.spare = again
        self.wheel.advance(self.now_us // 1000)
        try:
            if self.starved:
                self._wake_starved()
        finally:
            if ASSERTS:
                for endpoint in self.fresh:
                    self._check_timed(endpoint)
                self.fresh.clear()
            self.in_batch = False
            empty(self.closed)
            self._plan()
        if self.exit is not None:
            fault, self.exit = self.exit, None
            raise fault
        return 0

    cdef int _take_events(self, int most) except -1:
        cdef int n = 0
        if not self.holds_loop:            # else uv_loop takes them, before it sleeps
            n = linux.epoll_wait(self.epfd, self.events, most, 0)
        if ASSERTS and n < 0 and errno != linux.EINTR:
            sys.stderr.write(f"epoll_wait: {os.strerror(errno)}\n")
            sys.stderr.flush()
            abort()
        self._begin_turn()
        return max(n, 0)                    # EINTR: the next turn gets the events

    cdef void _begin_turn(self) noexcept:
        self.now_us = clock_us()
        self.in_batch = True

    cdef int _handle(self, int n) except -1:
        cdef int i
        cdef epoll_event *event
        cdef Endpoint endpoint
        # First note all readiness, because one endpoint may check another's (R19)
        for i in range(n):
            event = &self.events[i]
            endpoint = <Endpoint>event.data.ptr
            note_events(&endpoint.sock, event.events)
        begin_batch(n)
        for i in range(n):
            wake(self, <Endpoint>self.events[i].data.ptr)
        if end_batch():
            self._wake_senders()
        return 0

    cdef int _wake_senders(self) except -1:
        """Wakes the senders of a batch that wait for its end, or whose send failed. A sender that was
        closed meanwhile is still allocated, as long as the batch lasts."""
        cdef Socket *s = next_woken()
        while s != NULL:
            wake(self, <Endpoint><void *>(<char *>s - SOCKET_AT))
            s = next_woken()
        return 0

    cdef int add(self, Endpoint endpoint) except -1:
        return self._register(endpoint, linux.EPOLLIN | linux.EPOLLOUT | linux.EPOLLRDHUP
                              | linux.EPOLLPRI | linux.EPOLLET)

    cdef int add_level(self, Endpoint endpoint) except -1:
        return self._register(endpoint, linux.EPOLLIN)

    cdef int want_level(self, Endpoint endpoint, bint wanted) except -1:
        cdef epoll_event event
        event.events = linux.EPOLLIN if wanted else 0
        event.data.ptr = <void *>endpoint
        return epoll_ctl(self.epfd, linux.EPOLL_CTL_MOD, endpoint.sock.fd, &event)

    cdef int _register(self, Endpoint endpoint, uint32_t events) except -1:
        cdef epoll_event event
        event.events = events
        event.data.ptr = <void *>endpoint
        if endpoint.sock.fd >= 0 and epoll_ctl(
                self.epfd, linux.EPOLL_CTL_ADD, endpoint.sock.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl")
        endpoint.poller = self
        endpoint.is_open = True
        if ASSERTS:
            self.fresh.append(endpoint)
        Py_INCREF(endpoint)
        self.registered += 1
        return 0

    cdef int remove(self, Endpoint endpoint) except -1:
        if endpoint.is_open:
            self._unregister(endpoint)
            sys_close(&endpoint.sock)
            Py_DECREF(endpoint)
        return 0

    cdef int release(self, Endpoint endpoint) except -2:
        cdef int fd
        if not endpoint.is_open:
            return -1
        self._unregister(endpoint)
        fd = endpoint.sock.fd
        endpoint.sock.fd = -1
        Py_DECREF(endpoint)
        return fd

    cdef int _unregister(self, Endpoint endpoint) except -1:
        """The caller drops the set's reference."""
        if pending and has_send(endpoint.sock.fd):
            submit_sends()                  # before the descriptor's number can be another's
        endpoint.is_open = False
        self.wheel.disarm(&endpoint.timer)
        # close() alone leaves the entry, with our pointer in it, while another process holds
        # the file: a listening socket always, any socket after a fork
        if endpoint.sock.fd >= 0:
            epoll_ctl(self.epfd, linux.EPOLL_CTL_DEL, endpoint.sock.fd, NULL)
        self.registered -= 1
        if self.in_batch:
            if try_append(self.closed, endpoint) < 0:
                PyErr_Clear()
                Py_INCREF(endpoint)         # it is never freed, rather than within the batch
        return 0

    cdef int call_again(self, Endpoint endpoint) except -1:
        if not endpoint.listed:
            self.again.append(endpoint)
            endpoint.listed = True
            if not self.in_batch:
                self._plan()
        return 0

    cdef int call_when_room(self, Endpoint endpoint) except -1:
        if not endpoint.starved:
            self.starved.append(endpoint)
            endpoint.starved = True
            if not self.in_batch:
                self._plan()
        return 0

    cdef int _wake_starved(self) except -1:
        """Wakes a batch, oldest first, because the first endpoints may take all free blocks."""
        cdef Endpoint endpoint
        cdef Py_ssize_t i = 0
        if has_room():
            try:
                while i < min(len(self.starved), BATCH):
                    endpoint = <Endpoint>self.starved[i]
                    if endpoint.is_open:
                        self.call_again(endpoint)
                    endpoint.starved = False
                    i += 1
            finally:
                del self.starved[:i]
        return 0

    cdef int _check_timed(self, Endpoint endpoint) except -1:
        """Debug builds: an endpoint without a deadline may wait for ever (R30)."""
        if endpoint.is_open and not endpoint.is_timed():
            sys.stderr.write(f"no timer armed: {endpoint!r}, fd {endpoint.sock.fd}\n")
            sys.stderr.flush()
            abort()
        return 0

    cdef void take_time(self) noexcept:
        if not self.in_batch:
            self.now_us = clock_us()

    cdef int64_t time_ms(self) noexcept:
        """The time at the start of this batch; outside of a batch, the current time."""
        self.take_time()
        return self.now_us // 1000

    cdef int arm(self, Endpoint endpoint, int64_t deadline_ms) except -1:
        self.wheel.arm(&endpoint.timer, deadline_ms)
        return 0 if self.in_batch else self._plan()

    cdef int _plan(self) except -1:
        """Schedules the next turn with the loop: at once, or when the next deadline is due."""
        cdef int64_t wait, at
        if self.loop is None:
            return 0
        if self.again and self.soon is None:
            self.soon = self.loop.call_soon(self._turn)
        wait = self.wheel.next_in_ms(self.now_us // 1000)
        if self.starved and not 0 <= wait < STARVED_MS:
            wait = STARVED_MS
        if wait < 0:
            return 0
        at = self.now_us // 1000 + wait
        if self.later is not None and self.later_ms <= at:
            return 0
        later = self.loop.call_later(wait / 1000.0, self._wake)
        if self.later is not None:          # it stays if there is no memory for another one
            self.later.cancel()
        self.later, self.later_ms = later, at
        return 0

    def _turn(self):
        self.soon = None
        self._run_turn(self._take_events(BATCH))

    def _wake(self):
        self.later = None
        self._run_turn(self._take_events(BATCH))

    cdef void contain(self, Endpoint endpoint) noexcept:
        """Counts a connection's fault; it ends that connection, never the worker. Raises nothing,
        because it is called within a batch, and an event of another connection comes once."""
        fault = None
        self.faults += 1
        try:
            fault = sys.exc_info()[1]
            endpoint.on_fault()
        except BaseException:               # on_fault failed too: only close the fd
            self.remove(endpoint)
        try:
            if self.on_fault_hook is not None:
                self.on_fault_hook(fault)
        except Exception as error:          # for a log of it there is no memory
            fault = fault or error
        if isinstance(fault, (KeyboardInterrupt, SystemExit)):
            self.exit = fault               # raised after the batch, which is always completed
