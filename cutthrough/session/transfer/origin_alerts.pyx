# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The outcome of an origin's connection that failed: reset, or given up by the kernel; ended by us,
because the origin broke the rules of HTTP/2; or by an alert about our certificate.

By TLS 1.3 that alert comes behind the handshake, in place of the first answer: the server has seen our
certificate, or that there is none, only when we have said that we are done (RFC 8446 section
4.4.2.4).
"""

import logging

from cutthrough.net.linux cimport ENOMEM
from cutthrough.net.multiplex cimport (
    PEER_BROKE_RULES, PEER_SILENT, STREAM_BROKE_RULES, is_stream, multiplexer)
from cutthrough.net.sysio cimport is_given_up
from cutthrough.net.transport cimport REFUSES_CERTIFICATE, WANTS_CERTIFICATE
from cutthrough.outcome cimport (
    BAD_RESPONSE, ORIGIN_REFUSES_CERTIFICATE, ORIGIN_RESET, ORIGIN_WANTS_CERTIFICATE, OVERLOADED,
    RESPONSE_TIMEOUT, WRITE_TIMEOUT)

log = logging.getLogger("cutthrough")

cdef long n_alerts = 0


cdef int outcome_of_origin(Client c, int error) except -1:
    if error == 0 or error == ENOMEM:
        return OVERLOADED
    if is_given_up(error) or error == PEER_SILENT:
        return WRITE_TIMEOUT if c.request.is_tunnel else RESPONSE_TIMEOUT
    if c.origin is not None and is_stream(&c.origin.sock):
        if error == PEER_BROKE_RULES or error == STREAM_BROKE_RULES:
            return BAD_RESPONSE
        pass_reset(c)
    return outcome_of_alert(c, error, ORIGIN_RESET)


cdef bint pass_reset(Client c) noexcept:
    return (c.origin is not None and is_stream(&c.origin.sock) and is_stream(&c.sock)
            and multiplexer().pass_reset(&c.origin.sock, &c.sock))


cdef int outcome_of_alert(Client c, int error, int otherwise) except -1:
    global n_alerts
    if error != WANTS_CERTIFICATE and error != REFUSES_CERTIFICATE:
        return otherwise
    from cutthrough.net.tls import transport as tls              # here: it needs libssl

    n_alerts += 1
    if n_alerts & (n_alerts - 1) == 0:          # 1, 2, 4, 8 …: never a flood
        log.warning("origin %s: %s: alert %s (%d times so far)", c.key[:len(c.key) - 2].decode(),
                    "it wants a client certificate" if error == WANTS_CERTIFICATE
                    else "it does not accept our client certificate", tls.why_refused(), n_alerts)
    return ORIGIN_WANTS_CERTIFICATE if error == WANTS_CERTIFICATE else ORIGIN_REFUSES_CERTIFICATE
