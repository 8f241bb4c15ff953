# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fingerprint of a client's HTTP/2, by the first frames of its connection.

    1:65536;4:6291456 | 15663105 | 3:0:0:201 | m,a,s,p

Akamai's ("Passive Fingerprinting of HTTP/2 Clients", 2017): the first SETTINGS frame, as it came;
the first WINDOW_UPDATE of the connection, 00 if there is none; the PRIORITY frames (stream,
exclusive, parent, weight), 0 if there are none; the order of the first request's pseudo-header
fields, with ? for one that RFC 9113 does not know. What comes behind the first HEADERS does not
count.

It reads octets, because libnghttp2 passes on each known setting once, and no priorities. If a part
has no room for a whole item, the item and those behind it in the part are left out.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy
from cutthrough.wire.authority cimport put_number

cdef enum:
    T_HEADERS = 1
    T_PRIORITY = 2
    T_SETTINGS = 4
    T_WINDOW_UPDATE = 8
    ACK = 1
    FRAME_HEAD = 9
    # Octets of text, with what stands before it
    MOST_SETTING = 1 + 5 + 1 + 10
    MOST_PRIORITY = 1 + 10 + 3 + 10 + 1 + 3


cdef void read_frames(Print *f, const char *data, size_t n) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *>data
    cdef const uint8_t *end = p + n
    cdef size_t step
    while p < end and not f.is_done:
        if f.preface:
            step = min(<size_t>(end - p), <size_t>f.preface)
            f.preface -= <uint8_t>step
            p += step
        elif f.left and not f.reads:
            step = min(<size_t>(end - p), <size_t>f.left)
            f.left -= <uint32_t>step
            p += step
        elif f.left:
            f.item[f.item_n] = p[0]
            f.item_n += 1
            f.left -= 1
            p += 1
            if f.item_n == f.reads:
                f.item_n = 0
                note_item(f)
        else:
            f.head[f.head_n] = p[0]
            f.head_n += 1
            p += 1
            if f.head_n == FRAME_HEAD:
                f.head_n = 0
                begin_frame(f)


cdef void begin_frame(Print *f) noexcept nogil:
    """`reads`: the octets of one item of the frame; 0: it does not count."""
    cdef int kind = f.head[3]
    f.left = f.head[0] << 16 | f.head[1] << 8 | f.head[2]
    f.reads = f.item_n = 0
    if kind == T_HEADERS:
        f.is_done = True
    elif kind == T_SETTINGS and not f.has_settings and not f.head[4] & ACK:
        f.has_settings = True
        f.reads = 6
    elif kind == T_PRIORITY and f.left == 5:
        f.reads = 5
    elif kind == T_WINDOW_UPDATE and f.left == 4 and f.increment == 0 and number_at(f.head + 5) == 0:
        f.reads = 4


cdef inline uint32_t number_at(const uint8_t *p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef void note_item(Print *f) noexcept nogil:
    cdef const uint8_t *item = f.item
    cdef char *p
    if f.reads == 4:
        f.increment = number_at(item) & 0x7fffffff
    elif f.reads == 6:
        if f.settings_n + MOST_SETTING > MOST_SETTINGS:
            f.reads = 0                 # no room for this setting, or a later one
            return
        p = f.settings + f.settings_n
        if f.settings_n:
            p[0] = c';'
            p += 1
        p += put_number(p, item[0] << 8 | item[1])
        p[0] = c':'
        p += 1
        p += put_number(p, number_at(item + 2))
        f.settings_n = <uint8_t>(p - f.settings)
    elif f.priorities_n + MOST_PRIORITY <= MOST_PRIORITIES:
        p = f.priorities + f.priorities_n
        if f.priorities_n:
            p[0] = c','
            p += 1
        p += put_number(p, number_at(f.head + 5) & 0x7fffffff)
        p[0], p[1], p[2] = c':', <char>(c'0' + (item[0] >> 7)), c':'
        p += 3
        p += put_number(p, number_at(item) & 0x7fffffff)
        p[0] = c':'
        p += 1
        p += put_number(p, item[4] + 1)     # RFC 7540 section 6.3
        f.priorities_n = <uint8_t>(p - f.priorities)


cdef void note_pseudo(Print *f, int32_t stream, const char *name, size_t n) noexcept nogil:
    if f.stream == 0:
        f.stream = stream
    if f.stream != stream or f.pseudo_n + 2 > MOST_PSEUDO:
        return
    if f.pseudo_n:
        f.pseudo[f.pseudo_n] = c','
        f.pseudo_n += 1
    f.pseudo[f.pseudo_n] = letter_of(name, n)
    f.pseudo_n += 1


cdef char letter_of(const char *name, size_t n) noexcept nogil:
    cdef bint is_known = (
        n == 7 and (is_name(name, b":method", n) or is_name(name, b":scheme", n))
        or n == 10 and is_name(name, b":authority", n) or n == 5 and is_name(name, b":path", n))
    return name[1] if is_known else c'?'


cdef inline bint is_name(const char *name, const char *known, size_t n) noexcept nogil:
    return memcmp(name, known, n) == 0


cdef size_t write_print(char *out, const Print *f) noexcept nogil:
    cdef char *p = out
    memcpy(p, f.settings, f.settings_n)
    p += f.settings_n
    p[0] = c'|'
    p += 1
    if f.increment:
        p += put_number(p, f.increment)
    else:
        p[0] = p[1] = c'0'
        p += 2
    p[0] = c'|'
    p[1] = c'0'
    p += 1
    memcpy(p, f.priorities, f.priorities_n)
    p += f.priorities_n if f.priorities_n else 1
    p[0] = c'|'
    memcpy(p + 1, f.pseudo, f.pseudo_n)
    return p + 1 + f.pseudo_n - out
