# cython: language_level=3
"""The clock of deadlines and durations.

A program that drives sessions by itself may have time stand still, and move it from deadline to
deadline; its sockets are then transports without a kernel, and its poller has no loop. To test a
variable beside each reading costs less than a nanosecond of 20.
"""

standing_us = 0
