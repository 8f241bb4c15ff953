# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SOCKS in: the stages of versions 5, 4 and 4a (RFC 1928, RFC 1929; R51).

    greeting ─> method 2 ─> name and password ─> request ─┐
             ├> method 0, if the client needs none ───────┤
    version 4: request, if the client needs none ─────────┴─> as a CONNECT from here on

A request becomes the same fields as the head of a CONNECT, and the same functions judge it
(R41); rules and hooks see a CONNECT. Only the replies differ: `wire.socks` makes them from the
table of outcomes, and request.hint says which message they answer.

A password is verified as that of Basic credentials is: the same cache, hashes, back-off and
tarpit. The user id of version 4 is no credential: nothing proves it.

If the listener serves HTTP too, what does not begin with 4 or 5 is HTTP: no method does.

A client that needs no credentials gets method 0 if it offers it. Java offers 0 and 2 and may
have no password (java.net.SocksSocketImpl).
"""

from binascii import b2a_base64
from functools import partial

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.net.sysio cimport CAN_READ, try_send
from cutthrough.outcome cimport (
    AUTH_EXPIRED, AUTH_FAILED, AUTH_REQUIRED, BAD_SOCKS, CLIENT_RESET, OK, UNSUPPORTED_COMMAND)
from cutthrough.policy.auth cimport Account
from cutthrough.session.judge.authenticate cimport (
    MOST_TRIED, account_in, ask_verifier, authenticate_nobody, check_credentials, needs_credentials,
    take_verification)
from cutthrough.session.judge.secure cimport certified_name
from cutthrough.session.model.client cimport Client, Observer, rest, set_tried
from cutthrough.session.model.destination cimport set_destination
from cutthrough.session.model.stage cimport STAGE_SOCKS_REQUEST, STAGE_SOCKS_USER, Reply
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport AUTH, HEAD
from cutthrough.wire.names cimport M_OTHER, M_SOCKS4, M_SOCKS5, M_UDP
from cutthrough.wire.socks cimport (
    METHOD_NONE, METHOD_PASSWORD, NO_MESSAGE, OF_GREETING, OF_PASSWORD, OF_REQUEST,
    OF_REQUEST_4, SOCKS_ASSOCIATE, SOCKS_CONNECT, SocksPassword, SocksRequest, build_method,
    build_welcome, parse_greeting, parse_password, parse_socks4_request, parse_socks5_request)


# --- greeting ----------------------------------------------------------------------

cdef int read_opening(void *state, const char *data, size_t n, size_t *used) noexcept nogil:
    cdef Opening *opening = <Opening *>state
    cdef int length
    opening.version = <uint8_t>data[0]
    opening.refusal = OK
    if opening.version != 5 and opening.version != 4:
        return 1
    if opening.version == 4:
        length = parse_socks4_request(&opening.request, data, n)
        if length < 0:                      # the runner would refuse it as a greeting
            opening.refusal = -length
            return 1
        return done(length, used)
    return done(parse_greeting(&opening.greeting, data, n), used)


cdef inline int done(int length, size_t *used) noexcept nogil:
    if length > 0:
        used[0] = length
        return 1
    return length


cdef bint choose_method(Client c, const void *state, Reply *reply) except -1:
    cdef const Opening *opening = <const Opening *>state
    if opening.version == 4:
        c.request.method = M_SOCKS4
        c.request.hint = OF_REQUEST_4
        if not c.entrance.socks4:
            return refuse(c, BAD_SOCKS)
        if opening.refusal != OK:
            return refuse(c, opening.refusal)
        return take_request(c, &opening.request, reply)
    if opening.version != 5 and c.entrance.http:
        c.request.method = M_OTHER
        c.request.hint = NO_MESSAGE
        return True
    c.request.method = M_SOCKS5
    c.request.hint = OF_GREETING
    if opening.version != 5 or not c.entrance.socks5:
        return refuse(c, BAD_SOCKS)
    c.stages |= STAGE_SOCKS_REQUEST
    if opening.greeting.offers_none and not needs_credentials(c):
        c.request.hint = OF_REQUEST
        reply.n = build_method(reply.bytes, METHOD_NONE)
    elif opening.greeting.offers_password:
        c.stages |= STAGE_SOCKS_USER
        c.request.hint = OF_PASSWORD
        reply.n = build_method(reply.bytes, METHOD_PASSWORD)
    else:
        return refuse(c, AUTH_REQUIRED)
    return True


cdef bint refuse(Client c, int outcome) except -1:
    c.refuse(outcome)
    return False


# --- name and password -------------------------------------------------------------

cdef int read_user(void *state, const char *data, size_t n, size_t *used) noexcept nogil:
    return done(parse_password(<SocksPassword *>state, data, n), used)


cdef bint check_user(Client c, const void *state, Reply *reply) except -1:
    cdef const SocksPassword *password = <const SocksPassword *>state
    cdef bytes name = password.name[:password.name_len]
    cdef bytes value
    cdef int outcome
    c.request.hint = OF_PASSWORD
    c.snapshot = c.context.snapshot
    c.stamps.head_us = end_brief_phase(&c.stamps)
    if certified_name(c) is not None:       # as for HTTP: the password is not looked at
        outcome = authenticate_nobody(c)
        if outcome != OK:
            return refuse(c, outcome)
        reply.n = welcome(c, reply.bytes)
        return True
    if b":" in name:                        # no name has one, and Basic could not say it
        set_tried(c, name[:MOST_TRIED])
        return refuse(c, AUTH_FAILED)
    value = b"Basic " + b2a_base64(
        name + b":" + password.secret[:password.secret_len], newline=False)
    outcome = check_credentials(c, value, len(value))
    if outcome != OK:
        return refuse(c, outcome)
    if c.account is not None:
        reply.n = welcome(c, reply.bytes)
    else:
        ask_verifier(c, partial(on_verified, c))
    return True


cdef int welcome(Client c, char *out) noexcept:
    c.request.hint = OF_REQUEST
    return build_welcome(out)


def on_verified(Client c, request_id, answer, uint32_t retry_s):
    """The verifier's answer: an Account, or the label of an outcome; and the seconds until
    another attempt is verified."""
    cdef int outcome
    cdef Reply reply
    if c.state != AUTH or c.request_id != request_id:
        return                              # it has ended meanwhile
    try:
        c.poller.take_time()
        outcome = take_verification(c, answer)
        if outcome != OK:
            c.refuse(outcome)
            return
        c._set_state(HEAD)
        reply.n = welcome(c, reply.bytes)
        if try_send(&c.sock, reply.bytes, reply.n) != reply.n:
            c.abort(CLIENT_RESET, False)
        elif c.input != NULL or c.sock.ready & CAN_READ:
            c.poller.call_again(c)
        else:
            rest(c)
    except BaseException:
        c.poller.contain(c)


# --- request -----------------------------------------------------------------------

cdef int take_newest(Client c) except -1:
    """A reload may have come since the password: the request is of the policy that is in force
    now. An Outcome."""
    cdef Account account = c.account
    if account is not None and c.snapshot is not c.context.snapshot:
        account = account_in(c, c.context.snapshot)
        if account is None:
            return AUTH_FAILED
        c.account = account
    c.snapshot = c.context.snapshot
    return AUTH_EXPIRED if account is not None and account.has_expired() else OK


cdef int read_request(void *state, const char *data, size_t n, size_t *used) noexcept nogil:
    return done(parse_socks5_request(<SocksRequest *>state, data, n), used)


cdef bint take_request(Client c, const void *state, Reply *reply) except -1:
    cdef SocksRequest *request = <SocksRequest *>state
    cdef int outcome
    c.stamps.head_us += end_brief_phase(&c.stamps)
    outcome = take_newest(c)
    if outcome != OK:
        return refuse(c, outcome)
    set_destination(c, &request.target)
    c.request.is_tunnel = True
    if request.command == SOCKS_ASSOCIATE and c.entrance.udp and c.request.hint == OF_REQUEST:
        c.request.method = M_UDP
        c.request.port = 0                  # it names the client's own address, not used
    elif request.command != SOCKS_CONNECT:
        return refuse(c, UNSUPPORTED_COMMAND)
    if c.context.observer is not None:
        (<Observer>c.context.observer).on_request(c, NULL, NULL)
    if c.account is None:
        outcome = authenticate_nobody(c)
        if outcome != OK:
            return refuse(c, outcome)
    return True
