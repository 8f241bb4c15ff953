"""The end of a tunnel whose first bytes are refused."""

from cutthrough.session.model.client cimport Client

cdef enum Alert:                # AlertDescription of RFC 8446 section 6
    NO_ALERT = 0                # the client speaks no TLS
    HANDSHAKE_FAILURE = 40
    UNKNOWN_CA = 48
    ACCESS_DENIED = 49
    DECODE_ERROR = 50

# The origin has been sent nothing of the client's.
cdef int refuse_opening(Client client, int outcome, int alert) except -1
