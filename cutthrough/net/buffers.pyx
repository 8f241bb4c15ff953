# cython: language_level=3
"""Blocks of memory for bytes that have to wait.

A byte that can go on at once never leaves the worker's scratch buffer. A block is taken
only while bytes are actually stuck, so an idle connection owns none. Two sizes, each with
a last-in first-out free list (the warm block is used again), both under one bound (R31).
Pools are per process: one event loop drives them, and the GIL is never released here.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

cdef enum:
    KEPT_FREE = 256             # blocks of each size that wait for use: 4 and 20 MiB

cdef struct Pool:
    Block *free
    size_t n_free
    size_t in_use

cdef Pool heads
cdef Pool copies
cdef size_t held_bytes = 0
cdef size_t most_bytes = 512 * 1024 * 1024
cdef size_t refused = 0

cdef char *the_scratch = <char *>malloc(COPY_BLOCK)
cdef char *the_head_scratch = <char *>malloc(ANSWER_BLOCK)
if the_scratch == NULL or the_head_scratch == NULL:
    raise MemoryError


cdef char *scratch() noexcept nogil:
    return the_scratch


cdef char *head_scratch() noexcept nogil:
    return the_head_scratch


cdef bint has_room() noexcept nogil:
    global refused
    if held_bytes + COPY_BLOCK <= most_bytes:
        return True
    refused += 1
    return False


cdef Block *take_block(size_t n) noexcept nogil:
    global held_bytes, refused
    cdef Pool *pool = &heads if n <= HEAD_BLOCK else &copies
    cdef size_t size = HEAD_BLOCK if n <= HEAD_BLOCK else COPY_BLOCK
    cdef Block *block = pool.free
    if n > COPY_BLOCK or held_bytes + size > most_bytes:
        refused += 1
        return NULL
    if block != NULL:
        pool.free = block.next
        pool.n_free -= 1
    else:
        block = <Block *>malloc(sizeof(Block) + size)
        if block == NULL:
            refused += 1
            return NULL
        block.size = <unsigned int>size
    block.next = NULL
    block.start = block.end = 0
    pool.in_use += 1
    held_bytes += size
    return block


cdef Block *keep_bytes(const char *data, size_t n) noexcept nogil:
    cdef Block *block = take_block(n)
    if block != NULL:
        memcpy(bytes_of(block), data, n)
        block.end = <unsigned int>n
    return block


cdef bint make_room(Block **where, size_t n) noexcept nogil:
    cdef Block *block = where[0]
    cdef Block *larger
    cdef size_t held
    if block == NULL:
        where[0] = take_block(n)
        return where[0] != NULL
    if block.end + n <= block.size:
        return True
    held = block.end - block.start
    if held + n <= block.size:
        memmove(bytes_of(block), bytes_of(block) + block.start, held)
        block.start = 0
        block.end = <unsigned int>held
        return True
    larger = take_block(held + n)
    if larger == NULL:
        return False
    memcpy(bytes_of(larger), bytes_of(block) + block.start, held)
    larger.end = <unsigned int>held
    give_block(where)
    where[0] = larger
    return True


cdef void give_block(Block **where) noexcept nogil:
    global held_bytes
    cdef Block *block = where[0]
    cdef Pool *pool
    if block == NULL:
        return
    where[0] = NULL
    pool = &heads if block.size == HEAD_BLOCK else &copies
    pool.in_use -= 1
    held_bytes -= block.size
    if pool.n_free < KEPT_FREE:
        block.next = pool.free
        pool.free = block
        pool.n_free += 1
    else:
        free(block)


def stats():
    """Blocks in use and free by size, bytes held, and how often the bound was reached."""
    return {
        "head_blocks": heads.in_use, "copy_blocks": copies.in_use,
        "free_head_blocks": heads.n_free, "free_copy_blocks": copies.n_free,
        "held_bytes": held_bytes, "refused": refused,
    }


def set_bound(size_t n):
    """The most bytes that all blocks in use may hold together (default 512 MiB)."""
    global most_bytes
    most_bytes = n
