# cython: language_level=3
"""A cache of the hook's decisions, each kept for its time to live.

The key is one user and one destination, because the next request of the same kind should cost a
look-up and no Python. A decision for which the hook has read the client's fingerprints has them in
its key, too. Each generation begins with an empty cache.
"""

import math

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    MOST_REASON = 64
    MOST_TTL = 86400            # s: a wrong decision is gone within a day


@cython.auto_pickle(True)                    # it is public: a hook may keep it anywhere
cdef class Decision:
    """The answer of a hook.

    `allow`: may the request pass? `reason`: a few printable ASCII characters for the log line.
    `ttl`: seconds for which the decision holds for the same user, host and port; 0: the hook
    is asked each time. `limits`: a name from the policy's limits. `tls`: "pass": the tunnel
    is not opened, though its rule intercepts; "": as the rule says. Raises ValueError and
    TypeError for invalid arguments.
    """

    def __init__(self, allow, reason="", ttl=0.0, limits="", tls=""):
        if not isinstance(allow, bool):     # because a coroutine or "no" would count as True
            raise TypeError("allow must be True or False")
        if not (isinstance(reason, str) and reason.isascii()
                and (reason.isprintable() or not reason)
                and len(reason) <= MOST_REASON):
            raise ValueError(f"reason: up to {<int>MOST_REASON} printable ASCII characters")
        if not isinstance(limits, str):
            raise TypeError("limits must be a string: a name of the policy's limits")
        if tls not in ("", "pass"):
            raise ValueError('tls: "pass", or ""')
        self.allow = allow
        self.reason = reason
        self.ttl = ttl
        self.limits = limits
        self.tls = tls
        if not math.isfinite(self.ttl) or self.ttl < 0 or self.ttl > MOST_TTL:
            raise ValueError(f"ttl: 0 to {<int>MOST_TTL} seconds")

    def __repr__(self):
        return (f"Decision(allow={bool(self.allow)}, reason={self.reason!r}, "
                f"ttl={self.ttl:g}, limits={self.limits!r}, tls={self.tls!r})")


cdef Decision denial(str reason):
    shown = [c if c.isascii() and c.isprintable() else "?" for c in reason[:MOST_REASON]]
    return Decision(False, reason="".join(shown))


cdef class DecisionCache:

    def __init__(self, bound=10000):
        """Keeps at most `bound` decisions; a new one then replaces the oldest."""
        self.decisions = {}
        self.bound = bound

    cdef Decision find(self, bytes user, bytes key, int64_t now_ms, tuple fingerprints):
        cdef Decision decision = <Decision>self.decisions.get((user, key, fingerprints))
        if decision is None or decision.until_ms <= now_ms:
            return None
        self.hits += 1
        return decision

    def keep(self, bytes user, bytes key, Decision decision not None, int64_t now_ms,
             tuple fingerprints=None):
        """Keeps a decision for its time to live. `fingerprints`: see `find`."""
        cdef Decision copy
        self.by_fingerprints |= fingerprints is not None
        self.decisions.pop((user, key, fingerprints), None)
        if decision.ttl <= 0 or self.bound <= 0:
            return
        while len(self.decisions) >= self.bound:
            del self.decisions[next(iter(self.decisions))]
        # A copy, because a hook may return the same object for ever
        copy = Decision(bool(decision.allow), decision.reason, decision.ttl,
                        decision.limits, decision.tls)
        copy.until_ms = now_ms + <int64_t>(copy.ttl * 1000)
        self.decisions[user, key, fingerprints] = copy

    def get(self, bytes user, bytes key, int64_t now_ms, tuple fingerprints=None):
        """The decision in force, or None."""
        return self.find(user, key, now_ms, fingerprints)

    def __len__(self):
        return len(self.decisions)
