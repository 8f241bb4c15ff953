# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""TLS inside a tunnel is opened: both handshakes, and the step after them (R54).

    PEEK ─> SECURE ─> HEAD, with the stage of TLS ─> HEAD ─> request, request …
      │      │         └> certificate_rejected
      │      └> origin_tls, origin_certificate, …: an alert
      └> no_certificate: an alert

The origin's handshake comes first. Only if its certificate is accepted does the client get one
of ours for the same name. Then the CONNECT has ended, and the client's connection begins again:
an Inside is its entrance, and TLS its transport. The requests inside are judged, routed, limited and
logged by the code of all requests.

If the rule replays, there is no origin to ask, and the client's handshake follows at once. A
request inside without a recording goes to an origin by its own dial and handshake, or nowhere.

The connection to the origin waits for the first request. Later requests take pooled connections
(the key has the way and the name) or make new ones, and each is verified. If the bytes are no HTTP,
the connection is a tunnel: see inner.
"""

import logging

from libc.stdint cimport int64_t
from cutthrough.net cimport linux
from cutthrough.net.bridge cimport put_bridge
from cutthrough.net.connector cimport Upstream
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.poller cimport Endpoint
from cutthrough.net.sysio cimport BROKEN, CAN_READ, PEER_DONE, try_peek
from cutthrough.net.transport cimport (
    HANDSHAKE_ALERT, HANDSHAKE_CLOSED, HANDSHAKE_DENIED, HANDSHAKE_DONE, HANDSHAKE_MORE,
    HANDSHAKE_REJECTED, HANDSHAKE_RESET, HANDSHAKE_WANTING, KERNEL, REFUSES_CERTIFICATE, TLS,
    WANTS_CERTIFICATE, Agreed, open_transport, transport_of)
from cutthrough.outcome cimport (
    NO_CERTIFICATE, OK, ORIGIN_CERTIFICATE, ORIGIN_TLS, OVERLOADED, SNI_DENIED, label_of,
    status_of)
from cutthrough.policy.decision_cache cimport denial
from cutthrough.policy.acl cimport REPLAYS
from cutthrough.session.judge.secure cimport put_transport
from cutthrough.session.model.client cimport Client, extras_of, is_last, own_opening
from cutthrough.session.model.flight_recorder cimport E_SECURED, note
from cutthrough.session.model.inside cimport Inside, enclose
from cutthrough.session.model.origin_streams cimport (
    carry, has_streams, needs_connection, note_http1, share)
from cutthrough.session.model.phase cimport PHASE_SEND, PHASE_TO_ORIGIN
from cutthrough.session.model.recording_mode cimport recording_of
from cutthrough.session.model.stage cimport STAGE_TLS
from cutthrough.session.model.stamps cimport end_brief_phase, end_phase
from cutthrough.session.model.state cimport HEAD, LINGER, SECURE
from cutthrough.session.transfer.alerts cimport (
    ACCESS_DENIED, HANDSHAKE_FAILURE, UNKNOWN_CA, refuse_opening)
from cutthrough.session.transfer.inner cimport begin_by_greeting, look_inside
from cutthrough.session.transfer.origin_alerts cimport outcome_of_alert
from cutthrough.session.ways.dials cimport relieve
from cutthrough.wire.names cimport M_CONNECT, M_HEAD
from cutthrough.wire.reply cimport reply_with_text

log = logging.getLogger("cutthrough")

cdef enum:
    UNRECOGNIZED_NAME = 112     # alert (RFC 6066 section 3)

cdef long denied = 0            # certificates of origins, not accepted
cdef long silent = 0            # names without a certificate of our own
cdef long unnamed = 0           # names that origins do not know


cdef int begin_interception(Client c, bint only_http, bytes offer) except -1:
    cdef Inside inside = enclose(c, offer)
    if inside is None:
        return refuse_opening(c, SNI_DENIED, ACCESS_DENIED)
    if not may_certify(c, inside.name):
        return refuse_opening(c, NO_CERTIFICATE, ACCESS_DENIED)
    inside.only_http = only_http
    c.entrance = inside
    if recording_of(c) >= REPLAYS:              # there is no origin to ask (R60)
        c.close_origin(False)
        c._set_state(SECURE)
        return greet(c)
    return secure_origin(c)


cdef bint may_certify(Client c, bytes name) except -1:
    global silent
    from cutthrough.net.tls import transport as tls              # here: it needs libssl

    cdef str why = tls.why_silent(c.context.options.client_tls, name)
    if why:
        silent += 1
        if silent & (silent - 1) == 0:          # 1, 2, 4, 8 …: never a flood
            log.warning("intercept_ca: no certificate for %s: %s (%d times so far)",
                        name.decode(), why, silent)
    return not why


cdef int secure_origin(Client c) except -1:
    cdef Inside inside = <Inside>c.entrance
    cdef int context = inside.tls
    cdef int error
    if inside.opening != NULL:
        # A reload may have come since the request was judged: the connection will be kept
        # under the number that it is made with (R46)
        c.request.hop.tls = inside.tls
        if needs_connection(c):
            context = inside.tls_11
    if not put_bridge_if_needed(c, c.origin):
        return fail(c, OVERLOADED)
    error = open_transport(&c.origin.sock, TLS, context - 1, inside.name)
    if error:
        return fail(c, OVERLOADED if error == -linux.ENOMEM else ORIGIN_TLS)
    if inside.offer is not None:
        from cutthrough.net.tls.offer import offer_as   # here: it needs libssl

        offer_as(c.origin.sock.fd, inside.offer)
    if inside.is_unnamed:
        from cutthrough.net.tls.offer import omit_name

        omit_name(c.origin.sock.fd)
    end_phase(&c.stamps)                # of a tunnel the wait for its first bytes
    c._set_state(SECURE)
    return go_on_securing(c)


cdef int go_on_securing(Client c) except -1:
    cdef int result = transport_of(&c.origin.sock).handshake(&c.origin.sock)
    cdef Agreed agreed
    cdef int outcome
    if result == HANDSHAKE_MORE:
        return 0
    if result == -HANDSHAKE_DENIED:
        return fail_certificate(c)
    if result == -HANDSHAKE_ALERT and c.context.options.retry_without_sni and refuses_server_name(c):
        return retry_unnamed(c)
    if result != HANDSHAKE_DONE:
        outcome = outcome_of_alert(
            c, WANTS_CERTIFICATE if result == -HANDSHAKE_WANTING else
            REFUSES_CERTIFICATE if result == -HANDSHAKE_REJECTED else 0, ORIGIN_TLS)
        return fail_handshake(c) if outcome == ORIGIN_TLS and (
            result != -HANDSHAKE_CLOSED and result != -HANDSHAKE_RESET) else fail(c, outcome)
    c.stamps.origin_tls_us += end_brief_phase(&c.stamps)
    agreed.resumed = False
    transport_of(&c.origin.sock).describe(&c.origin.sock, &agreed)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_SECURED, 0, agreed.resumed)
    if c.context.observer is not None:
        c.context.observer.on_origin_tls(c)
    if has_streams(c) and not carry(c):
        return fail(c, OVERLOADED)
    if (<Inside>c.entrance).opening == NULL:
        return greet(c)
    if is_stream(&c.origin.sock):
        share(c)
    else:
        note_http1(c)
    return c.resume(PHASE_SEND)


cdef bint refuses_server_name(Client c) except -1:
    """The origin has refused the server name, and got one."""
    from cutthrough.net.tls import failures     # here: it needs libssl

    return not (<Inside>c.entrance).is_unnamed and (
        failures.alert_of_failed() == UNRECOGNIZED_NAME)


cdef int retry_unnamed(Client c) except -1:
    """Tries again without a server name, by another connection: the first has ended with the alert."""
    global unnamed
    cdef Inside inside = <Inside>c.entrance
    unnamed += 1
    if unnamed & (unnamed - 1) == 0:    # 1, 2, 4, 8 …: never a flood
        log.warning("origin %s: it refuses this server name (unrecognized_name): once more "
                    "without it (%d times so far)", inside.name.decode(), unnamed)
    inside.is_unnamed = True
    c.stamps.origin_tls_us += end_brief_phase(&c.stamps)
    c.close_origin(False)
    c.request.dials = True
    return c.resume(PHASE_TO_ORIGIN)


cdef int fail(Client c, int outcome) except -1:
    """Ends an interception. A request inside gets a reply with the reason; for a tunnel only the log
    has it."""
    cdef int alert = HANDSHAKE_FAILURE
    if (<Inside>c.entrance).opening != NULL:
        return c.refuse(outcome)
    if outcome == ORIGIN_CERTIFICATE:
        from cutthrough.net.tls import transport as tls          # here: it needs libssl

        alert = tls.alert_of_denied()
    return refuse_opening(c, outcome, alert)


cdef int fail_certificate(Client c) except -1:
    """Log and reply have the reason; of a tunnel the client gets an alert."""
    global denied
    from cutthrough.net.tls import transport as tls

    cdef bytes name = (<Inside>c.entrance).name
    why = tls.why_denied()
    denied += 1
    if denied & (denied - 1) == 0:      # 1, 2, 4, 8 …: never a flood
        remedy = ("; --origin-ca FILE trusts other authorities"
                  if tls.alert_of_denied() == UNKNOWN_CA else "")
        log.warning("origin %s: its certificate is not accepted: %s (%d times so far)%s",
                    name.decode(), why, denied, remedy)
    return fail_why(c, ORIGIN_CERTIFICATE, why)


cdef int fail_handshake(Client c) except -1:
    """As fail_certificate: for want of a common version or cipher, by the origin's alert, or
    because it speaks no TLS."""
    from cutthrough.net.tls import failures     # here: it needs libssl

    cdef str why = failures.why_failed()
    return fail_why(c, ORIGIN_TLS, why) if why else fail(c, ORIGIN_TLS)


cdef int fail_why(Client c, int outcome, str why) except -1:
    cdef bint close = is_last(c)
    cdef bytes reply
    cdef int status = status_of(outcome)
    extras_of(c).decision = denial(why)
    if (<Inside>c.entrance).opening == NULL or c.request.method >= M_CONNECT:
        return fail(c, outcome)
    reply = reply_with_text(status, label_of(outcome).decode(), c.extras.decision.reason,
                            close, c.request.method != M_HEAD)
    return c.reply(outcome, status, reply, len(reply), close)


cdef int greet(Client c) except -1:
    """The origin's certificate is right: the client's handshake follows."""
    cdef Inside inside = <Inside>c.entrance
    if not put_bridge_if_needed(c, c):
        return refuse_opening(c, OVERLOADED, HANDSHAKE_FAILURE)
    c.sock.slot = c.context.options.client_tls
    if not put_transport(c, inside.name):
        return c.abort(OVERLOADED, True)
    c.stages = STAGE_TLS
    end_phase(&c.stamps)
    c._set_state(HEAD)
    return c.poller.call_again(c)


cdef bint put_bridge_if_needed(Client c, Endpoint endpoint) except -1:
    """A client of an HTTPS proxy, or a parent's, has TLS already: a bridge has that. False: no
    descriptor or memory for it."""
    cdef int64_t linger_ms = c.context.options.timeout_ms[<int>LINGER]
    cdef int error
    if endpoint.sock.kind == KERNEL:
        return True
    error = put_bridge(endpoint, linger_ms)
    if error and relieve(c, error):
        error = put_bridge(endpoint, linger_ms)
    return error == 0


cdef int enter(Client c) except -1:
    cdef Inside inside = <Inside>c.entrance
    c.log_end(OK)
    inside.opening = own_opening(c)
    c.extras.opening = NULL
    inside.spare = c.origin
    c.origin = None
    c.context.counters.intercepted += 1
    c._clear_request()
    return look_inside(c)


cdef Upstream take_spare(Client c):
    cdef Inside inside = <Inside>c.entrance
    cdef Upstream upstream = inside.spare
    cdef char octet
    if upstream is None:
        return None
    if upstream.sock.ready & (PEER_DONE | BROKEN) and not (     # a greeting may be before its end
            c.request.is_tunnel and try_peek(&upstream.sock, &octet, 1) > 0):
        inside.leave()
        return None
    if is_stream(&upstream.sock) and needs_connection(c):
        inside.leave()
        return None
    inside.spare = None
    upstream.reused = True              # it may have ended meanwhile
    return upstream


cdef int on_spare(Client c) except -1:
    cdef Upstream upstream = (<Inside>c.entrance).spare
    cdef char octet
    if upstream is None or begin_by_greeting(c, upstream):
        return 0
    if not upstream.sock.ready & (PEER_DONE | BROKEN) and (
            not upstream.sock.ready & CAN_READ or (
                try_peek(&upstream.sock, &octet, 1) == -linux.EAGAIN)):
        return 0                        # tickets, which a look at a greeting may have read
    return (<Inside>c.entrance).leave()
