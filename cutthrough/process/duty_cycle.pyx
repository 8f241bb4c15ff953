# cython: linetrace=False
# (a signal may interrupt the interpreter anywhere, and tracing needs its lock)
"""Makes a long computation give up its core at short intervals.

A scheduler divides a core between two threads in slices of a tick, 4 ms at 250 Hz. A
niceness changes how many slices a thread gets, not their length. It also counts within a
session or a control group only (sched(7), autogroup), so that it may have no effect on
threads of another group. One such slice is longer than a whole request takes. So the
computation interrupts itself: after each breath, 0.5 ms of computing, a timer's signal
makes it glance, a very short sleep in which another thread can take the core. If the
sleep ends late, the core is wanted, and for 100 ms the computation rests after each
breath, three times as long as it computes. If no other thread wants the core, the
computation keeps it.

    breath ─ glance: is the core wanted? ─ no ─> breath
      ^                    └── yes ──> rest, and for 100 ms after each breath ──┐
      └─────────────────────────────────────────────────────────────────────────┘

The handler is C, because the hash libraries do not return to the interpreter before they
are done. There is one per process, and it owns SIGALRM and ITIMER_REAL. A library's own
threads (argon2 with several lanes) do not rest.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

from cutthrough.net cimport linux
from cutthrough.net.linux cimport timespec

cdef extern from *:
    """
    #include <errno.h>
    static inline void set_errno(int number) { errno = number; }
    """
    void set_errno(int number) noexcept nogil

cdef extern from "<signal.h>" nogil:
    int SIGALRM, SA_RESTART
    struct sigaction_t "sigaction":
        void (*sa_handler)(int) noexcept
        int sa_flags
    int sigaction(int number, const sigaction_t *new, sigaction_t *old)

cdef extern from "<sys/time.h>" nogil:
    int ITIMER_REAL
    struct timeval:
        long tv_sec
        long tv_usec
    struct itimerval:
        timeval it_interval
        timeval it_value
    int setitimer(int which, const itimerval *new, itimerval *old)

cdef extern from "<sys/prctl.h>" nogil:
    int PR_SET_TIMERSLACK
    int prctl(int option, unsigned long a, unsigned long b, unsigned long c,
              unsigned long d)

cdef extern from "<time.h>" nogil:
    int CLOCK_PROCESS_CPUTIME_ID
    int nanosleep(const timespec *wanted, timespec *left)

cdef enum:
    BREATH_US = 500
    # The shortest possible sleep; on a virtual core that then idles it takes 50 us
    GLANCE_US = 5
    # Leaves a quarter of the core: a hash of 0.2 s takes under a second at worst
    REST_US = 1500
    # More than interrupts, this handler and the wake-up of an idle core take
    LATE_US = 150
    # How long a core counts as wanted after the last sign
    WANTED_US = 100000

cdef bint _is_on
cdef int64_t begun_us, spent_us, wanted_us
cdef long _breaths, _rests


cdef int64_t read_us(int clock) noexcept nogil:
    cdef timespec now
    linux.clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef void set_timer(long us) noexcept nogil:
    cdef itimerval timer
    memset(&timer, 0, sizeof(timer))
    timer.it_value.tv_usec = us
    setitimer(ITIMER_REAL, &timer, NULL)


cdef void begin_breath(int64_t now_us) noexcept nogil:
    global begun_us, spent_us
    begun_us = now_us
    spent_us = read_us(CLOCK_PROCESS_CPUTIME_ID)
    set_timer(BREATH_US)


cdef int64_t sleep_us(long us) noexcept nogil:
    """Sleeps, and returns the time of the wake-up, which may be late."""
    cdef timespec wanted
    wanted.tv_sec = 0
    wanted.tv_nsec = us * 1000
    nanosleep(&wanted, NULL)
    return read_us(linux.CLOCK_MONOTONIC)


cdef void on_breath(int number) noexcept nogil:
    global wanted_us, _breaths, _rests
    cdef int saved_errno = linux.errno
    cdef int64_t now_us = read_us(linux.CLOCK_MONOTONIC)
    cdef int64_t had_us = read_us(CLOCK_PROCESS_CPUTIME_ID) - spent_us
    cdef int64_t back_us
    cdef long us = GLANCE_US
    if now_us - begun_us - had_us > LATE_US:
        wanted_us = now_us + WANTED_US
    if now_us < wanted_us:
        us = REST_US
        _rests += 1
    _breaths += 1
    back_us = sleep_us(us)
    if back_us - now_us - us > LATE_US:
        wanted_us = back_us + WANTED_US
    if _is_on:                          # off if `stop` has run but its setitimer has not
        begin_breath(back_us)
    set_errno(saved_errno)


def start():
    """Computes in breaths until `stop`."""
    global _is_on
    cdef sigaction_t action
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)        # the default is 50 us, ten glances
    memset(&action, 0, sizeof(action))
    action.sa_handler = on_breath
    action.sa_flags = SA_RESTART
    sigaction(SIGALRM, &action, NULL)
    _is_on = True
    begin_breath(read_us(linux.CLOCK_MONOTONIC))


def stop():
    """Computes without interruption again."""
    global _is_on
    _is_on = False                      # first: a signal may already be pending
    set_timer(0)


def counts():
    """Returns the numbers of breaths and of rests in this process: whether a hash process
    rests shows nowhere else."""
    return _breaths, _rests
