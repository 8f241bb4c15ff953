"""May this request pass, and to this address? Judged by the snapshot it began with."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client

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
# The request becomes a tunnel: would a reload have cut it meanwhile?
cdef bint is_cut_meanwhile(Client c) except -1
# A tunnel that another process let in now belongs to the newest snapshot. False: that
# snapshot cuts it. `asked_for`: the rule that let it in has `cut` set.
cdef bint readmit(Client c, bint asked_for) except -1
