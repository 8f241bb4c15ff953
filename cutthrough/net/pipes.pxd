"""Pipes for splice(2): bytes wait in the kernel, in pages that are never copied."""

from libc.stdint cimport uint32_t

cdef struct Pipe:
    Pipe *next
    int read_fd
    int write_fd
    uint32_t size           # capacity in bytes
    uint32_t held           # bytes inside

# An empty pipe. NULL: out of descriptors or pipe memory; copy instead (R35).
cdef Pipe *take_pipe() noexcept nogil
# A pipe that another process filled; it now owns both fds. NULL: no memory.
cdef Pipe *adopt_pipe(int read_fd, int write_fd, uint32_t held) noexcept nogil
# How often no pipe was available.
cdef size_t pipes_refused() noexcept nogil
# Takes the pipe back and clears the pointer. Closes it if it still holds bytes.
cdef void give_pipe(Pipe **pipe) noexcept nogil
