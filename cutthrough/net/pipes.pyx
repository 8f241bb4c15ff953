# cython: language_level=3
"""Pipes for splice(2), shared by all relays of the process.

A few dozen serve thousands of tunnels, because a direction holds a pipe only when it is bulk.
If a pipe is returned with bytes inside, it is closed, because no tunnel may ever see another
tunnel's bytes.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from cutthrough.net.linux cimport (
    F_GETPIPE_SZ, F_SETPIPE_SZ, O_CLOEXEC, O_NONBLOCK, close, fcntl, pipe2)

cdef enum:
    KEPT_FREE = 64
    # At 1 MiB each, the bound on all blocks (R31); the kernel's own bound exempts root
    MOST_IN_USE = 512
    # fs.pipe-max-size's default, and the best of the sizes measured (1 MiB responses):
    # with 256 KiB a byte costs 1.3 times the CPU
    WANTED_BYTES = 1048576
    # Past fs.pipe-user-pages-soft an unprivileged user gets pipes of one or two pages:
    # slower than copying
    LEAST_BYTES = 65536
    # Calls of take_pipe that open no new pipe after the kernel refused one
    BACK_OFF = 256

cdef Pipe *free_pipes = NULL
cdef size_t n_free = 0
cdef size_t in_use = 0
cdef size_t refused = 0
cdef int skip = 0


cdef Pipe *take_pipe() noexcept nogil:
    global free_pipes, n_free, in_use, skip, refused
    cdef Pipe *pipe = free_pipes
    if in_use >= MOST_IN_USE:
        refused += 1
        return NULL
    if pipe != NULL:
        free_pipes = pipe.next
        n_free -= 1
    elif skip > 0:
        skip -= 1
        return NULL
    else:
        pipe = open_pipe()
        if pipe == NULL:
            skip = BACK_OFF
            return NULL
    in_use += 1
    return pipe


cdef Pipe *open_pipe() noexcept nogil:
    global refused
    cdef int fds[2]
    cdef int size
    cdef Pipe *pipe
    if pipe2(fds, O_NONBLOCK | O_CLOEXEC) < 0:
        refused += 1
        return NULL
    if fcntl(fds[1], F_SETPIPE_SZ, WANTED_BYTES) < 0:
        fcntl(fds[1], F_SETPIPE_SZ, WANTED_BYTES // 4)
    size = fcntl(fds[1], F_GETPIPE_SZ)
    pipe = <Pipe *>malloc(sizeof(Pipe)) if size >= LEAST_BYTES else NULL
    if pipe == NULL:
        close(fds[0])
        close(fds[1])
        refused += 1
        return NULL
    pipe.next = NULL
    pipe.read_fd = fds[0]
    pipe.write_fd = fds[1]
    pipe.size = <unsigned int>size
    pipe.held = 0
    return pipe


cdef Pipe *adopt_pipe(int read_fd, int write_fd, uint32_t held) noexcept nogil:
    # Even beyond MOST_IN_USE: its bytes are here, and the giving process has one pipe less
    global in_use
    cdef Pipe *pipe = <Pipe *>malloc(sizeof(Pipe))
    if pipe != NULL:
        pipe.next = NULL
        pipe.read_fd = read_fd
        pipe.write_fd = write_fd
        pipe.size = <unsigned int>fcntl(write_fd, F_GETPIPE_SZ)
        pipe.held = held
        in_use += 1
    return pipe


cdef void give_pipe(Pipe **where) noexcept nogil:
    global free_pipes, n_free, in_use
    cdef Pipe *pipe = where[0]
    if pipe == NULL:
        return
    where[0] = NULL
    in_use -= 1
    if pipe.held or n_free >= KEPT_FREE:
        close(pipe.read_fd)
        close(pipe.write_fd)
        free(pipe)
        return
    pipe.next = free_pipes
    free_pipes = pipe
    n_free += 1


cdef size_t pipes_refused() noexcept nogil:
    return refused


def close_free():
    """Closes the free pipes and ends the back-off. Returns how many."""
    global free_pipes, n_free, skip
    cdef Pipe *pipe
    count = 0
    while free_pipes != NULL:
        pipe = free_pipes
        free_pipes = pipe.next
        close(pipe.read_fd)
        close(pipe.write_fd)
        free(pipe)
        count += 1
    n_free = skip = 0
    return count


def stats():
    """Pipes in use, pipes free, and how often the kernel refused one."""
    return {"in_use": in_use, "free": n_free, "refused": refused}
