# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The protocols of a listener, and its clients that need no credentials."""

from typing import NamedTuple

from cutthrough.net.address cimport UNIX_CALLER, Address
from cutthrough.net.intercepted import WAYS
from cutthrough.policy.networks cimport NetworkSets, key_of, key_of_v4


class Admission(NamedTuple):
    """The clients that need no credentials: none if `needs_user`, else those of the networks of
    `anonymous_from`, as texts; (): all. `user`: whose their requests are; "": nobody's."""

    needs_user: bool = True
    anonymous_from: tuple = ()
    user: str = ""


cdef class Entrance:

    def __init__(self, protocols=("http",), *, bint udp=False, admission=Admission(),
                 transparent="off", senders=(), believed=(), bint host_strict=False):
        """`protocols`: of http, http2, socks5, socks4. `udp`: serves ASSOCIATE of SOCKS5.
        `transparent`: of net.intercepted.WAYS. `senders`: networks of its load balancers; ():
        the snapshot's. `believed`: networks of proxies whose X-Forwarded-For names clients.
        `host_strict`: Host must be the server name of TLS."""
        self.transparent = WAYS[transparent]
        self.http = "http" in protocols
        self.http2 = "http2" in protocols
        self.socks5 = "socks5" in protocols
        self.socks4 = "socks4" in protocols
        self.udp = udp
        self.needs_user = admission.needs_user
        self.host_strict = host_strict
        self.user = admission.user.encode() or None
        self.is_for_all = not admission.anonymous_from
        self.networks = NetworkSets()
        self.number = self.networks.number(tuple(admission.anonymous_from))
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
