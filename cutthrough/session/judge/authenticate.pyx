# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Authentication: the credentials of a request, known at once or verified off the loop.

Most requests carry credentials that were verified a moment ago: a hash and a look-up. If
not, a password hash has to be computed. It takes a tenth of a second and more, so the
request waits in AUTH while a helper process does it (R24). Its head has been taken by then;
the Client holds the fields that are still needed.
"""

from functools import partial

from libc.stdint cimport uint32_t
from cutthrough.net.buffers cimport OF_REQUESTS, change_share
from cutthrough.net.transport cimport KERNEL
from cutthrough.outcome cimport (
    AUTH_EXPIRED, AUTH_FAILED, AUTH_REQUIRED, BAD_CREDENTIALS_FIELD, OK, OVERLOADED,
    TLS_CERTIFICATE)
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.auth cimport KNOWN, PENDING, Account
from cutthrough.session.judge.secure cimport certified_name
from cutthrough.session.model.client cimport (
    Client, is_certified_before, leave_place, set_tried, set_user, user_of)
from cutthrough.session.model.inside cimport Inside
from cutthrough.session.model.phase cimport PHASE_JUDGE, parked
from cutthrough.session.model.shed cimport lend_head, list_waiting
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport AUTH
from cutthrough.wire.http1 cimport Field, Head
from cutthrough.wire.names cimport F_PROXY_AUTHORIZATION

# The credentials of the request being read; used within one call of parse() only
cdef bytes pending = None


cdef int authenticate(Client c, const Head *head, const char *data) except -1:
    cdef const Field *field
    cdef int index = head.first[F_PROXY_AUTHORIZATION]
    if is_certified_before(c):
        return TLS_CERTIFICATE
    if c.entrance.is_inside:
        return take_outer_user(c, <Inside>c.entrance)
    if c.sock.kind != KERNEL and take_certified(c):
        c.stamps.auth_us = end_brief_phase(&c.stamps)
        return AUTH_EXPIRED if c.account.has_expired() else on_known(c)
    if head.count[F_PROXY_AUTHORIZATION] > 1:
        return BAD_CREDENTIALS_FIELD
    if index == 0:
        return authenticate_nobody(c)
    field = &head.fields[index - 1]
    return check_credentials(c, data + field.value, field.value_len)


cdef int take_outer_user(Client c, Inside inside) except -1:
    """A request inside is its CONNECT's user's, as long as that user exists."""
    c.stamps.auth_us = end_brief_phase(&c.stamps)
    set_user(c, inside.login)
    c.account = inside.account
    c.vouched = inside.vouched
    if c.snapshot is not inside.snapshot:
        c.account = account_in(c, c.snapshot)
    if c.account is None:
        return AUTH_FAILED
    return AUTH_EXPIRED if c.account.has_expired() else OK


cdef bint needs_credentials(Client c) except -1:
    return certified_name(c) is None and not c.entrance.admits_anonymous(&c.address)


cdef int authenticate_nobody(Client c) except -1:
    if is_certified_before(c):
        return TLS_CERTIFICATE
    if c.sock.kind != KERNEL and take_certified(c):
        c.stamps.auth_us = end_brief_phase(&c.stamps)
        return AUTH_EXPIRED if c.account.has_expired() else on_known(c)
    if not c.entrance.admits_anonymous(&c.address):
        return AUTH_REQUIRED
    c.stamps.auth_us = end_brief_phase(&c.stamps)
    if c.entrance.user is None:
        c.account = c.snapshot.users.anonymous
        return OK
    c.account = c.snapshot.users.certified(c.entrance.user)
    if c.account.has_expired():
        return AUTH_EXPIRED
    set_user(c, c.account.name)             # not `known`: nothing proves who it is
    c.vouched = True
    return OK


cdef int check_credentials(Client c, const char *header, size_t n) except -1:
    global pending
    cdef int verdict
    c.vouched = False
    c.account = c.snapshot.users.authenticate(
        header, n, c.stamps.start_us + c.stamps.mark_us, &verdict)
    if verdict == PENDING:
        value = header[:n]
        set_tried(c, name_of(c, value))
        if c.context.verifier is not None:
            pending = value
            return OK
        c.account = c.snapshot.users.compare(value)     # no verifier: no hash can match
        if c.account is not None:
            c.snapshot.users.remember(c.snapshot.users.key_of(value), c.account)
    # A look-up takes less than the clock's step
    c.stamps.auth_us = 1 if verdict == KNOWN else end_brief_phase(&c.stamps)
    if c.account is None:
        return AUTH_FAILED
    return on_known(c)


cdef bint take_certified(Client c) except -1:
    """The client's certificate says who it is: a password is not looked at."""
    cdef bytes name = certified_name(c)
    c.account = None if name is None else c.snapshot.users.certified(name)
    c.vouched = name is not None
    return name is not None


cdef object account_in(Client c, Snapshot newest):
    cdef bytes user = user_of(c)
    if user is None:                    # the listener that admitted it is the same
        return newest.users.anonymous
    account = newest.users.find(user)
    return newest.users.certified(user) if account is None and c.vouched else account


cdef bytes name_of(Client c, value):
    """The user's name for the log: never the password (R37), and cut if it is long."""
    name = c.snapshot.users.name_of(value)
    return None if name is None else name[:MOST_TRIED]


cdef int on_known(Client c) except -1:
    set_user(c, c.account.name)
    c.context.counters.identified += 1
    if not c.known:
        c.known = True
        leave_place(c)                 # at its next rest it is of another kind
        change_share(c.input, OF_REQUESTS)
        change_share(c.head, OF_REQUESTS)
    return OK


cdef int verify(Client c) except -1:
    return OK if c.account is not None else parked(ask_verifier(c, partial(on_verified, c)))


def on_verified(Client c, request_id, answer, uint32_t retry_s):
    """The verifier's answer: an Account, or the label of an outcome; and the seconds until
    another attempt is verified."""
    cdef int outcome
    if c.state != AUTH or c.request_id != request_id:
        return                          # it has ended meanwhile
    try:
        c.poller.take_time()
        outcome = take_verification(c, answer)
        c.request.retry_s = retry_s
        if outcome != OK:
            c.refuse(outcome)
        else:
            c.resume(PHASE_JUDGE)
    except BaseException:
        c.poller.contain(c)


cdef int ask_verifier(Client c, on_verified) except -1:
    global pending
    cdef bytes credentials = pending
    # For IPv6 the network: a host may take any address in it (RFC 4291 section 2.5.1)
    cdef bytes client = (<char *>c.address.bytes)[:4 if c.address.family == 4 else 8]
    pending = None
    if not lend_head(c):
        return c.refuse(OVERLOADED)
    c._set_state(AUTH)
    list_waiting(c)
    c.context.verifier.verify(
        c.snapshot.users, credentials, client, partial(on_verified, c.request_id))
    return 0


cdef int take_verification(Client c, answer) except -1:
    c.stamps.auth_us = end_brief_phase(&c.stamps)
    if not isinstance(answer, Account):
        return OUTCOMES[answer]
    c.account = answer
    c.context.counters.verified += 1
    return on_known(c)
