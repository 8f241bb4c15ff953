"""The fingerprint of a client's HTTP/2, by the first frames of its connection."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef enum:
    # Octets of each part of the text. Firefox's five PRIORITY frames take 60, Chromium's SETTINGS
    # 41; all ten settings of IANA's registry take about 110
    MOST_SETTINGS = 128
    MOST_PRIORITIES = 96
    MOST_PSEUDO = 12
    MOST_PRINT = MOST_SETTINGS + MOST_PRIORITIES + MOST_PSEUDO + 16

# Zeroed at first, but for `preface`.
cdef struct Print:
    uint8_t preface         # octets of it that are still to come
    uint8_t head_n          # octets of the frame's header that have come
    uint8_t head[9]
    uint8_t item_n          # octets of a setting, a priority or an increment that have come
    uint8_t item[6]
    uint8_t reads           # octets of an item of the frame's payload; 0: it does not count
    uint8_t is_done         # HEADERS have come
    uint8_t has_settings    # a frame of them has come
    uint8_t settings_n, priorities_n, pseudo_n
    uint32_t left           # octets of the frame's payload that are still to come
    uint32_t increment      # 0: no WINDOW_UPDATE
    int32_t stream          # of the first request; 0: none
    char settings[MOST_SETTINGS]
    char priorities[MOST_PRIORITIES]
    char pseudo[MOST_PSEUDO]

# The octets that have come; up to the first HEADERS.
cdef void read_frames(Print *print, const char *data, size_t n) noexcept nogil
# A field of a request; its name begins with a colon.
cdef void note_pseudo(Print *print, int32_t stream, const char *name, size_t n) noexcept nogil
# Writes at most MOST_PRINT octets. Returns how many.
cdef size_t write_print(char *out, const Print *print) noexcept nogil
