"""Blocks of memory for bytes that have to wait, and the one scratch buffer for those that do not."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    # 16 KiB is the longest head (h11's limit), REWRITE_ROOM and a little more on top
    HEAD_BLOCK = 16384 + 1024
    # One read of the copying relay: 64 KiB; a rewritten head may stand before it
    COPY_BYTES = 65536
    COPY_BLOCK = COPY_BYTES + HEAD_BLOCK
    # The longest head of a response, written anew: an octet more for each of 1024 fields
    ANSWER_BLOCK = 65536 + 2048

# Whose bytes a block holds. Each has a share of the bound of all blocks, so that none of
# them takes the others' room.
cdef enum Share:
    OF_RELAYS = 0           # read from one side and not taken by the other
    OF_REQUESTS             # heads, and input of connections that have authenticated
    OF_STRANGERS            # input of connections that never did: parts of heads
    N_SHARES

cdef struct Block:
    Block *next
    uint32_t size           # room for bytes behind this struct
    uint32_t start          # first byte held
    uint32_t end            # one past the last
    uint8_t share

cdef inline char *bytes_of(Block *block) noexcept nogil:
    return <char *>(block + 1)

# COPY_BLOCK bytes that every endpoint may use between two events and none may keep.
cdef char *scratch() noexcept nogil
# A second one, of ANSWER_BLOCK bytes, for heads written in front of what is in scratch.
cdef char *head_scratch() noexcept nogil

# Is there a block of COPY_BLOCK bytes to be had for a relay? Asked before bytes are read
# that may need one: what nobody has read yet waits in the kernel, and holds up who sends it.
cdef bint has_room() noexcept nogil
# An empty block with room for at least `n` bytes (at most COPY_BLOCK), the smallest that
# has it; NULL when the share is used up or memory is out, which a counter tells.
cdef Block *take_block(size_t n, int share) noexcept nogil
# A block that holds a copy of these bytes.
cdef Block *keep_bytes(const char *data, size_t n, int share) noexcept nogil
# Gives *block, or a larger one with the same bytes, room for `n` more behind them; an
# empty one of this share where there was none. False: not to be had, nothing has changed.
cdef bint make_room(Block **block, size_t n, int share) noexcept nogil
# Counts it in this share from here on; NULL is fine. False: that one has no room for it.
cdef bint change_share(Block *block, int share) noexcept nogil
# Moves what *block holds into the smallest block that holds it; gives back an empty one.
# NULL is fine. Without a smaller block to be had nothing changes.
cdef void shrink_block(Block **block) noexcept nogil
# Takes it back and clears the pointer; NULL is fine.
cdef void give_block(Block **block) noexcept nogil
