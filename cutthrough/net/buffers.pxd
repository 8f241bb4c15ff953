"""Blocks of memory for bytes that have to wait, and a scratch buffer for bytes that do not."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    # Most heads are below 16 KiB (h11's limit); the rest is for REWRITE_ROOM and a little more
    HEAD_BLOCK = 16384 + 1024
    # One read of the copying relay: 64 KiB; a rewritten head may stand before it
    COPY_BYTES = 65536
    COPY_BLOCK = COPY_BYTES + HEAD_BLOCK
    # The most that `max_head` may be, and with room for a rewritten head: one more octet for each
    # of a response's 1024 fields
    LONGEST_HEAD = 262144
    HEAD_ROOM = LONGEST_HEAD + 2048
    # A long head, and the read that brought its end
    LONG_BLOCK = HEAD_ROOM + COPY_BLOCK

# The purpose of a block's bytes. Each purpose has a share of the bound on all blocks, because
# no purpose may take the others' room.
cdef enum Share:
    OF_RELAYS = 0           # read from one side, not yet taken by the other
    OF_REQUESTS             # heads, and input of authenticated connections
    OF_STRANGERS            # input of connections that never authenticated: parts of heads
    N_SHARES

cdef struct Block:
    Block *next
    uint32_t size           # room for bytes behind this struct
    uint32_t start          # first byte held
    uint32_t end            # one past the last
    uint8_t share

cdef inline char *bytes_of(Block *block) noexcept nogil:
    return <char *>(block + 1)

# COPY_BLOCK bytes, valid until the endpoint returns: no endpoint may keep them.
cdef char *scratch() noexcept nogil
# A second buffer, of HEAD_ROOM bytes, for heads to be sent before the bytes in scratch.
cdef char *head_scratch() noexcept nogil

# The share's part of the bound.
cdef size_t most_held(int share) noexcept nogil
# Whether a relay can get a block of COPY_BLOCK bytes. Checked before a read that may need
# one, because unread bytes wait in the kernel, and slow the sender down.
cdef bint has_room() noexcept nogil
# An empty block of the smallest size with room for `n` bytes (at most LONG_BLOCK). NULL,
# and counted as refused: the share is used up, or memory is out.
cdef Block *take_block(size_t n, int share) noexcept nogil
# A block that holds a copy of these bytes.
cdef Block *keep_bytes(const char *data, size_t n, int share) noexcept nogil
# Makes room for `n` more bytes behind those in *block, if need be in a larger block; a NULL
# *block becomes an empty one of this share. False: no block is free, nothing has changed.
cdef bint make_room(Block **block, size_t n, int share) noexcept nogil
# Moves the block to this share; NULL is fine. False: the share has no room for it.
cdef bint change_share(Block *block, int share) noexcept nogil
# Moves the bytes of *block into the smallest block that holds them; frees an empty block.
# NULL is fine. If no smaller block is free, nothing changes.
cdef void shrink_block(Block **block) noexcept nogil
# Frees the block and clears the pointer; NULL is fine.
cdef void give_block(Block **block) noexcept nogil
