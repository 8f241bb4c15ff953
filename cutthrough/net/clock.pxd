"""The clock of deadlines and durations: CLOCK_MONOTONIC, or a time that stands."""

from libc.stdint cimport int64_t

# The time if it stands, in microseconds; 0: it runs. Only `clock_us` of sysio reads it.
cdef int64_t standing_us
