# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Everything that decides whether a request may pass, for one generation.

A snapshot never changes, because a reload makes another, and a request keeps its first one.
Only this host's addresses change; `HostAddresses` holds them for all snapshots of a worker.
The parts are the users (`users`), the rules (`acl`), the operator's hook and its cached
decisions (`hook`, `verdicts`), and three checks without rules, which are here: the ports of
CONNECT, the proxy's own listeners and the address floor.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from libc.stdint cimport uint8_t
from libc.string cimport memcmp
from cutthrough.outcome cimport ADDRESS_DENIED, LOOP_DETECTED, OK, PORT_DENIED, label_of
from cutthrough.policy.acl cimport BY_CONNECT, Acl
from cutthrough.policy.address cimport Carried, find_carried, is_public
from cutthrough.policy.auth cimport Authenticator
from cutthrough.policy.networks cimport NetworkSets, key_of, key_of_v4


cdef class HostAddresses:

    def __init__(self, texts=()):
        self.set(texts)

    def set(self, texts):
        """Replaces the addresses."""
        self.packed = frozenset([unmapped(ipaddress.ip_address(text)) for text in texts])

    def __contains__(self, text):
        return unmapped(ipaddress.ip_address(text)) in self.packed


class Bounds(NamedTuple):
    """The destinations that are refused whatever the rules say. Addresses and networks are
    texts."""

    address_floor: bool                 # only public addresses (R27)
    connect_ports: Iterable[int] | None     # that CONNECT may reach; None: all
    # (address, port) of the proxy's; the unspecified address stands for all of this host
    listeners: Iterable[tuple[str, int]] = ()
    # This host's, which the floor refuses on every port: a HostAddresses, which may change, or
    # texts
    host_addresses: Iterable[str] = ()
    own_networks: Iterable[str] = ()    # that this host draws addresses from; refused likewise


class Judges(NamedTuple):
    """The operator's own; None: there is none."""

    acl: object = None
    hook: object = None                 # see generation.hook
    filters: object = None              # see filters.stage
    edits: Mapping[int, tuple] | None = None    # see Snapshot.edits
    refusals: object = None             # see policy.refusals


class WaysOut(NamedTuple):
    """The ways of connections to origins."""

    parents: object = None              # Ways, with their groups; None: there are none
    # User -> number of the source of its connections, unless a rule names another
    own_sources: Mapping[bytes, int] | None = None
    origins: Mapping[str, tuple[int, int]] | None = None    # see Snapshot.origins


cdef bint note_connects(Acl acl, filters) except -1:
    """Notes in the rules which of them have filters of tunnels. Is there any?"""
    cdef bint some = False
    cdef int number
    for number, rule in enumerate(acl.rules if acl is not None and filters is not None else ()):
        if filters.connects(rule.filters).connects:
            acl.rows[number].acts |= BY_CONNECT
            some = True
    return some


