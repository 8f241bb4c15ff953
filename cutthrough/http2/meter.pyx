# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The cost of a peer's frames: a count of those that do nothing, before the library sees them.

A frame of nine octets can cost the server an answer, a search, or a request that is begun and
thrown away: resets (CVE-2023-44487), PING, SETTINGS and PRIORITY (CVE-2019-9512, 9515, 9513), empty
DATA (CVE-2019-9518), CONTINUATION (CVE-2024-27316). The library has bounds for some of them in some
of its versions. Here all of them share a purse, which the walk over the frames' headers empties:
a few ns for each frame.

    PATIENCE units at first, and at most; PER_SECOND more each second; PER_DATA more for each
    DATA frame that we send

A reader answers DATA by WINDOW_UPDATE. Those have a purse of their own, without a bound, because a
reader that was slow answers a window of several MiB at once: PER_DATA for each DATA frame, and two
for each EACH_CREDIT octets, because Go answers so, for the stream and for the connection. When it
is empty, the other purse pays.

A browser that leaves a page with a hundred requests sends a hundred resets at once. nghttp2 allows
1000 resets and 33 a second.
"""

from cutthrough.net.multiplex cimport HEARD_ALL, HEARD_FLOOD, HEARD_HEADERS, HEARD_RESETS

cdef enum:
    PATIENCE = 1000
    PER_SECOND = 100
    PER_DATA = 2
    EACH_CREDIT = 4096
    # Of one reset, because it has cost a session, perhaps a dial
    PER_RESET = 2
    PER_REFUSAL = 2
    # Frames of one header block, beside the full ones that the longest head fills. Huffman's code
    # and the tables make a head shorter, not longer
    MOST_FRAMES = 16
    FULL_FRAME = 16384

cdef enum FrameType:
    T_DATA = 0
    T_HEADERS = 1
    T_PRIORITY = 2
    T_RST_STREAM = 3
    T_WINDOW_UPDATE = 8
    T_CONTINUATION = 9

cdef enum:
    END_STREAM = 1
    END_HEADERS = 4
    PADDED = 8


cdef void start_meter(Meter *m, uint32_t head_bytes, int preface,
                      int64_t now_us) noexcept nogil:
    m.preface = <uint8_t>preface
    m.head_n = m.has_frame = 0
    m.left = 0
    m.block_bytes = m.block_frames = 0
    m.block_us = now_us
    m.most_block = 2 * head_bytes
    m.most_frames = MOST_FRAMES + head_bytes // FULL_FRAME
    m.credit = PATIENCE
    m.credit_us = now_us


cdef Heard measure(Meter *m, const char *data, size_t n, int64_t now_us) noexcept nogil:
    cdef const char *p = data
    cdef const char *end = data + n
    cdef size_t step
    cdef Heard heard
    while p < end:
        if m.preface:
            step = min(<size_t>(end - p), <size_t>m.preface)
            m.preface -= <uint8_t>step
            p += step
            continue
        if m.left:
            step = min(<size_t>(end - p), <size_t>m.left)
            if m.pads:
                m.pads = False
                step = 1
                if m.left <= <uint32_t>1 + <uint8_t>p[0] and not spend(m, 1, now_us):
                    return HEARD_FLOOD
            elif m.head[3] == T_PRIORITY:
                step = 1
                compare(m, <uint8_t>p[0])
            m.left -= <uint32_t>step
            m.has_frame |= m.left == 0
            p += step
            continue
        m.head[m.head_n] = <uint8_t>p[0]
        m.head_n += 1
        p += 1
        if m.head_n == FRAME_HEAD:
            m.head_n = 0
            m.left = m.head[0] << 16 | m.head[1] << 8 | m.head[2]
            m.has_frame |= m.left == 0
            heard = judge(m, now_us)
            if heard != HEARD_ALL:
                return heard
    return HEARD_ALL


cdef void compare(Meter *m, uint8_t octet) noexcept nogil:
    """The next octet of PRIORITY: the first four are a flag and the other stream."""
    cdef int place = 5 - <int>min(m.left, <uint32_t>5)
    if place < 4 and (octet ^ m.head[5 + place]) & (0x7f if place == 0 else 0xff):
        m.differs = True
    if place == 3 and not m.differs:
        m.is_circular = True


cdef Heard judge(Meter *m, int64_t now_us) noexcept nogil:
    """Judges a frame when its header has come."""
    cdef int kind = m.head[3]
    cdef int flags = m.head[4]
    cdef int32_t stream = (
        (m.head[5] & 0x7f) << 24 | m.head[6] << 16 | m.head[7] << 8 | m.head[8])
    m.differs = False
    if kind == T_HEADERS or kind == T_CONTINUATION:
        if kind == T_HEADERS:
            m.block_bytes = m.block_frames = 0
            m.block_us = now_us
        m.block_bytes += m.left
        m.block_frames += 1
        if m.block_frames > m.most_frames or m.block_bytes > m.most_block:
            return HEARD_HEADERS
        if flags & END_HEADERS:
            m.block_frames = 0
        return HEARD_ALL
    if kind == T_DATA:
        if has(m.closed, stream) or has(m.resets, stream):
            m.is_stray = True
        if flags & END_STREAM:
            return HEARD_ALL
        m.pads = m.left > 0 and flags & PADDED      # perhaps nothing else follows
        return HEARD_ALL if m.left or spend(m, 1, now_us) else HEARD_FLOOD
    if kind == T_RST_STREAM:
        # Not yet of `closed`, because the library may still have frames before this one
        m.resets[m.n_resets % <uint32_t>CLOSED] = stream
        m.n_resets += 1
        return HEARD_ALL if spend(m, PER_RESET, now_us) else HEARD_RESETS
    if kind == T_WINDOW_UPDATE and m.earned:
        m.earned -= 1
        return HEARD_ALL
    return HEARD_ALL if spend(m, 1, now_us) else HEARD_FLOOD


cdef bint is_closed(const Meter *m, int32_t stream) noexcept nogil:
    return has(m.closed, stream)


cdef bint has(const int32_t *streams, int32_t stream) noexcept nogil:
    cdef int i
    for i in range(<int>CLOSED):
        if streams[i] == stream and stream:
            return True
    return False


cdef bint spend(Meter *m, int64_t units, int64_t now_us) noexcept nogil:
    cdef int64_t due
    if m.credit < PATIENCE:
        due = (now_us - m.credit_us) * PER_SECOND // 1000000
        if due > 0:
            m.credit = min(<int64_t>PATIENCE, m.credit + due)
            m.credit_us = now_us
    else:
        m.credit_us = now_us
    m.credit -= units
    return m.credit >= 0


cdef void give_credit(Meter *m, size_t n) noexcept nogil:
    m.credit = min(<int64_t>PATIENCE, m.credit + PER_DATA)
    m.earned += PER_DATA + <int64_t>(2 * n // EACH_CREDIT)


cdef bint take_refusal(Meter *m) noexcept nogil:
    m.credit -= PER_REFUSAL
    return m.credit >= 0
