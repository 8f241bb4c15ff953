# cython: language_level=3
"""Dates in fields: IMF-fixdate (RFC 9110 section 5.6.7).

strftime is not used, because its names follow the locale of the embedding program.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy
from libc.time cimport time_t, tm

cdef extern from "<time.h>" nogil:
    tm *gmtime_r(const time_t *seconds, tm *out)

cdef const char *DAYS = b"SunMonTueWedThuFriSat"
cdef const char *MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"


cdef void build_date(char *out, int64_t epoch_s) noexcept nogil:
    cdef time_t seconds = epoch_s
    cdef tm parts
    gmtime_r(&seconds, &parts)
    memcpy(out, b"---, -- --- ---- --:--:-- GMT", DATE_BYTES)
    memcpy(out, DAYS + 3 * parts.tm_wday, 3)
    put_two(out + 5, parts.tm_mday)
    memcpy(out + 8, MONTHS + 3 * parts.tm_mon, 3)
    put_two(out + 12, (parts.tm_year + 1900) // 100)
    put_two(out + 14, (parts.tm_year + 1900) % 100)
    put_two(out + 17, parts.tm_hour)
    put_two(out + 20, parts.tm_min)
    put_two(out + 23, parts.tm_sec)


cdef inline void put_two(char *out, int x) noexcept nogil:
    out[0] = <char>(48 + x // 10)
    out[1] = <char>(48 + x % 10)
