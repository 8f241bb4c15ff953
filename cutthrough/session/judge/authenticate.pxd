"""Authentication: the credentials of a request, known at once or verified off the loop."""

from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.inside cimport Inside
from cutthrough.wire.http1 cimport Head

cdef enum:
    MOST_TRIED = 256            # octets logged of a name that is not verified; R31

# Returns an Outcome. OK with an account: the user is known. OK without one: the credentials
# are kept, and ask_verifier has to be called after the head has been taken.
cdef int authenticate(Client c, const Head *head, const char *data) except -1
# The same for the value of a Proxy-Authorization field, whatever protocol brought it; and for
# no credentials, which a listener may permit.
cdef int check_credentials(Client c, const char *value, size_t n) except -1
cdef int authenticate_nobody(Client c) except -1
# The same for what is inside an intercepted connection: the CONNECT's user.
cdef int take_outer_user(Client c, Inside inside) except -1
# Neither the listener nor a certificate of the client makes them unnecessary.
cdef bint needs_credentials(Client c) except -1
# The phase: the request waits in AUTH if its credentials are not known.
cdef int verify(Client c) except -1
# The request waits in AUTH; `on_verified(request_id, answer)` is called with the result.
cdef int ask_verifier(Client c, on_verified) except -1
# `answer`: the verifier's, an Account or the label of an outcome. Returns an Outcome.
cdef int take_verification(Client c, answer) except -1
# The account that a client of an earlier snapshot has in this one; None: none any more.
cdef object account_in(Client c, Snapshot newest)
