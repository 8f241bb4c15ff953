"""Authentication: the credentials of a request, known at once or verified off the loop."""

from cutthrough.session.client cimport Client
from cutthrough.wire.http1 cimport Head

# Returns an Outcome. OK with an account: the user is known. OK without one: the credentials
# are kept, and ask_verifier has to be called after the head has been taken.
cdef int authenticate(Client c, const Head *head, const char *data) except -1
# The request waits in AUTH; `on_verified(request_id, answer)` is called with the result.
cdef int ask_verifier(Client c, on_verified) except -1
# `answer`: the verifier's, an Account or the label of an outcome. Returns an Outcome.
cdef int take_answer(Client c, answer) except -1
