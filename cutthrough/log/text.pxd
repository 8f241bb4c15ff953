"""Text into a buffer: `put_*` write at `p` and return the end. They do not check for
room; the caller does."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, strlen
from cutthrough.net.address cimport Address

# How wire data is escaped (R37). Only printable ASCII stays as it is; every encoding
# escapes controls and bytes beyond ASCII.
cdef enum Quote:
    Q_URL = 0               # %xx: controls, space, quote, backslash; % itself stays
    Q_PERCENT               # the same, % too
    Q_BRACED                # as the first, and {, | and }
    Q_CSV                   # RFC 4180, within quotes: "" for a quote, %xx but for spaces
    Q_MIME                  # %xx: controls, %, brackets, backslash; space and quote stay
    Q_STRING                # as within double quotes: \" \\ \r \n \t \xHH
    Q_JSON                  # \u00XX for each octet
    N_QUOTES

cdef inline char *put_text(char *p, const char *text) noexcept:
    cdef size_t n = strlen(text)
    memcpy(p, text, n)
    return p + n

# Decimal; zero-padded to `width`; right-aligned in `width`; milliseconds, three decimals.
cdef char *put_number(char *p, uint64_t x) noexcept
cdef char *put_padded(char *p, uint64_t x, int width) noexcept
cdef char *put_ms(char *p, uint64_t us) noexcept
# Without the port; "-" for none.
cdef char *put_address(char *p, const Address *address) noexcept
# Writes as much as fits before `last`, whole escapes only. `mark`: a cut value ends in "…",
# 3 bytes beyond `last`; every encoding escapes a "…" from the wire.
cdef char *put_escaped(char *p, const char *data, size_t n, Quote quote, const char *last,
                       bint mark) noexcept
# A quoted JSON string of at most 256 octets; `put_string` writes null for None.
cdef char *put_json(char *p, const char *data, size_t n) noexcept
cdef char *put_string(char *p, bytes value) except NULL
# The current time: 2026-11-21T04:25:36.123Z.
cdef char *put_time(char *p) noexcept
