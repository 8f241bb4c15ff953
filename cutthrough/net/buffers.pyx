# cython: language_level=3
"""Blocks of memory for bytes that have to wait.

If a byte can be sent on at once, it never leaves the worker's scratch buffer. A connection
takes a block only when bytes are stuck, so an idle connection owns none. There are five sizes,
because the rest of a head should take 0.5 KiB and not 17, and a head that a large `max_head`
permits needs room. Each size has a last-in first-out free list (the warm block is used again).

All blocks in use are under one bound (R31); relays, requests and strangers have a share of
it each. Unauthenticated clients can fill only their own share, and stuck relays leave the
requests' share free. Blocks that stay free are returned to the system: see `ebb`. Pools are
per process: one event loop drives them, and the GIL is never released here.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    #define trim_heap() malloc_trim(0)
    #else
    #define trim_heap() 0
    #endif
    """
    int trim_heap() nogil

cdef enum:
    KEPT_FREE = 256             # most free blocks of each size: 24 MiB together
    KEPT_LONG = 16              # of LONG_BLOCK: 5 MiB
    # A typical head has 0.3 to 1.5 KiB; a block with its struct is 0.5 or 2 KiB of malloc's
    SMALL_BLOCK = 512 - 32
    MIDDLE_BLOCK = 2048 - 32
    N_SIZES = 5
    # Bytes freed since the last trim that cause another; trimming a large heap takes some 10 ms
    TRIM_BYTES = 2 * 1024 * 1024

cdef struct Pool:
    size_t size
    size_t kept_free            # most blocks that stay free
    Block *free
    size_t n_free
    size_t least_free           # since the last ebb
    size_t in_use

cdef Pool pools[N_SIZES]
cdef size_t held_bytes[N_SHARES]
cdef size_t most_bytes[N_SHARES]
cdef size_t refused[N_SHARES]
cdef size_t freed_bytes = 0     # given back to malloc since the heap was trimmed
cdef size_t live_then = 0       # most live connections since the last trim: see ebb

SHARES = ("relays", "requests", "strangers")
# The sizes' names in `stats`
SIZES = ("small", "middle", "head", "copy", "long")

cdef int _n
for _n, _size in enumerate((SMALL_BLOCK, MIDDLE_BLOCK, HEAD_BLOCK, COPY_BLOCK, LONG_BLOCK)):
    pools[_n].size = _size
    pools[_n].kept_free = KEPT_LONG if _size == LONG_BLOCK else KEPT_FREE

cdef char *the_scratch = <char *>malloc(COPY_BLOCK)
cdef char *the_head_scratch = <char *>malloc(HEAD_ROOM)
if the_scratch == NULL or the_head_scratch == NULL:
    raise MemoryError


cdef char *scratch() noexcept nogil:
    return the_scratch


cdef char *head_scratch() noexcept nogil:
    return the_head_scratch


cdef size_t most_held(int share) noexcept nogil:
    return most_bytes[share]


cdef bint has_room() noexcept nogil:
    if held_bytes[<int>OF_RELAYS] + COPY_BLOCK <= most_bytes[<int>OF_RELAYS]:
        return True
    refused[<int>OF_RELAYS] += 1
    return False


cdef inline Pool *pool_of(size_t n) noexcept nogil:
    """The pool of the smallest blocks with room for `n` bytes; else of the largest."""
    cdef int i = 0
    while i < N_SIZES - 1 and pools[i].size < n:
        i += 1
    return &pools[i]


cdef Block *take_block(size_t n, int share) noexcept nogil:
    cdef Pool *pool = pool_of(n)
    cdef Block *block = pool.free
    if n > pool.size or held_bytes[share] + pool.size > most_bytes[share]:
        refused[share] += 1
        return NULL
    if block != NULL:
        pool.free = block.next
        pool.n_free -= 1
        if pool.n_free < pool.least_free:
            pool.least_free = pool.n_free
    else:
        block = <Block *>malloc(sizeof(Block) + pool.size)
        if block == NULL:
            refused[share] += 1
            return NULL
        block.size = <unsigned int>pool.size
        pool.least_free = 0
    block.next = NULL
    block.start = block.end = 0
    block.share = <unsigned char>share
    pool.in_use += 1
    held_bytes[share] += pool.size
    return block


cdef Block *keep_bytes(const char *data, size_t n, int share) noexcept nogil:
    cdef Block *block = take_block(n, share)
    if block != NULL:
        memcpy(bytes_of(block), data, n)
        block.end = <unsigned int>n
    return block


