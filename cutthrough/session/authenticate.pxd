"""Who asks: the credentials of one request, known at once or verified off the loop."""

from cutthrough.session.client cimport Client
from cutthrough.wire.http1 cimport Head

# An Outcome. OK with an account: known. OK without: the credentials are kept, and
# ask_verifier has to be called once the head has been taken.
cdef int authenticate(Client c, const Head *head, const char *data) except -1
# The request waits in AUTH; `on_verified(request_id, answer)` is called when it is known.
cdef int ask_verifier(Client c, on_verified) except -1
# What the verifier said: an Account, or the label of an outcome. An Outcome.
cdef int take_answer(Client c, answer) except -1