cdef class Snapshot:

    def __init__(self, users, bounds not None, *, judges=Judges(), ways_out=WaysOut(), senders=(),
                 generation=1):
        """`users`: an Authenticator, or {name: password} in bytes. `bounds`: Bounds; `judges`:
        Judges; `ways_out`: WaysOut. `senders`: the networks, as texts, whose PROXY headers may
        name clients."""
        cdef int port
        self.users = users if isinstance(users, Authenticator) else Authenticator(users)
        self.generation = generation
        self.acl = judges.acl
        self.hook = judges.hook
        self.verdicts = judges.hook.verdicts if judges.hook is not None else None
        self.filters = judges.filters
        self.sees_connects = note_connects(self.acl, judges.filters)
        self.edits = dict(judges.edits or ())
        self.replaced_paths = None if judges.acl is None else {
            number: tuple([text.encode() for text in rule.replace_path])
            for number, rule in enumerate(judges.acl.rules) if rule.replace_path} or None
        self.refusals = judges.refusals
        self.ways = ways_out.parents
        self.own_sources = dict(ways_out.own_sources) if ways_out.own_sources else None
        self.origins = dict(ways_out.origins or ())
        self.address_floor = bounds.address_floor
        self.any_port = bounds.connect_ports is None
        for port in bounds.connect_ports or ():
            self.ports[port >> 3] |= <uint8_t>(1 << (port & 7))
        self.networks = NetworkSets()
        self.sender_set = self.networks.number(tuple(senders))
        self.own_set = self.networks.number(tuple(bounds.own_networks))
        self.networks.seal()
        self.listeners = {}
        hosts = bounds.host_addresses
        self.host_addresses = hosts if isinstance(hosts, HostAddresses) else HostAddresses(hosts)
        for text, number in bounds.listeners:
            address = ipaddress.ip_address(text)
            self.listeners.setdefault(unmapped(address), set()).add(number)
            self.listening_ports[number >> 3] |= <uint8_t>(1 << (number & 7))

    cdef int judge_port(self, bint is_connect, int port) noexcept:
        if is_connect and not self.any_port and not has_bit(self.ports, port):
            return PORT_DENIED
        return OK

    cdef int judge_loop(self, int family, const uint8_t *data, int port) except -1:
        cdef Carried carried
        cdef int i
        if not has_bit(self.listening_ports, port):
            return OK
        if self._is_listener(family, data, port):
            return LOOP_DETECTED
        if family == 6:
            for i in range(find_carried(data, &carried)):
                if self._is_listener(4, carried.v4[i], port):
                    return LOOP_DETECTED
        return OK

    cdef int judge_floor(self, int family, const uint8_t *data) except -1:
        cdef Carried carried
        cdef int i
        if self.address_floor:
            if not is_public(family, data) or self.is_own(family, data):
                return ADDRESS_DENIED
            if family == 6:
                for i in range(find_carried(data, &carried)):
                    if self.is_own(4, carried.v4[i]):
                        return ADDRESS_DENIED
        return OK

    cdef bint may_name_clients(self, int family, const uint8_t *data) noexcept:
        return self.networks.contains(
            self.sender_set, key_of_v4(data) if family == 4 else key_of(data))

    cdef bint is_own(self, int family, const uint8_t *data) except -1:
        return is_among(self.host_addresses, family, data) or (
            self.own_set != 0 and self.networks.contains(
                self.own_set, key_of_v4(data) if family == 4 else key_of(data)))

    cdef bint _is_listener(self, int family, const uint8_t *data, int port) except -1:
        parsed = ipaddress.ip_address((<char *>data)[:4 if family == 4 else 16])
        packed = unmapped(parsed)
        if port in self.listeners.get(packed, ()):
            return True
        # Connecting to the unspecified address reaches this host. A listener on the unspecified
        # address is reached by each address of this host, and by every loopback address
        parsed = ipaddress.ip_address(packed)
        return parsed.is_unspecified or (
            (parsed.is_loopback or self.is_own(parsed.version, packed))
            and any([port in self.listeners.get(bytes(n), ()) for n in (4, 16)]))

    # For explain and the doctor: these return the label of an outcome.

    def port_outcome(self, is_connect, port):
        return label_of(self.judge_port(is_connect, port)).decode()

    def loop_outcome(self, address, port):
        parsed = ipaddress.ip_address(address)
        cdef bytes packed = parsed.packed
        return label_of(self.judge_loop(parsed.version, packed, port)).decode()

    def floor_outcome(self, address):
        parsed = ipaddress.ip_address(address)
        cdef bytes packed = parsed.packed
        return label_of(self.judge_floor(parsed.version, packed)).decode()


cdef inline bint has_bit(const uint8_t *bits, int i) noexcept nogil:
    return bits[i >> 3] >> (i & 7) & 1


cdef inline bint is_among(HostAddresses hosts, int family, const uint8_t *data) except -1:
    if family == 6 and memcmp(data, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
        family, data = 4, data + 12
    return (<char *>data)[:4 if family == 4 else 16] in hosts.packed


cdef bytes unmapped(address):
    return (getattr(address, "ipv4_mapped", None) or address).packed