cdef bint make_room(Block **where, size_t n, int share) noexcept nogil:
    cdef Block *block = where[0]
    cdef size_t held
    if block == NULL:
        where[0] = take_block(n, share)
        return where[0] != NULL
    if block.end + n <= block.size:
        return True
    held = block.end - block.start
    if held + n <= block.size:
        memmove(bytes_of(block), bytes_of(block) + block.start, held)
        block.start = 0
        block.end = <unsigned int>held
        return True
    return move_block(where, held + n, share)


cdef void shrink_block(Block **where) noexcept nogil:
    cdef Block *block = where[0]
    if block == NULL:
        return
    if block.start == block.end:
        give_block(where)
    elif pool_of(block.end - block.start).size < block.size:
        move_block(where, block.end - block.start, block.share)


cdef bint change_share(Block *block, int share) noexcept nogil:
    if block == NULL or block.share == share:
        return True
    if held_bytes[share] + block.size > most_bytes[share]:
        refused[share] += 1
        return False
    held_bytes[block.share] -= block.size
    held_bytes[share] += block.size
    block.share = <unsigned char>share
    return True


cdef bint move_block(Block **where, size_t n, int share) noexcept nogil:
    """Moves the bytes to a block of this share with room for `n`. False: none is free."""
    cdef Block *block = where[0]
    cdef size_t held = block.end - block.start
    cdef Block *other
    cdef bint is_smaller = n < block.size
    # Both blocks are held for a moment; the old one does not count if the new one is smaller
    if is_smaller:
        held_bytes[block.share] -= block.size
    other = take_block(n, share)
    if is_smaller:
        held_bytes[block.share] += block.size
    if other == NULL:
        return False
    memcpy(bytes_of(other), bytes_of(block) + block.start, held)
    other.end = <unsigned int>held
    give_block(where)
    where[0] = other
    return True


cdef void give_block(Block **where) noexcept nogil:
    global freed_bytes
    cdef Block *block = where[0]
    cdef Pool *pool
    if block == NULL:
        return
    where[0] = NULL
    pool = pool_of(block.size)
    pool.in_use -= 1
    held_bytes[block.share] -= block.size
    if pool.n_free < pool.kept_free:
        block.next = pool.free
        pool.free = block
        pool.n_free += 1
    else:
        freed_bytes += block.size
        free(block)


def ebb(size_t live=0):
    """Returns unused memory to the system; to be called each second.

    Frees half of the blocks of each size that stayed free since the last call, so a burst's
    blocks go soon and a steady load's stay. Trims the heap if much was freed, or if a
    thousand of the `live` connections have closed, which frees as much: malloc alone keeps
    the memory below a block in use. One with a large state counts as several of them.
    True: the heap was trimmed.
    """
    global freed_bytes, live_then
    cdef Pool *pool
    cdef Block *block
    cdef size_t n, _i, k
    for k in range(<size_t>N_SIZES):
        pool = &pools[k]
        n = (pool.least_free + 1) // 2
        for _i in range(n):
            block = pool.free
            pool.free = block.next
            freed_bytes += block.size
            free(block)
        pool.n_free -= n
        pool.least_free = pool.n_free
    live_then = max(live_then, live)
    if freed_bytes < TRIM_BYTES and live_then - live < 1024:
        return False
    freed_bytes = 0
    live_then = live
    trim_heap()
    return True


def stats():
    """Blocks in use and free by size; bytes held and blocks refused, in all and by share."""
    figures = {"held_bytes": 0, "refused": 0}
    for i, name in enumerate(SIZES):
        figures[f"{name}_blocks"] = pools[<int>i].in_use
        figures[f"free_{name}_blocks"] = pools[<int>i].n_free
    for i, name in enumerate(SHARES):
        figures[f"held_by_{name}"] = held_bytes[<int>i]
        figures[f"refused_{name}"] = refused[<int>i]
        figures["held_bytes"] += held_bytes[<int>i]
        figures["refused"] += refused[<int>i]
    return figures


def set_bound(size_t n, share=None):
    """Bounds the bytes of all blocks in use (default 512 MiB): relays get three quarters of
    them, requests and strangers an eighth each. With a `share`: bounds that share alone.
    The default is set here, and tests reach a bound by a lower one."""
    if share is not None:
        most_bytes[<int>SHARES.index(share)] = n
        return
    most_bytes[<int>OF_RELAYS] = n - n // 8 * 2
    most_bytes[<int>OF_REQUESTS] = most_bytes[<int>OF_STRANGERS] = n // 8


set_bound(512 * 1024 * 1024)
