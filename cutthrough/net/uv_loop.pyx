# cython: language_level=3
"""libuv's loop, asleep in a worker's epoll set.

    uv_run -> prepare handle -> epoll_wait(the worker's set) -> a batch -> epoll_wait ...
                             -> libuv has work of its own -> uv_run goes on

Else libuv waits in its own set, which contains the worker's: a batch takes two epoll_waits, a
nested wake-up in the kernel and a turn of the loop. Here the worker's set contains libuv's
(`uv_backend_fd`), and the loop turns only for timers, signals, other descriptors, and what
`call_soon` queued.

`uv_backend_timeout` says how long the loop may wait; it is 0 if the loop has work, or a descriptor
that libuv has not yet put into its set. The set contains a timer too (timerfd), because for a
timeout of epoll_wait the kernel sets and removes a timer in each sleep: 0.5 us. It is set again if
the loop's next timer is earlier. If it comes too early, that costs a turn.

While the loop turns, an idle handle keeps libuv from waiting, because its set does not contain ours.
"""

import sys

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.linux cimport epoll_event, errno

cdef extern from "libuv.h" nogil:
    enum:
        LIBUV_IDLE
        LIBUV_PREPARE
    ctypedef void (*libuv_callback)(void *handle) noexcept nogil
    struct libuv:
        int (*backend_fd)(const void *loop) noexcept nogil
        int (*backend_timeout)(const void *loop) noexcept nogil
        uint64_t (*now)(const void *loop) noexcept nogil
        void (*update_time)(void *loop) noexcept nogil
        size_t (*handle_size)(int kind) noexcept nogil
        int (*prepare_init)(void *loop, void *handle) noexcept nogil
        int (*prepare_start)(void *handle, libuv_callback callback) noexcept nogil
        int (*idle_init)(void *loop, void *handle) noexcept nogil
        int (*idle_start)(void *handle, libuv_callback callback) noexcept nogil
        int (*idle_stop)(void *handle) noexcept nogil
        void (*unref)(void *handle) noexcept nogil
        void (*close)(void *handle, libuv_callback callback) noexcept nogil
    int libuv_load(libuv *uv, const char *path)

cdef struct Sleep:
    void *loop
    void *prepare
    void *idle
    int timer
    uint64_t timer_ms       # when it comes, by the loop's clock; 0: it is not set
    int epfd                # -1: no loop of this process sleeps in a set
    epoll_event *events
    int most
    events_t on_events
    void *owner

cdef libuv uv
cdef Sleep sleep
sleep.epfd = -1


cdef void wait(void *handle) noexcept nogil:
    """Waits in the poller's set, before each of the loop's own waits."""
    cdef int n, i, timeout
    cdef bint has_work = False
    uv.idle_stop(sleep.idle)
    while not has_work:
        timeout = uv.backend_timeout(sleep.loop)
        n = linux.epoll_wait(sleep.epfd, sleep.events, sleep.most,
                             timeout if timeout <= 0 else by_timer(timeout))
        uv.update_time(sleep.loop)
        # EINTR: a handler in Python wrote to a socket of the loop, or it was no such signal
        has_work = timeout == 0 or n == 0
        i = 0
        while i < n:
            if sleep.events[i].data.ptr == NULL or sleep.events[i].data.ptr == &sleep.timer:
                if sleep.events[i].data.ptr != NULL:
                    sleep.timer_ms = 0
                n -= 1
                sleep.events[i] = sleep.events[n]
                has_work = True
            else:
                i += 1
        if n > 0:
            hand_over(n)
        if sleep.epfd < 0:              # the owner left
            return
    uv.idle_start(sleep.idle, do_nothing)


cdef int by_timer(int timeout) noexcept nogil:
    """Has the timer come after `timeout` ms. Returns what epoll_wait is to have."""
    # One more, because the loop's clock has whole ones: what was asked for at 0.9, to come 5 ms
    # later, is due at 5, and came at 4.1. Relative, as epoll_wait's is, it would be as late as a turn
    cdef uint64_t at_ms = uv.now(sleep.loop) + timeout + 1
    cdef linux.itimerspec at
    if sleep.timer_ms == 0 or at_ms < sleep.timer_ms:
        memset(&at, 0, sizeof(at))
        at.it_value.tv_sec = at_ms // 1000
        at.it_value.tv_nsec = at_ms % 1000 * 1000000
        if linux.timerfd_settime(sleep.timer, linux.TFD_TIMER_ABSTIME, &at, NULL) < 0:
            return timeout
        sleep.timer_ms = at_ms
    return -1


cdef void hand_over(int n) noexcept with gil:
    sleep.on_events(sleep.owner, n)


cdef void do_nothing(void *handle) noexcept nogil:
    pass


cdef bint enter_set(object loop, int epfd, epoll_event *events, int most, events_t on_events,
                    void *owner) except -1:
    cdef epoll_event event
    library = sys.modules.get("uvloop.loop")
    if sleep.epfd >= 0 or library is None or not isinstance(loop, library.Loop):
        return False
    if libuv_load(&uv, library.__file__.encode()) < 0:
        return False
    capsule = library.libuv_get_loop_t_ptr(loop)
    sleep.loop = PyCapsule_GetPointer(capsule, NULL)
    event.events = linux.EPOLLIN
    event.data.ptr = NULL
    if linux.epoll_ctl(epfd, linux.EPOLL_CTL_ADD, uv.backend_fd(sleep.loop), &event) < 0:
        raise OSError(errno, "epoll_ctl")
    sleep.timer_ms = 0
    sleep.timer = linux.timerfd_create(
        linux.CLOCK_MONOTONIC, linux.TFD_CLOEXEC | linux.TFD_NONBLOCK)
    event.events = linux.EPOLLIN | linux.EPOLLET      # so nobody has to read it
    event.data.ptr = &sleep.timer
    if sleep.timer < 0 or linux.epoll_ctl(epfd, linux.EPOLL_CTL_ADD, sleep.timer, &event) < 0:
        raise OSError(errno, "timerfd")
    sleep.prepare = calloc(1, uv.handle_size(LIBUV_PREPARE))
    sleep.idle = calloc(1, uv.handle_size(LIBUV_IDLE))
    if sleep.prepare == NULL or sleep.idle == NULL:
        free(sleep.prepare)
        free(sleep.idle)
        raise MemoryError
    sleep.epfd = epfd
    sleep.events = events
    sleep.most = most
    sleep.on_events = on_events
    sleep.owner = owner
    uv.idle_init(sleep.loop, sleep.idle)
    uv.prepare_init(sleep.loop, sleep.prepare)
    uv.prepare_start(sleep.prepare, wait)
    uv.unref(sleep.prepare)             # neither keeps the loop alive
    uv.unref(sleep.idle)
    return True


cdef void leave_set(int epfd) noexcept:
    if sleep.epfd != epfd or epfd < 0:
        return
    sleep.epfd = -1
    linux.epoll_ctl(epfd, linux.EPOLL_CTL_DEL, uv.backend_fd(sleep.loop), NULL)
    linux.close(sleep.timer)
    uv.close(sleep.prepare, free)
    uv.close(sleep.idle, free)
