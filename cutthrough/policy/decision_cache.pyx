# cython: language_level=3
"""What a hook decided, kept for as long as it said.

A verdict is kept for one user and one destination, so that the next request of the same
kind costs a look-up and no Python. Each generation begins with none.
"""

import math

from libc.stdint cimport int64_t

cdef enum:
    MOST_REASON = 64
    MOST_TTL = 86400            # s: a verdict that is wrong is gone within a day


cdef class Decision:
    """The answer of a hook.

    `allow`: may it pass? `reason`: a few printable ASCII characters for the log line.
    `ttl`: seconds for which the same user may be answered the same for the same host
    and port; 0 asks again each time. `limits`: a name from the policy's limits.
    Raises ValueError and TypeError for what is none of these.
    """

    def __init__(self, allow, reason="", ttl=0.0, limits=""):
        if not isinstance(allow, bool):     # a coroutine, None, "no": all are true or odd
            raise TypeError("allow must be True or False")
        if not (isinstance(reason, str) and reason.isascii()
                and (reason.isprintable() or not reason)
                and len(reason) <= MOST_REASON):
            raise ValueError(f"reason: up to {<int>MOST_REASON} printable ASCII characters")
        if not isinstance(limits, str):
            raise TypeError("limits must be a string: a name of the policy's limits")
        self.allow = allow
        self.reason = reason
        self.ttl = ttl
        self.limits = limits
        if not math.isfinite(self.ttl) or self.ttl < 0 or self.ttl > MOST_TTL:
            raise ValueError(f"ttl: 0 to {<int>MOST_TTL} seconds")

    def __repr__(self):
        return (f"Decision(allow={bool(self.allow)}, reason={self.reason!r}, "
                f"ttl={self.ttl:g}, limits={self.limits!r})")


cdef class DecisionCache:

    def __init__(self, bound=10000):
        """Keeps at most `bound` verdicts; then the oldest goes first."""
        self.kept = {}
        self.bound = bound

    cdef Decision find(self, bytes user, bytes key, int64_t now_ms):
        cdef Decision found = <Decision>self.kept.get((user, key))
        if found is None or found.until_ms <= now_ms:
            return None
        self.hits += 1
        return found

    def keep(self, bytes user, bytes key, Decision decision not None, int64_t now_ms):
        """Keeps a decision for its time to live."""
        cdef Decision kept
        self.kept.pop((user, key), None)
        if decision.ttl <= 0 or self.bound <= 0:
            return
        while len(self.kept) >= self.bound:
            del self.kept[next(iter(self.kept))]
        # A copy: a hook may answer with one object for ever
        kept = Decision(bool(decision.allow), decision.reason, decision.ttl,
                        decision.limits)
        kept.until_ms = now_ms + <int64_t>(kept.ttl * 1000)
        self.kept[user, key] = kept

    def get(self, bytes user, bytes key, int64_t now_ms):
        """The decision in force, or None."""
        return self.find(user, key, now_ms)

    def __len__(self):
        return len(self.kept)
