# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The protocols of a listener, and its clients that need no credentials."""

from cutthrough.net.address cimport UNIX_CALLER, Address
from cutthrough.net.intercepted import WAYS
from cutthrough.policy.networks cimport NetworkSets, key_of, key_of_v4


cdef class Entrance:

    def __init__(self, protocols=("http",), *, bint udp=False, bint needs_user=True,
                 anonymous_from=(), transparent="off", senders=(), user="",
                 believed=(), bint host_strict=False):
        """`protocols`: of http, http2, socks5, socks4. `udp`: serves ASSOCIATE of SOCKS5.
        `anonymous_from`: networks as texts; if not `needs_user`, their clients need no
        credentials, and if it is (), no client does. `transparent`: of net.intercepted.WAYS.
        `senders`: networks of its load balancers; (): the snapshot's. `user`: the user of
        requests without credentials; "": nobody. `believed`: networks of proxies whose
        X-Forwarded-For names clients. `host_strict`: Host must be the server name of TLS."""
        self.transparent = WAYS[transparent]
        self.http = "http" in protocols
        self.http2 = "http2" in protocols
        self.socks5 = "socks5" in protocols
        self.socks4 = "socks4" in protocols
        self.udp = udp
        self.needs_user = needs_user
        self.host_strict = host_strict
        self.user = user.encode() or None
        self.is_for_all = not anonymous_from
        self.networks = NetworkSets()
        self.number = self.networks.number(tuple(anonymous_from))
        self.has_senders = bool(senders)
        self.senders = self.networks.number(tuple(senders))
        self.believed = self.networks.number(tuple(believed))
        self.networks.seal()

    cdef Entrance copy(self):
        cdef Entrance other = Entrance.__new__(Entrance)
        other.http, other.http2 = self.http, self.http2
        other.socks5, other.socks4, other.udp = self.socks5, self.socks4, self.udp
        other.needs_user, other.user = self.needs_user, self.user
        other.is_for_all, other.transparent = self.is_for_all, self.transparent
        other.has_senders, other.senders = self.has_senders, self.senders
        other.networks, other.number = self.networks, self.number
        other.believed, other.prints = self.believed, self.prints
        other.host_strict = self.host_strict
        other.has_peer, other.peer = self.has_peer, self.peer
        return other

    cdef int leave(self) except -1:
        return 0

    cdef bint admits_anonymous(self, const Address *address) noexcept:
        if self.needs_user:
            return False
        if address.family == UNIX_CALLER:       # in no network
            return self.is_for_all
        return self.is_for_all or self.contains(self.number, address)

    cdef bint believes(self, const Address *address) noexcept:
        return address.family != UNIX_CALLER and self.contains(self.believed, address)

    cdef bint admits_sender(self, const Address *address) noexcept:
        return self.contains(self.senders, address)

    cdef bint contains(self, uint32_t number, const Address *address) noexcept:
        return self.networks.contains(
            number,
            key_of_v4(address.bytes) if address.family == 4 else key_of(address.bytes))
