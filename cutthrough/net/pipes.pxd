"""Pipes for splice(2): bytes wait in the kernel, in pages that are never copied."""

from libc.stdint cimport uint32_t

cdef struct Pipe:
    Pipe *next
    int read_fd
    int write_fd
    uint32_t size           # capacity in bytes
    uint32_t held           # bytes inside

# An empty pipe, or NULL: no descriptor or no pipe memory is to be had; copy instead (R35).
cdef Pipe *take_pipe() noexcept nogil
# One that another process filled: its ends are the pipe's from here on. NULL: no memory.
cdef Pipe *adopt_pipe(int read_fd, int write_fd, uint32_t held) noexcept nogil
# How often there was none.
cdef size_t pipes_refused() noexcept nogil
# Takes it back and clears the pointer. One that still holds bytes is closed.
cdef void give_pipe(Pipe **pipe) noexcept nogil
