# cython: language_level=3, boundscheck=False, wraparound=False
"""Why a call of libssl has failed, by the first error in its queue."""

from cutthrough.net cimport openssl
from cutthrough.net.transport cimport (
    HANDSHAKE_ALERT, HANDSHAKE_CLOSED, HANDSHAKE_DENIED, HANDSHAKE_INVALID, HANDSHAKE_REJECTED,
    HANDSHAKE_UNSHARED)


cdef unsigned long last_error = 0       # of a handshake


cdef int reason_of_failure(bint ended) noexcept nogil:
    global last_error
    cdef unsigned long error = openssl.ERR_peek_error()
    cdef int reason = openssl.ERR_GET_REASON(error)
    last_error = error
    if openssl.ERR_GET_LIB(error) != openssl.ERR_LIB_SSL:
        return HANDSHAKE_INVALID
    if reason >= openssl.SSL_AD_REASON_OFFSET:
        return HANDSHAKE_REJECTED if is_of_certificate(alert_met()) else HANDSHAKE_ALERT
    if reason in (openssl.SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE,
                  openssl.SSL_R_CERTIFICATE_VERIFY_FAILED):
        return HANDSHAKE_DENIED
    if reason in (
            openssl.SSL_R_NO_SHARED_CIPHER, openssl.SSL_R_UNSUPPORTED_PROTOCOL,
            openssl.SSL_R_NO_SUITABLE_KEY_SHARE, openssl.SSL_R_VERSION_TOO_LOW,
            openssl.SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM,
            openssl.SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS,
            openssl.SSL_R_NO_APPLICATION_PROTOCOL):
        return HANDSHAKE_UNSHARED
    return HANDSHAKE_CLOSED if ended else HANDSHAKE_INVALID


def why_failed():
    """Why a handshake failed the last time, in libssl's words; "": it has none."""
    cdef const char *text = openssl.ERR_reason_error_string(last_error)
    return (<bytes>text).decode() if text != NULL else ""


cdef int alert_met() noexcept nogil:
    cdef unsigned long error = openssl.ERR_peek_error()
    return openssl.ERR_GET_REASON(error) - openssl.SSL_AD_REASON_OFFSET if (
        openssl.ERR_GET_LIB(error) == openssl.ERR_LIB_SSL) else -1


cdef bint is_of_certificate(int alert) noexcept nogil:
    """bad_certificate to certificate_unknown, and unknown_ca (RFC 8446 section 6)."""
    return 42 <= alert <= 46 or alert == 48
