# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The end of a tunnel whose first bytes are refused.

The 200 is out, so no reply can say why. A client of TLS gets a fatal alert, so that its user reads
more than "connection reset".
"""

from cutthrough.net.relay cimport is_holding
from cutthrough.net.sysio cimport set_abortive, try_send
from cutthrough.session.model.client cimport Client

cdef enum:
    ALERT_BYTES = 7

# A record with a fatal alert, but for its description (RFC 8446 sections 5.1 and 6)
cdef char[ALERT_BYTES] record = [0x15, 3, 3, 0, 2, 2, 0]


cdef int refuse_opening(Client c, int outcome, int alert) except -1:
    c.log_end(outcome)
    c.close_origin(False)
    record[ALERT_BYTES - 1] = <char>alert
    if alert == NO_ALERT or is_holding(&c.relay.down) or (
            try_send(&c.sock, record, ALERT_BYTES) != ALERT_BYTES):
        set_abortive(&c.sock)
        return c.close()
    c._clear_request()
    return c.linger(False)
