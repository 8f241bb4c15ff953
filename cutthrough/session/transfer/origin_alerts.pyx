# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The meaning of an origin's alert about our certificate.

By TLS 1.3 it comes behind the handshake, in place of the first answer: the server has seen our
certificate, or that there is none, only when we have said that we are done (RFC 8446 section
4.4.2.4).
"""

import logging

from cutthrough.net.transport cimport REFUSES_CERTIFICATE, WANTS_CERTIFICATE
from cutthrough.outcome cimport ORIGIN_REFUSES_CERTIFICATE, ORIGIN_WANTS_CERTIFICATE

log = logging.getLogger("cutthrough")

cdef long n_alerts = 0


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
