# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parents: which of them a request goes through, without I/O.

A rule names a route: a parent, a group, or `direct`. A group chooses a member; a parent alone
is a group of one. A member is passed over while its circuit is open or its check fails, and
nothing goes directly unless `direct` is a member (R44). A named origin is a group as well: its
servers are the members, and get the requests themselves.

    closed ── 3 failures in a row ──> open, for 1 s, 2 s, 4 s … 60 s ──> one trial
       ^ ───────────────────────────────── it succeeds ───────────────────┘ │
                                        open, for twice as long <── it fails ┘

A failure counts as the parent's own as long as no destination has been named to it. If a parent
stays silent about a destination, it is suspected only, because it may wait for it: its circuit opens
for all after failures with three destinations, and of two users. If they are one user's, it opens
for this user alone (R76). Any valid answer clears it.

A parent keeps its number and its Standing over all generations as long as all properties of its
connections are the same, because idle connections are pooled by the number.
"""

import base64
import hashlib
from typing import NamedTuple

from libc.math cimport log
from libc.stdint cimport UINT16_MAX, int64_t, uint64_t
from cutthrough.outcome cimport BAD_PARENT, PARENT_REFUSED, PARENT_UNREACHABLE
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.policy.origins cimport Origin
from cutthrough.wire.parent cimport BY_CONNECT, BY_SOCKS4, BY_SOCKS5
from cutthrough.wire.authority cimport parse_authority

cdef enum:
    MOST_FAILURES = 3           # in a row, until the circuit opens
    FIRST_BACKOFF_MS = 1000
    MOST_BACKOFF_MS = 60000

cdef enum:                      # Way.chooser
    FAILOVER = 0
    ROUND_ROBIN
    LEAST_CONNECTIONS
    FASTEST
    HASHED

cdef dict CHOOSERS = {
    "failover": (FAILOVER, KEYED_BY_NOTHING), "round_robin": (ROUND_ROBIN, KEYED_BY_NOTHING),
    "least_connections": (LEAST_CONNECTIONS, KEYED_BY_NOTHING),
    "fastest": (FASTEST, KEYED_BY_NOTHING), "hash_user": (HASHED, KEYED_BY_USER),
    "hash_client": (HASHED, KEYED_BY_CLIENT),
    "hash_destination": (HASHED, KEYED_BY_DESTINATION)}
cdef dict PROTOCOLS = {
    "http": BY_CONNECT, "https": BY_CONNECT, "socks5": BY_SOCKS5, "socks4a": BY_SOCKS4}

DIRECT = "direct"

# The labels of Standing.lost, in its order
LOSSES = tuple([row.label for row in OUTCOMES[<int>PARENT_UNREACHABLE:<int>BAD_PARENT + 1]])
assert len(LOSSES) == <int>N_LOSSES
# A server of a named origin counts its own in the places of a parent's: see session.ways.origins
LOSSES_OF_SERVERS = {
    "parent_unreachable": "origin_unreachable", "parent_timeout": "connect_timeout",
    "parent_closed": "origin_closed", "parent_handshake": "origin_tls",
    "parent_certificate": "origin_certificate", "bad_parent": "response_timeout"}


cdef class Standing:

    def __init__(self, number, name):
        self.number = number
        self.name = name

    cdef bint may_try(self, int64_t now_ms, uint64_t user) noexcept:
        return not self.is_down and (
            self.retry_ms == 0 or now_ms >= self.retry_ms
            or (self.only_for != 0 and self.only_for != user))

    cdef bint is_up(self) noexcept:
        return not self.is_down and (self.retry_ms == 0 or self.only_for != 0)

    cdef void begin(self, int64_t now_ms, uint64_t user) noexcept:
        if self.retry_ms and (self.only_for == 0 or self.only_for == user):
            self.retry_ms = now_ms + self.backoff_ms

    cdef void succeed(self, int64_t took_us) noexcept:
        self.note_setup(took_us)
        self.close_circuit()

    cdef void note_setup(self, int64_t took_us) noexcept:
        self.used += 1
        self.used_us += took_us
        # An eighth of the newest, as TCP smooths its round trips (RFC 6298 section 2)
        self.setup_us = took_us if self.setup_us == 0 else (7 * self.setup_us + took_us) // 8

    cdef void refuse(self) noexcept:
        self.lost[PARENT_REFUSED - PARENT_UNREACHABLE] += 1
        self.close_circuit()

    cdef void close_circuit(self) noexcept:
        self.failures = self.n_suspects = 0
        self.retry_ms = 0

    cdef void fail(self, int64_t now_ms, int outcome) noexcept:
        self.lost[outcome - PARENT_UNREACHABLE] += 1
        self.failures += 1
        if self.failures >= MOST_FAILURES:
            self.open_circuit(now_ms, 0)

    cdef void suspect(self, int64_t now_ms, int outcome, uint64_t user,
                      uint64_t destination) noexcept:
        cdef int destinations = 0
        cdef bint is_alone = True
        cdef int i, j
        self.lost[outcome - PARENT_UNREACHABLE] += 1
        for i in range(self.n_suspects):
            is_alone &= self.suspects[i].user == user
            if self.suspects[i].user == user and self.suspects[i].destination == destination:
                break
        else:
            # If a list is full, one user's place is another's: one alone cannot fill it
            i = min(self.n_suspects, <int>MOST_SUSPECTS - 1)
            self.n_suspects = i + 1
            self.suspects[i] = Suspect(user, destination)
        is_alone = True
        for i in range(self.n_suspects):
            is_alone &= self.suspects[i].user == user
            j = 0
            while self.suspects[j].destination != self.suspects[i].destination:
                j += 1
            destinations += j == i
        if destinations >= MOST_FAILURES:
            self.open_circuit(now_ms, user if is_alone else 0)

    cdef void open_circuit(self, int64_t now_ms, uint64_t only_for) noexcept:
        if self.retry_ms == 0 or (self.only_for != 0 and only_for != self.only_for):
            self.backoff_ms = FIRST_BACKOFF_MS
        elif now_ms < self.retry_ms - self.backoff_ms + 1:
            return                      # it began before the circuit opened
        else:
            self.backoff_ms = min(2 * self.backoff_ms, <int64_t>MOST_BACKOFF_MS)
            only_for = self.only_for
        self.only_for = only_for
        self.retry_ms = now_ms + self.backoff_ms

    def note_check(self, ok, took_us, now_ms):
        """The result of an active check."""
        self.is_down = not ok
        if ok:
            self.close_circuit()
            self.setup_us = took_us if self.setup_us == 0 else (
                7 * self.setup_us + <int64_t>took_us) // 8

    def forget_check(self):
        """Forgets the check of a parent that is not checked any more."""
        self.is_down = False

    def describe(self, now_ms):
        """Returns its state for operators: `up`, `down` (by its check), or `open` (its
        circuit) with the milliseconds until the next trial."""
        return {
            "state": "down" if self.is_down else "up" if self.is_up() else "open",
            "retry_ms": 0 if self.is_up() else max(
                <int64_t>0, self.retry_ms - <int64_t>now_ms),
            "open": self.in_hand, "setup_us": self.setup_us, "requests": self.begun,
            "connects": self.used, "connects_us": self.used_us, "standby": self.standby,
            "standby used": self.standby_used, "standby lost": self.standby_lost,
            "lost": {LOSSES[i]: self.lost[i] for i in range(<int>N_LOSSES)}}


cdef class Parent:

    def __init__(self, source, Parent via, Standing standing, int tls=-1):
        """From a config.parents.Parent, with its secrets. `tls`: number of its context; -1: if
        it needs one, no connection to it can be made, least of all without TLS (R48)."""
        cdef bytes authority
        self.name = source.name
        self.standing = standing
        self.via = via
        self.depth = 0 if via is None else via.depth + 1
        if standing is None:
            return
        authority = source.authority.encode()
        if parse_authority(&self.address, authority, len(authority), 0) != 0:
            raise ValueError(source.authority)
        self.protocol = PROTOCOLS[source.scheme]
        self.server_name = source.expected_name.encode()
        self.tls = tls if source.scheme == "https" else NO_TLS
        self.resolves = source.resolve == "parent"
        self.passes_credentials = source.pass_credentials
        self.forwards = source.plain == "absolute"
        self.by_source = source.by_source
        self.standby = source.standby
        self.proxy_protocol = {"off": 0, "v1": 1, "v2": 2}[source.proxy_protocol]
        self.user, self.password = source.user.encode(), source.password.encode()
        if source.user:
            self.basic = b"Basic " + base64.b64encode(self.user + b":" + self.password)


cdef class Way:

    def __init__(self, name, members, choose="failover", weights=(), tolerance=0.0):
        cdef int chooser
        cdef Keying keying
        chooser, keying = CHOOSERS[choose]
        self.name = name
        self.members = tuple(members)
        self.n = len(self.members)
        self.chooser = chooser
        self.keying = keying
        self.weights = list(weights) or [1] * self.n
        self.turns = [0] * self.n
        self.tolerance_us = int(tolerance * 1e6)

    cdef int pick(self, uint64_t tried, int64_t now_ms, bytes key, uint64_t user) except -2:
        cdef Parent member
        cdef list left = []
        cdef int i
        for i in range(self.n):
            if tried >> i & 1:
                continue
            member = self.members[i]
            if member.standing is None or may_try_all(member, now_ms, user):
                if self.chooser == FAILOVER:
                    return i
                left.append(i)
        if len(left) < 2:
            return left[0] if left else -1
        if self.chooser == HASHED:
            return max(left, key=lambda i: self.score(i, key))
        if self.chooser == LEAST_CONNECTIONS:
            return min(left, key=self.load)
        if self.chooser == FASTEST:
            left = self.fast(left)
        return self.take_turn(left)

    def choose(self, key=None):
        """The name of the member that a request would take if all work, and nothing is
        measured or in hand; `key`: what it hashes. None: no order or key decides."""
        if self.n > 1 and self.chooser not in (FAILOVER, HASHED):
            return None
        return (<Parent>self.members[self.pick(0, 0, key, 0)]).name

    def load(self, i):
        return (<Parent>self.members[i]).standing.in_hand / self.weights[i]

    def score(self, i, bytes key):
        """Rendezvous hashing with weights: each member draws a number for the key, and the
        highest wins. If a member goes, only its keys move."""
        cdef Parent member = self.members[i]
        cdef double drawn = ((hash_of(key, member.name.encode()) >> 11) + 0.5) / (1 << 53)
        return -<int>self.weights[i] / log(drawn)

    cdef list fast(self, list left):
        """Members without a measurement, because they need one; else those that are as fast as
        the fastest, within the tolerance."""
        cdef list fresh = [i for i in left if (<Parent>self.members[i]).standing.setup_us == 0]
        if fresh:
            return fresh
        best = min([(<Parent>self.members[i]).standing.setup_us for i in left])
        return [i for i in left
                if (<Parent>self.members[i]).standing.setup_us <= best + self.tolerance_us]

    cdef int take_turn(self, list left) except -2:
        """Smooth weighted round robin, as nginx has it: no member gets its turns in a row."""
        cdef int i, total = 0, best = left[0]
        for i in left:
            self.turns[i] += self.weights[i]
            total += self.weights[i]
            if self.turns[i] > self.turns[best]:
                best = i
        self.turns[best] -= total
        return best

    cdef int64_t wait_ms(self, int64_t now_ms):
        cdef Parent member
        cdef int64_t least = 0
        for member in self.members:
            while member is not None and member.standing is not None:
                if not member.standing.is_down and member.standing.retry_ms > now_ms and (
                        least == 0 or member.standing.retry_ms - now_ms < least):
                    least = member.standing.retry_ms - now_ms
                member = member.via
        return least


cdef bint may_try_all(Parent member, int64_t now_ms, uint64_t user) noexcept:
    """It, and the parents before it."""
    while member is not None:
        if not member.standing.may_try(now_ms, user):
            return False
        member = member.via
    return True


cdef uint64_t hash_of(bytes key, bytes name) except? 0:
    """FNV-1a, and a finish that spreads it (splitmix64's). The same in every process, because
    all workers must choose the same parent."""
    cdef uint64_t h = 0xcbf29ce484222325ULL
    cdef unsigned char octet
    for octet in key + b"\0" + name:
        h = (h ^ octet) * 0x100000001b3ULL
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ULL
    h = (h ^ h >> 27) * 0x94d049bb133111ebULL
    return h ^ h >> 31


cdef class Registry:

    def __cinit__(self):
        self.standings = [None]
        self.by_identity = {}

    cpdef Standing find(self, str name, str identity):
        cdef Standing standing = self.by_identity.get(identity)
        if standing is None:
            if len(self.standings) > UINT16_MAX:
                raise ValueError("more parents than numbers for them")
            standing = Standing(len(self.standings), name.encode())
            self.standings.append(standing)
            self.by_identity[identity] = standing
        return standing

    def shrink(self, int count):
        """Forgets all but the first `count` standings, because the others were made for a generation
        that is refused. No request has had their numbers."""
        for identity, standing in [*self.by_identity.items()]:
            if (<Standing>standing).number >= count:
                del self.by_identity[identity]
        del self.standings[count:]

    cdef str identity_of(self, int number):
        for identity, standing in self.by_identity.items():
            if (<Standing>standing).number == number:
                return identity
        return None


class Routes(NamedTuple):
    """Names of ways and origins, as rules choose them. `default`, and `origin`: of a request
    whose rule names none; "": directly. `by_rule`: in the order of Acl.routes."""

    default: str
    by_rule: tuple = ()
    origin: str = ""


cdef class Ways:

    def __init__(self, parents, groups, routes, Registry registry, tls=None, origins=()):
        """`parents` and `groups`: from config.parents, by name, valid; the servers of
        `origins`, of config.origins, are among the parents. `routes`: Routes. `registry`: the
        worker's. `tls`: of each parent over TLS, by name, the number of its context and a
        digest of what that was made of; None: of a dry run."""
        cdef dict instances = {}
        direct = Parent(Direct, None, None)
        for name in parents:
            make_parent(name, parents, instances, registry, tls or {})
        self.parents = tuple(instances.values())
        self.by_name = {DIRECT: None}
        for name, parent in instances.items():
            self.by_name[name] = Way(name, (parent,))
        for name, group in groups.items():
            self.by_name[name] = Way(
                name, [instances.get(member, direct) for member in group.parents], group.choose,
                group.weights, group.tolerance)
        for row in origins:
            self.by_name[row.name] = make_origin(row, instances)
        self.has_origins = len(origins) > 0
        self.origin = self.by_name[routes.origin] if routes.origin else None
        self.default = self.by_name[routes.default or DIRECT]
        self.by_route = (self.default, *[self.by_name[name] for name in routes.by_rule])
        self.pass_credentials = any([settings.pass_credentials for settings in parents.values()])


class Direct:
    """Stands for `direct` among a group's members."""

    name = DIRECT


cdef Way make_origin(row, dict instances):
    cdef Origin origin = Origin(row)
    cdef Way way = Way(row.name, [instances[server.name] for server in row.servers],
                       row.choose, row.weights, row.tolerance)
    cdef Parent member
    way.origin = origin
    for member, server in zip(way.members, row.servers):
        member.origin, member.host = origin, server.host.encode() or None
    return way


cdef Parent make_parent(str name, parents, dict instances, Registry registry, dict tls):
    cdef Parent via = None
    cdef int number
    if name in instances:
        return instances[name]
    source = parents[name]
    if source.via:
        via = make_parent(source.via, parents, instances, registry, tls)
    number, _ = tls.get(name, (-1, b""))
    instances[name] = Parent(
        source, via, registry.find(name, identity_of(name, parents, tls)), number)
    return instances[name]


cdef str identity_of(str name, parents, dict tls):
    """A digest of all that makes a connection through it what it is (R46)."""
    digest = hashlib.sha256()
    while name:
        source = parents[name]
        digest.update(repr((*source.identity, tls.get(name, (-1, b""))[1])).encode())
        name = source.via
    return digest.hexdigest()
