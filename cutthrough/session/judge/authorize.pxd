"""May this request pass, and to this address? Judged by the snapshot it began with."""

from cutthrough.net.address cimport Address
from cutthrough.policy.acl cimport Verdict
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.inside cimport Inside
from cutthrough.session.model.request cimport Request

# The phase: called when the user is known, before anything is resolved. Addresses are judged
# later, each one. Returns an Outcome, from the Client's fields alone: the head may be gone by then.
cdef int judge(Client c) except -1
# Its rules alone: of each datagram, too. Returns an Outcome.
cdef int judge_request(Client c) except -1
# Called for each address before it is connected to (R26). Returns an Outcome.
cdef int judge_address(Client c, const Address *address) except -1
# Called for a request that has its way, if filters of its body may have changed method or path.
# Returns an Outcome.
cdef int judge_late(Client c) except -1
# Called for a connected tunnel, when its first bytes are known. Returns an Outcome.
cdef int judge_opening(Client c) except -1
# Called for a tunnel that is to be opened: if its CONNECT names an address and its ClientHello a
# server, the rules judge this name at that address, too (R77). Returns an Outcome.
cdef int judge_server_name(Client c) except -1

# The rest is for under_way.
# Asks the rules of a snapshot about the request, at this address; NULL: not known yet.
cdef int ask_rules(Client c, Snapshot snapshot, const Address *address, Verdict *verdict) except -1
# Asks them about the CONNECT around the request. `named`: about the server that its client named.
cdef int ask_connect(Client c, Inside inside, Snapshot snapshot, Verdict *verdict,
                     Verdict *named) except -1
# Makes this verdict the request's. Returns its Outcome.
cdef int take_verdict(Client c, const Verdict *verdict, const Address *address) except -1
# The outcome of the floor for this address, unless this verdict of the snapshot's rules, or that about
# the CONNECT around the request, opens it.
cdef int floor_outcome(Client c, Snapshot snapshot, const Verdict *verdict,
                       const Address *address) except -1
# The destination's address; NULL: it is not known here.
cdef const Address *known_address(Client c, Address *out) except? NULL
# Does it offer an upgrade, or is it a tunnel that began so, in another worker too?
cdef bint is_upgrade(const Request *r) noexcept
