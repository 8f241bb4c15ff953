# cython: language_level=3
"""Doors to a worker's knowledge of a parent, and to the choice of a group."""

from libc.stdint cimport int64_t
from cutthrough.outcome cimport PARENT_CLOSED
from cutthrough.policy.parents cimport Standing, Way


def may_try(Standing standing, int64_t now_ms, user=1):
    return bool(standing.may_try(now_ms, user))


def begin(Standing standing, int64_t now_ms, user=1):
    standing.begin(now_ms, user)


def succeed(Standing standing, int64_t took_us=1000):
    standing.succeed(took_us)


def fail(Standing standing, int64_t now_ms):
    standing.fail(now_ms, PARENT_CLOSED)


def suspect(Standing standing, int64_t now_ms, user, destination):
    standing.suspect(now_ms, PARENT_CLOSED, user, destination)


def refuse(Standing standing):
    standing.refuse()


def pick(Way way, tried=0, int64_t now_ms=0, key=None):
    return way.pick(tried, now_ms, key, 1)


def wait_ms(Way way, int64_t now_ms):
    return way.wait_ms(now_ms)
