# cython: language_level=3
"""Doors to cutthrough.policy: usage by hand, and the content of the shared pages."""

import ipaddress
import time

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cutthrough.policy.address cimport is_public
from cutthrough.policy.auth cimport PENDING, Account, Authenticator
from cutthrough.policy.globs cimport GlobSets
from cutthrough.policy.known cimport Known
from cutthrough.policy.ledger cimport ENTERED, Entry
from cutthrough.policy.limits cimport Limiter, Terms, Usage, has_allowance
from cutthrough.policy.shared_table cimport CONNECTIONS, TUNNELS, Row, SharedTable
from cutthrough.policy.siphash cimport keyed_hash
from cutthrough.policy import users as hashes
from cutthrough.wire.chars cimport text_of
from cutthrough.wire.paths cimport Path, set_path

ENTRIES = ("entered", "over all", "over client", "over connections", "over tunnels",
           "over rate", "over quota", "no row")


cdef class Holder:
    """One connection's usage, driven by hand. Times are in seconds."""
    cdef Limiter limiter
    cdef Usage usage
    cdef Terms terms
    cdef int64_t up_left, down_left
    cdef bint is_tunnel

    def __init__(self, Limiter limiter):
        self.limiter = limiter

    def enter(self, bytes packed):
        """Counts a connection from this packed address. Returns the Entry by name."""
        return ENTRIES[self.limiter.enter(&self.usage, 4 if len(packed) == 4 else 6, packed)]

    def ask(self, bytes user, bint is_tunnel=False, limits=None, now=1.0):
        """Charges a request. Returns the Entry by name, and seconds until a retry."""
        cdef uint32_t retry_s = 0
        cdef Entry entry
        self.end(now)
        self.terms = self.limiter.terms_of(user, limits)
        entry = self.limiter.charge(&self.usage, self.terms, user, is_tunnel,
                                    <int64_t>(now * 1e6), &retry_s)
        self.is_tunnel = is_tunnel and entry == ENTERED
        self.up_left = self.down_left = 0
        return ENTRIES[entry], retry_s

    def ask_again(self, bytes user, bint is_tunnel=False, limits=None, now=1.0):
        """Charges the same request under other limits, and undoes the first charge."""
        if self.terms is not None:
            self.limiter.uncharge(&self.usage, self.terms, &self.up_left, &self.down_left,
                                  <int64_t>(now * 1e6))
            self.terms = None
        return self.ask(user, is_tunnel, limits, now)

    def move(self, int64_t n, now=1.0):
        """Returns how many of n bytes pass down now; None: the quota is used up."""
        cdef int64_t passed
        if self.usage.meter == NULL:
            return n
        cdef int64_t now_us = <int64_t>(now * 1e6)
        if not has_allowance(&self.usage.meter.down, self.terms, self.down_left, now_us) and (
                not self.limiter.refill(&self.usage, &self.usage.meter.down, self.terms,
                                        self.is_tunnel, &self.down_left, now_us)):
            return None
        passed = max(0, min(n, self.down_left))
        self.down_left -= passed
        return passed

    def move_up(self, int64_t n, now=1.0):
        """The same upwards."""
        cdef int64_t now_us = <int64_t>(now * 1e6)
        if not has_allowance(&self.usage.meter.up, self.terms, self.up_left, now_us) and (
                not self.limiter.refill(&self.usage, &self.usage.meter.up, self.terms,
                                        self.is_tunnel, &self.up_left, now_us)):
            return None
        passed = max(0, min(n, self.up_left))
        self.up_left -= passed
        return passed

    def wait(self):
        """Returns seconds until more bytes may pass."""
        return self.usage.meter.down.wait_us / 1e6 if self.usage.meter != NULL else 0.0

    def end(self, now=1.0):
        """Ends the request; the connection stays."""
        self.limiter.end_request(&self.usage, self.terms, &self.up_left, &self.down_left,
                                 <int64_t>(now * 1e6))
        self.terms = None

    def close(self, now=1.0):
        self.end(now)
        self.limiter.leave(&self.usage, <int64_t>(now * 1e6))


def of_user(SharedTable table, bytes name):
    """Returns a user's connections, tunnels, and bytes of the last day with any; None: no
    row."""
    cdef uint64_t tag[2]
    cdef uint64_t connections = 0
    cdef uint64_t tunnels = 0
    cdef int64_t day_bytes = 0
    cdef Row *row
    cdef uint32_t number
    table.tag_of(name, len(name), tag)
    table._lock()
    number = table._find(&table.page.users, tag)
    if number:
        row = table._row(&table.page.users, number)
        connections = table._sum(table._held(row, CONNECTIONS))
        tunnels = table._sum(table._held(row, TUNNELS))
        day_bytes = row.day_bytes
    table._unlock()
    return (connections, tunnels, day_bytes) if number else None


def grab(page):
    """Takes the lock of a Known or a SharedTable and keeps it, as a killed owner does."""
    if isinstance(page, Known):
        (<Known>page)._lock()
    else:
        (<SharedTable?>page)._lock()


def check(Authenticator users, value, at=None):
    """Returns the user's name for a field value, or None, and computes a hash if it has to.
    `at`: seconds of CLOCK_MONOTONIC."""
    cdef const char *text = NULL
    cdef size_t n = 0
    cdef int verdict
    cdef Account account
    if value is not None:
        text = value
        n = len(value)
    now = time.monotonic() if at is None else at
    account = users.authenticate(text, n, <int64_t>(now * 1000000), &verdict)
    if verdict == PENDING:
        account = users.compare(value)
        if account is None and users.has_table:
            account = verify(users, value)
        if account is not None and not users.remember(users.key_of(value), account, now):
            return None
    return None if account is None else account.name


def verify(Authenticator users, bytes value):
    """Computes the hash here. Returns the account, or None."""
    hash, secret, account = users.hash_to_verify(value)
    return account if hashes.check_hash(hash, secret) else None


def siphash128(bytes key, bytes data):
    """Returns the keyed hash, for tests with vectors: a key of 16 bytes, a hash of 16."""
    cdef uint64_t k[2]
    cdef uint64_t out[2]
    memcpy(k, <char *>key, 16)
    keyed_hash(k, data, len(data), out)
    return (<char *>out)[:16]


def is_public_address(text):
    """Returns is_public for an address in text. Raises ValueError."""
    address = ipaddress.ip_address(text)
    cdef bytes packed = address.packed
    return bool(is_public(address.version, packed))


def glob_meets(tuple globs, source, bint any_reading):
    """Does each reading of a path match one of the globs, or with `any_reading`, does one?"""
    cdef GlobSets sets = GlobSets()
    cdef Path path
    cdef size_t n
    cdef const char *text = text_of(source, &n)
    set_path(&path, text, n)
    return bool(sets.meets(sets.number(globs), &path, any_reading))
