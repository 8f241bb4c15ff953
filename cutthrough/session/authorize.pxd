"""May this request pass, and to this address? Asked of the snapshot it began with."""

from cutthrough.net.address cimport Address
from cutthrough.session.client cimport Client

# Asked once who it is is known, before anything is resolved. An Outcome.
cdef int judge_request(Client c) except -1
# Asked of each address before it is connected to (R26). An Outcome.
cdef int judge_address(Client c, const Address *address) except -1
# In whose share its questions are, to name servers and to the hook.
cdef bytes asker_of(Client c)
# Has an operator's function to be asked, whose verdict is not known?
cdef bint must_ask(Client c) except -1
# Asks it, and waits in DECIDE; `on_decided(request_id, decision)` goes on.
cdef int ask_hook(Client c, on_decided) except -1
# What it decided, None for nothing, a label where it was not asked, as an Outcome.
cdef int take_decision(Client c, decision) except -1
# It turns into a tunnel: was there a reload meanwhile that would have cut it?
cdef bint is_cut_meanwhile(Client c) except -1
# A tunnel that another process let in: from here on it is the newest snapshot's. False:
# that one cuts it. `asked_for`: the rule that let it in says what cuts it.
cdef bint readmit(Client c, bint asked_for) except -1
